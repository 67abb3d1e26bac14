/*
 * Preloaded into user-mode Linux: pretends that the host's processor has AMX, whose extended state is larger than that
 * kernel knows. As Linux does, it gives as much of the state as there is room for, and takes the whole of it or nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define STATE_BYTES 11008

static long (*host_ptrace)(enum __ptrace_request request, ...);
static unsigned char state[STATE_BYTES];

__attribute__((constructor)) static void find_host(void)
{
	host_ptrace = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
}

static long get(pid_t process, struct iovec *part)
{
	struct iovec whole = { state, sizeof(state) };

	memset(state, 0, sizeof(state));
	if (host_ptrace(PTRACE_GETREGSET, process, NT_X86_XSTATE, &whole) != 0)
		return -1;
	if (part->iov_len > STATE_BYTES)
		part->iov_len = STATE_BYTES;
	memcpy(part->iov_base, state, part->iov_len);
	return 0;
}

static long set(pid_t process, const struct iovec *whole)
{
	struct iovec own = { state, sizeof(state) };

	if (whole->iov_len != STATE_BYTES) {
		errno = EFAULT;
		return -1;
	}
	/* How much this host has. */
	if (host_ptrace(PTRACE_GETREGSET, process, NT_X86_XSTATE, &own) != 0)
		return -1;
	own.iov_base = whole->iov_base;
	return host_ptrace(PTRACE_SETREGSET, process, NT_X86_XSTATE, &own);
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
	if (request == PTRACE_GETREGSET && (unsigned long)address == NT_X86_XSTATE)
		return get(process, data);
	if (request == PTRACE_SETREGSET && (unsigned long)address == NT_X86_XSTATE)
		return set(process, data);
	return host_ptrace(request, process, address, data);
}
