// One client of one file system, whatever the way in: what the workloads need of it and nothing more.
//
// A front_end stands in one directory; every name is one of that directory, so that each call is as few requests as its
// protocol allows. A call that fails ends the program with a message: a measurement with errors in it is none.
#ifndef TOMBOLO_BENCH_FRONT_END_H
#define TOMBOLO_BENCH_FRONT_END_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct front_end;

struct front_end_calls {
    void (*create)(struct front_end *front_end, const char *name);
    void (*status)(struct front_end *front_end, const char *name);
    // Reads the whole directory and returns how many names it has, "." and ".." among them.
    long (*list)(struct front_end *front_end);
    void (*rename)(struct front_end *front_end, const char *from, const char *to);
    void (*remove)(struct front_end *front_end, const char *name);
    // Creates a file, writes it and closes it; with `stable` it is on stable storage when the call returns.
    void (*store)(struct front_end *front_end, const char *name, const void *data, size_t bytes, bool stable);
};

struct front_end {
    const struct front_end_calls *calls;
};

// One pass of requests of one size over a file, `depth` of them in flight.
struct transfer {
    bool writes;
    bool random;
    size_t block_bytes;
    unsigned depth;
    uint64_t file_bytes;
    double seconds_max;
};

struct front_end *open_local_front_end(const char *folder);
struct front_end *open_nfs_front_end(const char *url);

// Transfers until the time is over or every block was met once, and what was written is on stable storage. Returns the
// number of requests. Only for NFS: on a local file system fio does this.
uint64_t nfs_transfer(struct front_end *front_end, const char *name, const struct transfer *transfer);

_Noreturn void fail(const char *what, const char *name, const char *why);
double seconds_now(void);
// Fills a buffer with bytes that neither compress nor repeat, from a state that the caller keeps.
void fill_unique(void *buffer, size_t bytes, uint64_t *state);

#endif
