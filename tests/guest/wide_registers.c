/*
 * Preloaded into user-mode Linux: lets it run on processors whose extended state is larger than it knows.
 *
 * The kernel of Debian 12 keeps 2,696 bytes of extended state for each of its processes, enough up to AVX-512. On a
 * host with AMX the state is 11,008 bytes, which the host takes as a whole or not at all, so that a guest panics at its
 * first context switch. Here a short read gets the beginning of the state, and a short write changes the beginning and
 * leaves the rest as it is: of AMX's tiles, which no program of a guest has asked the host for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define STATE_BYTES_MAX 65536

static long (*host_ptrace)(enum __ptrace_request request, ...);

/* Early, since what dlsym needs is not to be had in every place that calls ptrace. */
__attribute__((constructor)) static void find_host(void)
{
	host_ptrace = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
}

/* The header is 64 bytes at 512; its first word says which parts are not in their initial state. */
#define PARTS_IN_USE_AT 512
/* x87, SSE, AVX, MPX, AVX-512 and PKRU: all that fits in what the guest keeps. */
#define PARTS_OF_GUEST 0x2ffull

static long change_beginning(pid_t process, const struct iovec *part)
{
	/* The stacks of a kernel are small, and only one of its threads traces. */
	static unsigned char state[STATE_BYTES_MAX];
	struct iovec whole = { state, sizeof(state) };
	unsigned long long in_use, in_use_of_guest;
	long result = host_ptrace(PTRACE_GETREGSET, process, NT_X86_XSTATE, &whole);

	if (result != 0 || whole.iov_len <= part->iov_len)
		return host_ptrace(PTRACE_SETREGSET, process, NT_X86_XSTATE, part);
	memcpy(&in_use, state + PARTS_IN_USE_AT, sizeof(in_use));
	memcpy(state, part->iov_base, part->iov_len);
	memcpy(&in_use_of_guest, state + PARTS_IN_USE_AT, sizeof(in_use_of_guest));
	in_use = (in_use & ~PARTS_OF_GUEST) | (in_use_of_guest & PARTS_OF_GUEST);
	memcpy(state + PARTS_IN_USE_AT, &in_use, sizeof(in_use));
	return host_ptrace(PTRACE_SETREGSET, process, NT_X86_XSTATE, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	pid_t process;
	void *address, *data;

	va_start(arguments, request);
	process = va_arg(arguments, pid_t);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	if (request == PTRACE_SETREGSET && (unsigned long)address == NT_X86_XSTATE)
		return change_beginning(process, data);
	return host_ptrace(request, process, address, data);
}
