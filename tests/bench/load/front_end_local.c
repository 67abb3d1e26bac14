// System calls below a folder: a plain file system or a mounted one.
#include "front_end.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct local_front_end {
    struct front_end front_end;
    int folder;
};

static int folder_of(struct front_end *front_end) { return ((struct local_front_end *)front_end)->folder; }

static void expect(bool done, const char *what, const char *name) {
    if (!done) fail(what, name, strerror(errno));
}

static int create_and_keep(struct front_end *front_end, const char *name) {
    int file = openat(folder_of(front_end), name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    expect(file >= 0, "create", name);
    return file;
}

static void local_create(struct front_end *front_end, const char *name) { close(create_and_keep(front_end, name)); }

static void local_status(struct front_end *front_end, const char *name) {
    struct stat found;
    expect(fstatat(folder_of(front_end), name, &found, AT_SYMLINK_NOFOLLOW) == 0, "status", name);
}

static long local_list(struct front_end *front_end) {
    DIR *directory = fdopendir(openat(folder_of(front_end), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    expect(directory != NULL, "list", ".");
    long count = 0;
    while (readdir(directory) != NULL) ++count;
    closedir(directory);
    return count;
}

static void local_rename(struct front_end *front_end, const char *from, const char *to) {
    expect(renameat(folder_of(front_end), from, folder_of(front_end), to) == 0, "rename", from);
}

static void local_remove(struct front_end *front_end, const char *name) {
    expect(unlinkat(folder_of(front_end), name, 0) == 0, "remove", name);
}

static void local_store(struct front_end *front_end, const char *name, const void *data, size_t bytes, bool stable) {
    int file = create_and_keep(front_end, name);
    expect(write(file, data, bytes) == (ssize_t)bytes, "write", name);
    if (stable) expect(fsync(file) == 0, "sync", name);
    expect(close(file) == 0, "close", name);
}

static const struct front_end_calls local_calls = {
    .create = local_create,
    .status = local_status,
    .list = local_list,
    .rename = local_rename,
    .remove = local_remove,
    .store = local_store,
};

struct front_end *open_local_front_end(const char *folder) {
    struct local_front_end *opened = calloc(1, sizeof *opened);
    expect(opened != NULL, "memory", folder);
    opened->front_end.calls = &local_calls;
    opened->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    expect(opened->folder >= 0, "open", folder);
    return &opened->front_end;
}
