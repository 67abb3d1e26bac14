/*
 * Every sync of a process fails while a file exists, as on a disk that has gone bad. To be preloaded; FAILING_SYNC_WHILE
 * names the file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static bool is_failing(void)
{
	const char *flag = getenv("FAILING_SYNC_WHILE");

	return flag && access(flag, F_OK) == 0;
}

static int sync_by(const char *name, int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);

	if (!is_failing())
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
