/*
 * Notes, in the order in which it happens, all that a process does to the files below one folder: names, bytes, syncs.
 * harness/power_loss.py makes of it what a power cut may leave. To be preloaded; set by the environment:
 *
 *   DISK_RECORDER_FOLDER   the folder, absolute
 *   DISK_RECORDER_LOG      where the records go
 *   DISK_RECORDER_CUT      the process dies by SIGKILL when it has made this many records (0: never)
 *   DISK_RECORDER_IGNORED  syncs of files with this in their path are answered and not noted: canaries
 *
 * A change is noted before it is made, so that one under way at the cut is known of, and withdrawn if it fails. Syncs
 * do not reach the real disk: they take a moment, and cover what was done when they began.
 *
 * What it cannot note (a writable shared mapping, holes punched) ends the process with a message. What it does not see
 * at all (system calls made past the C library) is found by comparing the records with the folder.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { KNOWN = 1, CREATE, MKDIR, WRITE, TRUNCATE, ALLOCATE, RENAME, UNLINK, LINK, SYNC, THROUGH, FAILED };

/* Followed by the names (of RENAME and LINK two, with a NUL between) and the data. */
struct record {
	uint32_t kind;
	uint32_t name_bytes;
	uint64_t data_bytes;
	uint64_t inode;
	/* WRITE: where. TRUNCATE, ALLOCATE: the length. SYNC: how many records there were when it began. THROUGH (a write
	 * that waited for the disk) and FAILED: the number of another record, from 1 on. */
	uint64_t offset;
};

#define INODES_MAX (1u << 16)
#define SYNC_TAKES_US 500

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t inodes[INODES_MAX]; /* Files and folders below the folder, hashed; 0 is free. */
static const char *folder;
static size_t folder_bytes;
static dev_t device;
static int log_fd = -1;
static uint64_t records, cut;
static const char *ignored;

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		abort();
	return found;
}

__attribute__((format(printf, 1, 2), noreturn)) static void give_up(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("disk recorder: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	abort();
}

static void begin(void)
{
	const char *log = getenv("DISK_RECORDER_LOG"), *count = getenv("DISK_RECORDER_CUT");
	struct stat status;

	folder = getenv("DISK_RECORDER_FOLDER");
	if (!log || !folder)
		give_up("DISK_RECORDER_LOG and DISK_RECORDER_FOLDER are not set");
	if (stat(folder, &status) != 0)
		give_up("%s: %s", folder, strerror(errno));
	folder_bytes = strlen(folder);
	device = status.st_dev;
	cut = count ? strtoull(count, NULL, 10) : 0;
	ignored = getenv("DISK_RECORDER_IGNORED");
	log_fd = REAL(open)(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (log_fd < 0)
		give_up("%s: %s", log, strerror(errno));
}

static void enter(void)
{
	pthread_once(&once, begin);
	pthread_mutex_lock(&lock);
}

static void leave(void)
{
	int kept = errno;

	pthread_mutex_unlock(&lock);
	errno = kept;
}

/* The name below the folder, or NULL. */
static const char *below(const char *path)
{
	return strncmp(path, folder, folder_bytes) == 0 && path[folder_bytes] == '/' ? path + folder_bytes + 1 : NULL;
}

static const char *absolute(int directory, const char *path, char *into)
{
	char link[64];
	ssize_t length;

	if (path[0] == '/')
		return path;
	if (directory == AT_FDCWD)
		length = getcwd(into, PATH_MAX) ? (ssize_t)strlen(into) : -1;
	else {
		snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
		length = readlink(link, into, PATH_MAX - 1);
	}
	if (length < 0)
		give_up("no path of a folder: %s", strerror(errno));
	snprintf(into + length, PATH_MAX - length, "/%s", path);
	return into;
}

/* LMDB's table of readers, a mapping that all who open the environment make anew. */
static bool is_ephemeral(const char *path)
{
	size_t length = strlen(path);

	return length >= 9 && strcmp(path + length - 9, "/lock.mdb") == 0;
}

/* Whether its content need not be noted. Asks for the path: the number of a removed file's inode may be that of a new
 * table of readers, or of a file elsewhere. */
static bool may_be_mapped(int fd)
{
	char link[64], path[PATH_MAX];
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return false;
	path[length] = 0;
	return is_ephemeral(path) || !below(path);
}

static uint64_t *slot_of(uint64_t inode)
{
	unsigned at = (inode * 0x9e3779b97f4a7c15u) >> 48, tried;

	for (tried = 0; tried < INODES_MAX; tried++, at = (at + 1) % INODES_MAX)
		if (!inodes[at] || inodes[at] == inode)
			return &inodes[at];
	give_up("more than %u files", INODES_MAX);
}

/* The inode number of a known open file, or 0. */
static uint64_t known(int fd)
{
	struct stat status;
	int kept = errno;
	bool is_ours = fstat(fd, &status) == 0 && status.st_dev == device;

	errno = kept;
	return is_ours && *slot_of(status.st_ino) ? status.st_ino : 0;
}

static bool sync_counts(int fd)
{
	char link[64], path[PATH_MAX];
	ssize_t length;

	if (!ignored)
		return true;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof path - 1);
	path[length < 0 ? 0 : length] = '\0';
	return !strstr(path, ignored);
}

static void put_all(const struct iovec *parts, int count)
{
	for (int part = 0; part < count; part++) {
		const char *from = parts[part].iov_base;
		size_t left = parts[part].iov_len;

		while (left) {
			ssize_t done = REAL(write)(log_fd, from, left);

			if (done <= 0)
				give_up("log: %s", strerror(errno));
			from += done;
			left -= done;
		}
	}
}

/* Returns the record's number; numbers begin with 1. */
static uint64_t note_vector(enum kind kind, uint64_t inode, uint64_t offset, const struct iovec *data, int count)
{
	struct record record = { .kind = kind, .inode = inode, .offset = offset };
	struct iovec head = { &record, sizeof record };

	for (int part = 0; part < count; part++)
		record.data_bytes += data[part].iov_len;
	put_all(&head, 1);
	put_all(data, count);
	if (++records == cut)
		kill(getpid(), SIGKILL);
	return records;
}

static uint64_t note(enum kind kind, uint64_t inode, uint64_t offset)
{
	return note_vector(kind, inode, offset, NULL, 0);
}

static uint64_t note_name(enum kind kind, uint64_t inode, const char *name, const char *second)
{
	struct record record = { .kind = kind, .inode = inode };
	struct iovec parts[4] = { { &record, sizeof record }, { (void *)name, strlen(name) }, { "", 1 } };

	if (second)
		parts[3] = (struct iovec){ (void *)second, strlen(second) };
	record.name_bytes = parts[1].iov_len + (second ? 1 + parts[3].iov_len : 0);
	put_all(parts, second ? 4 : 2);
	if (++records == cut)
		kill(getpid(), SIGKILL);
	return records;
}

/* A change is withdrawn that was not made. */
static int done(uint64_t number, int result)
{
	int kept = errno;

	if (result != 0 && number)
		note(FAILED, 0, number);
	errno = kept;
	leave();
	return result;
}

/* Opening, making, naming */

static int noted_open(int directory, const char *path, int flags, mode_t mode)
{
	char buffer[PATH_MAX];
	const char *name;
	struct stat status;
	bool was_there;
	int fd;

	enter();
	name = below(absolute(directory, path, buffer));
	if (name && (flags & O_TMPFILE) == O_TMPFILE)
		give_up("a file without a name");
	was_there = name && fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
	fd = REAL(openat)(directory, path, flags, mode);
	if (fd < 0 || !name || is_ephemeral(path) || fstat(fd, &status) != 0) {
		leave();
		return fd;
	}
	if (!*slot_of(status.st_ino) || !was_there)
		note_name(was_there ? KNOWN : CREATE, status.st_ino, name, NULL);
	*slot_of(status.st_ino) = status.st_ino;
	if (was_there && (flags & O_TRUNC))
		note(TRUNCATE, status.st_ino, 0);
	leave();
	return fd;
}

#define MODE_OF(flags, mode) \
	do { \
		if ((flags) & O_CREAT) { \
			va_list arguments; \
			va_start(arguments, flags); \
			mode = va_arg(arguments, mode_t); \
			va_end(arguments); \
		} \
	} while (0)

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;

	MODE_OF(flags, mode);
	return noted_open(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	mode_t mode = 0;

	MODE_OF(flags, mode);
	return noted_open(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
	mode_t mode = 0;

	MODE_OF(flags, mode);
	return noted_open(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...)
{
	mode_t mode = 0;

	MODE_OF(flags, mode);
	return noted_open(directory, path, flags | O_LARGEFILE, mode);
}

int mkdirat(int directory, const char *path, mode_t mode)
{
	char buffer[PATH_MAX];
	const char *name;
	struct stat status;
	int result;

	enter();
	name = below(absolute(directory, path, buffer));
	result = REAL(mkdirat)(directory, path, mode);
	if (result == 0 && name && fstatat(directory, path, &status, 0) == 0) {
		note_name(MKDIR, status.st_ino, name, NULL);
		*slot_of(status.st_ino) = status.st_ino;
	}
	leave();
	return result;
}

int mkdir(const char *path, mode_t mode)
{
	return mkdirat(AT_FDCWD, path, mode);
}

int unlinkat(int directory, const char *path, int flags)
{
	char buffer[PATH_MAX];
	const char *name;
	uint64_t number;

	enter();
	name = below(absolute(directory, path, buffer));
	number = name ? note_name(UNLINK, 0, name, NULL) : 0;
	return done(number, REAL(unlinkat)(directory, path, flags));
}

int unlink(const char *path)
{
	return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
	return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* RENAME and LINK: the inode is that of the old name, which need not have been opened. */
static uint64_t note_two(enum kind kind, int from_directory, const char *from, int to_directory, const char *to)
{
	char buffers[2][PATH_MAX];
	const char *source = below(absolute(from_directory, from, buffers[0]));
	const char *target = below(absolute(to_directory, to, buffers[1]));
	struct stat status;

	if (!source && !target)
		return 0;
	if (!source || !target)
		give_up("%s to %s leaves the folder", from, to);
	if (fstatat(from_directory, from, &status, AT_SYMLINK_NOFOLLOW) != 0)
		return 0;
	return note_name(kind, status.st_ino, source, target);
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags)
{
	uint64_t number;

	enter();
	if (flags & ~RENAME_NOREPLACE)
		give_up("renameat2 with flags %u", flags);
	number = note_two(RENAME, from_directory, from, to_directory, to);
	return done(number, REAL(renameat2)(from_directory, from, to_directory, to, flags));
}

int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
	return renameat2(from_directory, from, to_directory, to, 0);
}

int rename(const char *from, const char *to)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags)
{
	uint64_t number;

	enter();
	number = note_two(LINK, from_directory, from, to_directory, to);
	return done(number, REAL(linkat)(from_directory, from, to_directory, to, flags));
}

int link(const char *from, const char *to)
{
	return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* Bytes and lengths */

static ssize_t noted_write(int fd, const struct iovec *data, int count, off_t offset, bool at_position)
{
	struct iovec written = { NULL, 0 };
	uint64_t inode, number, wanted = 0;
	int flags = fcntl(fd, F_GETFL), kept;
	ssize_t result;

	if (at_position && (flags & O_APPEND))
		offset = lseek(fd, 0, SEEK_END);
	else if (at_position)
		offset = lseek(fd, 0, SEEK_CUR);
	inode = known(fd);
	number = note_vector(WRITE, inode, offset, data, count);
	for (int part = 0; part < count; part++)
		wanted += data[part].iov_len;
	result = at_position ? REAL(writev)(fd, data, count) : REAL(pwritev)(fd, data, count, offset);
	kept = errno;
	if (result < 0 || (uint64_t)result != wanted) {
		note(FAILED, 0, number);
		if (result > 0 && count != 1)
			give_up("a short write of several parts");
		if (result > 0) {
			written = (struct iovec){ data->iov_base, result };
			number = note_vector(WRITE, inode, offset, &written, 1);
		}
	}
	if (result > 0 && (flags & O_DSYNC) && sync_counts(fd))
		note(THROUGH, inode, number);
	errno = kept;
	return result;
}

static bool enter_known(int fd)
{
	enter();
	if (known(fd))
		return true;
	leave();
	return false;
}

ssize_t write(int fd, const void *data, size_t length)
{
	struct iovec part = { (void *)data, length };
	ssize_t result;

	if (!enter_known(fd))
		return REAL(write)(fd, data, length);
	result = noted_write(fd, &part, 1, 0, true);
	leave();
	return result;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	ssize_t result;

	if (!enter_known(fd))
		return REAL(writev)(fd, parts, count);
	result = noted_write(fd, parts, count, 0, true);
	leave();
	return result;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
	ssize_t result;

	if (!enter_known(fd))
		return REAL(pwritev)(fd, parts, count, offset);
	result = noted_write(fd, parts, count, offset, false);
	leave();
	return result;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
	return pwritev(fd, parts, count, offset);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
	struct iovec part = { (void *)data, length };

	return pwritev(fd, &part, 1, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
	return pwrite(fd, data, length, offset);
}

int ftruncate(int fd, off_t length)
{
	uint64_t number;

	if (!enter_known(fd))
		return REAL(ftruncate)(fd, length);
	number = note(TRUNCATE, known(fd), length);
	return done(number, REAL(ftruncate)(fd, length));
}

int ftruncate64(int fd, off64_t length)
{
	return ftruncate(fd, length);
}

int posix_fallocate(int fd, off_t offset, off_t length)
{
	uint64_t number;

	if (!enter_known(fd))
		return REAL(posix_fallocate)(fd, offset, length);
	number = note(ALLOCATE, known(fd), offset + length);
	return done(number, REAL(posix_fallocate)(fd, offset, length));
}

int posix_fallocate64(int fd, off64_t offset, off64_t length)
{
	return posix_fallocate(fd, offset, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length)
{
	uint64_t number;

	if (!enter_known(fd))
		return REAL(fallocate)(fd, mode, offset, length);
	if (mode != 0)
		give_up("fallocate of mode %d", mode);
	number = note(ALLOCATE, known(fd), offset + length);
	return done(number, REAL(fallocate)(fd, mode, offset, length));
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length)
{
	return fallocate(fd, mode, offset, length);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	if ((flags & MAP_SHARED) && (protection & PROT_WRITE) && fd >= 0 && !may_be_mapped(fd) && enter_known(fd))
		give_up("a writable shared mapping");
	return REAL(mmap)(address, length, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
	return mmap(address, length, protection, flags, fd, offset);
}

ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t length, unsigned flags)
{
	if (enter_known(to))
		give_up("copy_file_range");
	return REAL(copy_file_range)(from, from_offset, to, to_offset, length, flags);
}

/* Syncs */

static int noted_sync(int fd)
{
	uint64_t inode, covered;

	inode = known(fd);
	covered = records;
	leave();
	usleep(SYNC_TAKES_US);
	enter();
	if (sync_counts(fd))
		note(SYNC, inode, covered);
	leave();
	return 0;
}

int fsync(int fd)
{
	return enter_known(fd) ? noted_sync(fd) : REAL(fsync)(fd);
}

int fdatasync(int fd)
{
	return enter_known(fd) ? noted_sync(fd) : REAL(fdatasync)(fd);
}

int syncfs(int fd)
{
	if (enter_known(fd))
		give_up("syncfs");
	return REAL(syncfs)(fd);
}
