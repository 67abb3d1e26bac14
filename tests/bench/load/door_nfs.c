// NFSv3 through libnfs, which keeps nothing: every call is one or a few questions to the server.
#include "door.h"
#include "libnfs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { name_bytes_max = 255, service_wait_ms = 1000 };

struct nfs_door {
    struct door door;
    struct nfs_context *nfs;
};

static struct nfs_context *context_of(struct door *door) { return ((struct nfs_door *)door)->nfs; }

static void expect(struct door *door, int code, const char *what, const char *name) {
    if (code < 0) fail(what, name, nfs_get_error(context_of(door)));
}

struct path {
    char text[name_bytes_max + 2];
};

// Names are below the mounted directory, whose handle libnfs has: no other directory is looked up.
static struct path path_of(const char *name) {
    struct path path;
    if (snprintf(path.text, sizeof path.text, "/%s", name) >= (int)sizeof path.text) fail("name", name, "too long");
    return path;
}

static struct nfsfh *create_and_keep(struct door *door, const char *name, int flags) {
    struct nfsfh *handle = NULL;
    expect(door, nfs_create(context_of(door), path_of(name).text, O_CREAT | O_EXCL | flags, 0666, &handle), "create",
           name);
    return handle;
}

static void nfs_door_create(struct door *door, const char *name) {
    expect(door, nfs_close(context_of(door), create_and_keep(door, name, 0)), "close", name);
}

static void nfs_door_status(struct door *door, const char *name) {
    struct nfs_stat_64 found;
    expect(door, nfs_lstat64(context_of(door), path_of(name).text, &found), "status", name);
}

static long nfs_door_list(struct door *door) {
    struct nfsdir *directory = NULL;
    expect(door, nfs_opendir(context_of(door), "/", &directory), "list", "/");
    long count = 0;
    while (nfs_readdir(context_of(door), directory) != NULL) ++count;
    nfs_closedir(context_of(door), directory);
    return count;
}

static void nfs_door_rename(struct door *door, const char *from, const char *to) {
    expect(door, nfs_rename(context_of(door), path_of(from).text, path_of(to).text), "rename", from);
}

static void nfs_door_remove(struct door *door, const char *name) {
    expect(door, nfs_unlink(context_of(door), path_of(name).text), "remove", name);
}

// O_SYNC makes libnfs ask for FILE_SYNC, so that no COMMIT is needed.
static void nfs_door_store(struct door *door, const char *name, const void *data, size_t bytes, bool stable) {
    struct nfsfh *handle = create_and_keep(door, name, stable ? O_SYNC : 0);
    int written = nfs_pwrite(context_of(door), handle, 0, bytes, data);
    expect(door, written, "write", name);
    if ((size_t)written != bytes) fail("write", name, "short");
    expect(door, nfs_close(context_of(door), handle), "close", name);
}

static const struct door_calls nfs_calls = {
    .create = nfs_door_create,
    .status = nfs_door_status,
    .list = nfs_door_list,
    .rename = nfs_door_rename,
    .remove = nfs_door_remove,
    .store = nfs_door_store,
};

struct door *open_nfs_door(const char *text) {
    struct nfs_door *opened = calloc(1, sizeof *opened);
    if (opened == NULL) fail("mount", text, strerror(errno));
    opened->door.calls = &nfs_calls;
    opened->nfs = nfs_init_context();
    struct nfs_url *url = nfs_parse_url_dir(opened->nfs, text);
    if (url == NULL) fail("mount", text, nfs_get_error(opened->nfs));
    nfs_set_uid(opened->nfs, 0);
    nfs_set_gid(opened->nfs, 0);
    expect(&opened->door, nfs_mount(opened->nfs, url->server, url->path), "mount", text);
    return &opened->door;
}

// A pass over a file: what all its requests share.
struct pass {
    const struct transfer *transfer;
    struct door *door;
    struct nfsfh *handle;
    uint64_t state;
    uint64_t sent;
    uint64_t answered;
    double end_s;
};

// A request's place in the pipeline. It is sent again as soon as it was answered.
struct slot {
    struct pass *pass;
    unsigned char *data;
};

static uint64_t next_block(struct pass *pass) {
    uint64_t blocks = pass->transfer->file_bytes / pass->transfer->block_bytes;
    if (!pass->transfer->random) return pass->sent;
    uint64_t drawn;
    fill_unique(&drawn, sizeof drawn, &pass->state);
    return drawn % blocks;
}

static bool is_over(const struct pass *pass) {
    uint64_t blocks = pass->transfer->file_bytes / pass->transfer->block_bytes;
    return (!pass->transfer->random && pass->sent == blocks) || seconds_now() >= pass->end_s;
}

static void on_answer(int outcome, struct nfs_context *nfs, void *data, void *own);

static void send_one(struct slot *slot) {
    struct pass *pass = slot->pass;
    if (is_over(pass)) return;
    size_t bytes = pass->transfer->block_bytes;
    uint64_t offset = next_block(pass) * bytes;
    struct nfs_context *nfs = context_of(pass->door);
    int code;
    if (pass->transfer->writes) {
        fill_unique(slot->data, bytes, &pass->state);
        code = nfs_pwrite_async(nfs, pass->handle, offset, bytes, slot->data, on_answer, slot);
    } else {
        code = nfs_pread_async(nfs, pass->handle, offset, bytes, on_answer, slot);
    }
    expect(pass->door, code, "transfer", "send");
    ++pass->sent;
}

static void on_answer(int outcome, struct nfs_context *nfs, void *data, void *own) {
    (void)nfs;
    (void)data;
    struct slot *slot = own;
    expect(slot->pass->door, outcome, "transfer", "answer");
    if ((size_t)outcome != slot->pass->transfer->block_bytes) fail("transfer", "answer", "short");
    ++slot->pass->answered;
    send_one(slot);
}

static void wait_for_answers(struct pass *pass) {
    struct nfs_context *nfs = context_of(pass->door);
    while (pass->answered < pass->sent) {
        struct pollfd waiting = {.fd = nfs_get_fd(nfs), .events = (short)nfs_which_events(nfs)};
        if (poll(&waiting, 1, service_wait_ms) < 0) fail("transfer", "poll", strerror(errno));
        expect(pass->door, nfs_service(nfs, waiting.revents), "transfer", "service");
    }
}

uint64_t nfs_transfer(struct door *door, const char *name, const struct transfer *transfer) {
    struct pass pass = {
        .transfer = transfer, .door = door, .state = (uint64_t)(seconds_now() * 1e9) | 1,
        .end_s = seconds_now() + transfer->seconds_max,
    };
    expect(door, nfs_open(context_of(door), path_of(name).text, O_RDWR, &pass.handle), "open", name);
    struct slot *slots = calloc(transfer->depth, sizeof *slots);
    unsigned char *data = calloc(transfer->depth, transfer->block_bytes);
    if (slots == NULL || data == NULL) fail("transfer", name, strerror(errno));
    for (unsigned index = 0; index < transfer->depth; ++index) {
        slots[index] = (struct slot){.pass = &pass, .data = data + index * transfer->block_bytes};
        send_one(&slots[index]);
    }
    wait_for_answers(&pass);
    if (transfer->writes) expect(door, nfs_fsync(context_of(door), pass.handle), "sync", name);
    expect(door, nfs_close(context_of(door), pass.handle), "close", name);
    free(slots);
    free(data);
    return pass.answered;
}
