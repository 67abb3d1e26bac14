// NFSv3 through libnfs, which keeps nothing: every call is one or a few questions to the server.
#include "front_end.h"
#include "libnfs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { name_bytes_max = 255, service_wait_ms = 1000 };

struct nfs_front_end {
    struct front_end front_end;
    struct nfs_context *nfs;
};

static struct nfs_context *context_of(struct front_end *front_end) { return ((struct nfs_front_end *)front_end)->nfs; }

static void expect(struct front_end *front_end, int code, const char *what, const char *name) {
    if (code < 0) fail(what, name, nfs_get_error(context_of(front_end)));
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

static struct nfsfh *create_and_keep(struct front_end *front_end, const char *name, int flags) {
    struct nfsfh *handle = NULL;
    expect(front_end, nfs_create(context_of(front_end), path_of(name).text, O_CREAT | O_EXCL | flags, 0666, &handle), "create",
           name);
    return handle;
}

static void nfs_front_end_create(struct front_end *front_end, const char *name) {
    expect(front_end, nfs_close(context_of(front_end), create_and_keep(front_end, name, 0)), "close", name);
}

static void nfs_front_end_status(struct front_end *front_end, const char *name) {
    struct nfs_stat_64 found;
    expect(front_end, nfs_lstat64(context_of(front_end), path_of(name).text, &found), "status", name);
}

static long nfs_front_end_list(struct front_end *front_end) {
    struct nfsdir *directory = NULL;
    expect(front_end, nfs_opendir(context_of(front_end), "/", &directory), "list", "/");
    long count = 0;
    while (nfs_readdir(context_of(front_end), directory) != NULL) ++count;
    nfs_closedir(context_of(front_end), directory);
    return count;
}

static void nfs_front_end_rename(struct front_end *front_end, const char *from, const char *to) {
    expect(front_end, nfs_rename(context_of(front_end), path_of(from).text, path_of(to).text), "rename", from);
}

static void nfs_front_end_remove(struct front_end *front_end, const char *name) {
    expect(front_end, nfs_unlink(context_of(front_end), path_of(name).text), "remove", name);
}

// O_SYNC makes libnfs ask for FILE_SYNC. It sends a COMMIT at the close all the same, with nothing left to do.
static void nfs_front_end_store(struct front_end *front_end, const char *name, const void *data, size_t bytes, bool stable) {
    struct nfsfh *handle = create_and_keep(front_end, name, stable ? O_SYNC : 0);
    int written = nfs_pwrite(context_of(front_end), handle, 0, bytes, data);
    expect(front_end, written, "write", name);
    if ((size_t)written != bytes) fail("write", name, "short");
    expect(front_end, nfs_close(context_of(front_end), handle), "close", name);
}

static const struct front_end_calls nfs_calls = {
    .create = nfs_front_end_create,
    .status = nfs_front_end_status,
    .list = nfs_front_end_list,
    .rename = nfs_front_end_rename,
    .remove = nfs_front_end_remove,
    .store = nfs_front_end_store,
};

struct front_end *open_nfs_front_end(const char *text) {
    struct nfs_front_end *opened = calloc(1, sizeof *opened);
    if (opened == NULL) fail("mount", text, strerror(errno));
    opened->front_end.calls = &nfs_calls;
    opened->nfs = nfs_init_context();
    struct nfs_url *url = nfs_parse_url_dir(opened->nfs, text);
    if (url == NULL) fail("mount", text, nfs_get_error(opened->nfs));
    nfs_set_uid(opened->nfs, 0);
    nfs_set_gid(opened->nfs, 0);
    expect(&opened->front_end, nfs_mount(opened->nfs, url->server, url->path), "mount", text);
    return &opened->front_end;
}

// A pass over a file: what all its requests share.
struct pass {
    const struct transfer *transfer;
    struct front_end *front_end;
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
    struct nfs_context *nfs = context_of(pass->front_end);
    int code;
    if (pass->transfer->writes) {
        fill_unique(slot->data, bytes, &pass->state);
        code = nfs_pwrite_async(nfs, pass->handle, offset, bytes, slot->data, on_answer, slot);
    } else {
        code = nfs_pread_async(nfs, pass->handle, offset, bytes, on_answer, slot);
    }
    expect(pass->front_end, code, "transfer", "send");
    ++pass->sent;
}

static void on_answer(int outcome, struct nfs_context *nfs, void *data, void *own) {
    (void)nfs;
    (void)data;
    struct slot *slot = own;
    expect(slot->pass->front_end, outcome, "transfer", "answer");
    if ((size_t)outcome != slot->pass->transfer->block_bytes) fail("transfer", "answer", "short");
    ++slot->pass->answered;
    send_one(slot);
}

static void wait_for_answers(struct pass *pass) {
    struct nfs_context *nfs = context_of(pass->front_end);
    while (pass->answered < pass->sent) {
        struct pollfd waiting = {.fd = nfs_get_fd(nfs), .events = (short)nfs_which_events(nfs)};
        if (poll(&waiting, 1, service_wait_ms) < 0) fail("transfer", "poll", strerror(errno));
        expect(pass->front_end, nfs_service(nfs, waiting.revents), "transfer", "service");
    }
}

uint64_t nfs_transfer(struct front_end *front_end, const char *name, const struct transfer *transfer) {
    struct pass pass = {
        .transfer = transfer, .front_end = front_end, .state = (uint64_t)(seconds_now() * 1e9) | 1,
        .end_s = seconds_now() + transfer->seconds_max,
    };
    expect(front_end, nfs_open(context_of(front_end), path_of(name).text, O_RDWR, &pass.handle), "open", name);
    struct slot *slots = calloc(transfer->depth, sizeof *slots);
    unsigned char *data = calloc(transfer->depth, transfer->block_bytes);
    if (slots == NULL || data == NULL) fail("transfer", name, strerror(errno));
    for (unsigned index = 0; index < transfer->depth; ++index) {
        slots[index] = (struct slot){.pass = &pass, .data = data + index * transfer->block_bytes};
        send_one(&slots[index]);
    }
    wait_for_answers(&pass);
    if (transfer->writes) expect(front_end, nfs_fsync(context_of(front_end), pass.handle), "sync", name);
    expect(front_end, nfs_close(context_of(front_end), pass.handle), "close", name);
    free(slots);
    free(data);
    return pass.answered;
}
