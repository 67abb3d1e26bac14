// A load generator for small durable writes: sync_load files FOLDER CLIENTS SECONDS
//                                            sync_load nbd SOCKET CLIENTS SECONDS
//
// Each client is a thread with a file of its own, or a volume of its own over an NBD connection of its own (exports
// `volume-0`, `volume-1`, ...). It writes 4 KiB somewhere in its first 4 MiB, syncs, and so on: fdatasync on a file, FLUSH on
// a volume. What it writes differs each time. Everything is written once beforehand, so that no time is spent on making room.
//
// Prints one line of JSON: pairs of write and sync a second, of all clients together, and how long a pair took.
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { block_bytes = 4096, block_count = 1024, clients_max = 256, samples_max = 1 << 20 };

// Of the NBD protocol.
enum { option_go = 7, reply_ack = 1, command_write = 1, command_disconnect = 2, command_flush = 3 };
static const uint64_t option_magic = UINT64_C(0x49484156454F5054);
static const uint32_t request_magic = 0x25609513;
static const uint32_t reply_magic = 0x67446698;

struct client {
    pthread_t thread;
    int file;
    bool is_nbd;
    uint64_t random;
    uint64_t cookie;
    uint32_t *latencies_us;
    uint64_t done;
};

struct __attribute__((packed)) request {
    uint32_t magic;
    uint16_t flags;
    uint16_t command;
    uint64_t cookie;
    uint64_t offset;
    uint32_t length;
};

struct __attribute__((packed)) reply {
    uint32_t magic;
    uint32_t error;
    uint64_t cookie;
};

static pthread_barrier_t begin;
static double ends_at;

_Noreturn static void fail(const char *what) {
    fprintf(stderr, "sync_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// xorshift64*.
static uint64_t drawn(struct client *client) {
    client->random ^= client->random >> 12;
    client->random ^= client->random << 25;
    client->random ^= client->random >> 27;
    return client->random * UINT64_C(0x2545F4914F6CDD1D);
}

static void receive(int file, void *buffer, size_t bytes) {
    if (bytes > 0 && recv(file, buffer, bytes, MSG_WAITALL) != (ssize_t)bytes) fail("receive");
}

static void transmit(int file, const struct iovec *parts, int count) {
    size_t bytes = 0;
    for (int part = 0; part < count; ++part) bytes += parts[part].iov_len;
    if (writev(file, parts, count) != (ssize_t)bytes) fail("send");
}

static void ask(struct client *client, uint16_t command, uint64_t offset, const void *data, uint32_t bytes) {
    struct request request = {htobe32(request_magic), 0, htobe16(command), ++client->cookie, htobe64(offset), htobe32(bytes)};
    struct iovec parts[] = {{&request, sizeof request}, {(void *)(uintptr_t)data, bytes}};
    transmit(client->file, parts, data == NULL ? 1 : 2);
    if (command == command_disconnect) return;
    struct reply reply;
    receive(client->file, &reply, sizeof reply);
    if (be32toh(reply.magic) != reply_magic || reply.cookie != client->cookie) fail("reply");
    if (reply.error != 0) {
        errno = (int)be32toh(reply.error);
        fail("request");
    }
}

static int connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) fail("socket's name");
    strcpy(address.sun_path, path);
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    if (file < 0 || connect(file, (struct sockaddr *)&address, sizeof address) != 0) fail(path);
    return file;
}

static int open_export(const char *path, const char *name) {
    int file = connect_to(path);
    unsigned char greeting[18];
    receive(file, greeting, sizeof greeting);
    uint32_t flags = htobe32(3);
    uint32_t length = (uint32_t)strlen(name);
    struct __attribute__((packed)) {
        uint64_t magic;
        uint32_t option, bytes, name_bytes;
    } go = {htobe64(option_magic), htobe32(option_go), htobe32(length + 6), htobe32(length)};
    uint16_t information_count = 0;
    struct iovec parts[] = {{&flags, sizeof flags}, {&go, sizeof go}, {(void *)(uintptr_t)name, length}, {&information_count, 2}};
    transmit(file, parts, 4);
    for (;;) {
        struct __attribute__((packed)) {
            uint64_t magic;
            uint32_t option, kind, bytes;
        } answer;
        char ignored[block_bytes];
        receive(file, &answer, sizeof answer);
        if (be32toh(answer.bytes) > sizeof ignored) fail(name);
        receive(file, ignored, be32toh(answer.bytes));
        if (be32toh(answer.kind) == reply_ack) return file;
        if (be32toh(answer.kind) & UINT32_C(1) << 31) fail(name);
    }
}

static void write_block(struct client *client, uint64_t block) {
    uint64_t data[block_bytes / sizeof(uint64_t)];
    for (size_t word = 0; word < sizeof data / sizeof *data; ++word) data[word] = drawn(client);
    if (client->is_nbd) {
        ask(client, command_write, block * block_bytes, data, block_bytes);
    } else if (pwrite(client->file, data, block_bytes, (off_t)(block * block_bytes)) != block_bytes) {
        fail("write");
    }
}

static void sync_all(struct client *client) {
    if (client->is_nbd) {
        ask(client, command_flush, 0, NULL, 0);
    } else if (fdatasync(client->file) != 0) {
        fail("fdatasync");
    }
}

static void *run(void *argument) {
    struct client *client = argument;
    for (uint64_t block = 0; block < block_count; ++block) write_block(client, block);
    sync_all(client);
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&begin);
    double begun = seconds_now();
    while (begun < ends_at) {
        write_block(client, drawn(client) % block_count);
        sync_all(client);
        double now = seconds_now();
        client->latencies_us[client->done++ % samples_max] = (uint32_t)((now - begun) * 1e6);
        begun = now;
    }
    if (client->is_nbd) ask(client, command_disconnect, 0, NULL, 0);
    close(client->file);
    return NULL;
}

static void open_client(struct client *client, int index, const char *where) {
    char name[block_bytes];
    if (client->is_nbd) {
        snprintf(name, sizeof name, "volume-%d", index);
        client->file = open_export(where, name);
    } else {
        snprintf(name, sizeof name, "%s/file-%d", where, index);
        client->file = open(name, O_RDWR | O_CREAT, 0600);
        if (client->file < 0) fail(name);
    }
    client->random = (uint64_t)(seconds_now() * 1e9) ^ (uint64_t)index << 48;
    client->latencies_us = calloc(samples_max, sizeof *client->latencies_us);
    if (client->latencies_us == NULL) fail("memory");
}

static int ascending(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static void print_figures(struct client *clients, int count, double seconds) {
    uint64_t done = 0, kept = 0;
    for (int index = 0; index < count; ++index) {
        done += clients[index].done;
        kept += clients[index].done < samples_max ? clients[index].done : samples_max;
    }
    if (kept == 0) fail("no pair was done");
    uint32_t *all = malloc(kept * sizeof *all);
    if (all == NULL) fail("memory");
    uint64_t filled = 0;
    for (int index = 0; index < count; ++index) {
        uint64_t own = clients[index].done < samples_max ? clients[index].done : samples_max;
        memcpy(all + filled, clients[index].latencies_us, own * sizeof *all);
        filled += own;
    }
    qsort(all, kept, sizeof *all, ascending);
    printf("{\"per_s\": %.1f, \"p50_us\": %u, \"p99_us\": %u}\n", (double)done / seconds, all[kept / 2], all[kept * 99 / 100]);
    free(all);
}

int main(int count, char **words) {
    static struct client clients[clients_max];
    int client_count = count == 5 ? atoi(words[3]) : 0;
    if (client_count < 1 || client_count > clients_max) {
        errno = EINVAL;
        fail("usage: see the head of its source");
    }
    pthread_barrier_init(&begin, NULL, (unsigned)client_count + 1);
    for (int index = 0; index < client_count; ++index) {
        clients[index].is_nbd = strcmp(words[1], "nbd") == 0;
        open_client(&clients[index], index, words[2]);
        if (pthread_create(&clients[index].thread, NULL, run, &clients[index]) != 0) fail("thread");
    }
    pthread_barrier_wait(&begin);
    double begun = seconds_now();
    ends_at = begun + strtod(words[4], NULL);
    pthread_barrier_wait(&begin);
    for (int index = 0; index < client_count; ++index) pthread_join(clients[index].thread, NULL);
    print_figures(clients, client_count, seconds_now() - begun);
    return 0;
}
