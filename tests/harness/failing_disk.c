/*
 * The disk of a process as one that goes bad. To be preloaded; FAILING_DISK names a folder, and each file in it that
 * exists is a fault: `syncs` (every one fails), `journal-writes` (no room), `cache-reads` (every second one of the cache
 * file fails), `cache-contents` (each fails).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static bool is_failing(const char *fault)
{
	const char *folder = getenv("FAILING_DISK");
	char path[PATH_MAX];

	if (!folder)
		return false;
	snprintf(path, sizeof(path), "%s/%s", folder, fault);
	return access(path, F_OK) == 0;
}

/* Whether the file's path has this in it. */
static bool is_of(int fd, const char *part)
{
	char link[64];
	char path[PATH_MAX] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, part);
}

static int sync_by(const char *name, int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);

	if (!is_failing("syncs"))
		return real(fd);
	errno = EIO;
	return -1;
}

int fsync(int fd)
{
	return sync_by("fsync", fd);
}

int fdatasync(int fd)
{
	return sync_by("fdatasync", fd);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset)
{
	ssize_t (*real)(int, const void *, size_t, off64_t) =
		(ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");

	if (is_failing("journal-writes") && is_of(fd, "/state/journal/")) {
		errno = ENOSPC;
		return -1;
	}
	return real(fd, bytes, length, offset);
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t offset)
{
	static atomic_uint reads;
	ssize_t (*real)(int, void *, size_t, off64_t) =
		(ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");

	if (is_of(fd, "/state/cache") &&
	    (is_failing("cache-contents") || (is_failing("cache-reads") && atomic_fetch_add(&reads, 1) % 2 == 0))) {
		errno = EIO;
		return -1;
	}
	return real(fd, bytes, length, offset);
}

/* Reads without waiting do wait, so that each comes to the one above. */
static ssize_t read_at_once(const char *name, int fd, const struct iovec *vectors, int count, off64_t offset, int flags)
{
	ssize_t (*real)(int, const struct iovec *, int, off64_t, int) =
		(ssize_t (*)(int, const struct iovec *, int, off64_t, int))dlsym(RTLD_NEXT, name);

	if (is_of(fd, "/state/cache") && (is_failing("cache-contents") || is_failing("cache-reads"))) {
		errno = EAGAIN;
		return -1;
	}
	return real(fd, vectors, count, offset, flags);
}

ssize_t preadv2(int fd, const struct iovec *vectors, int count, off_t offset, int flags)
{
	return read_at_once("preadv2", fd, vectors, count, offset, flags);
}

ssize_t preadv64v2(int fd, const struct iovec *vectors, int count, off64_t offset, int flags)
{
	return read_at_once("preadv64v2", fd, vectors, count, offset, flags);
}
