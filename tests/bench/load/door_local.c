// System calls below a folder: a plain file system or a mounted one.
#include "door.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct local_door {
    struct door door;
    int folder;
};

static int folder_of(struct door *door) { return ((struct local_door *)door)->folder; }

static void expect(bool done, const char *what, const char *name) {
    if (!done) fail(what, name, strerror(errno));
}

static int create_and_keep(struct door *door, const char *name) {
    int file = openat(folder_of(door), name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    expect(file >= 0, "create", name);
    return file;
}

static void local_create(struct door *door, const char *name) { close(create_and_keep(door, name)); }

static void local_status(struct door *door, const char *name) {
    struct stat found;
    expect(fstatat(folder_of(door), name, &found, AT_SYMLINK_NOFOLLOW) == 0, "status", name);
}

static long local_list(struct door *door) {
    DIR *directory = fdopendir(openat(folder_of(door), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    expect(directory != NULL, "list", ".");
    long count = 0;
    while (readdir(directory) != NULL) ++count;
    closedir(directory);
    return count;
}

static void local_rename(struct door *door, const char *from, const char *to) {
    expect(renameat(folder_of(door), from, folder_of(door), to) == 0, "rename", from);
}

static void local_remove(struct door *door, const char *name) {
    expect(unlinkat(folder_of(door), name, 0) == 0, "remove", name);
}

static void local_store(struct door *door, const char *name, const void *data, size_t bytes, bool stable) {
    int file = create_and_keep(door, name);
    expect(write(file, data, bytes) == (ssize_t)bytes, "write", name);
    if (stable) expect(fsync(file) == 0, "sync", name);
    expect(close(file) == 0, "close", name);
}

static const struct door_calls local_calls = {
    .create = local_create,
    .status = local_status,
    .list = local_list,
    .rename = local_rename,
    .remove = local_remove,
    .store = local_store,
};

struct door *open_local_door(const char *folder) {
    struct local_door *opened = calloc(1, sizeof *opened);
    expect(opened != NULL, "memory", folder);
    opened->door.calls = &local_calls;
    opened->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    expect(opened->folder >= 0, "open", folder);
    return &opened->door;
}
