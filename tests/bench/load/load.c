// A load generator: load nfs|local WHERE names COUNT
//                   load nfs|local WHERE files COUNT BYTES stable|cached
//                   load nfs       WHERE data FILE read|write random|sequential BLOCK_BYTES DEPTH FILE_BYTES SECONDS
//
// Says "ready" once it is connected, begins when a line comes on its standard input, and prints what it measured as one
// line of JSON. Times are of the monotonic clock, which all processes of the machine share.
#include "front_end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { entry_bytes = 64 };

// How long what a kernel knows of names and attributes may be used unasked; after it, each status is a question.
static const double kernel_cache_s = 1.1;
static const double list_seconds_min = 0.3;

_Noreturn void fail(const char *what, const char *name, const char *why) {
    fprintf(stderr, "load: %s %s: %s\n", what, name, why);
    exit(1);
}

double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// xorshift64*: enough for data that no compressor shrinks.
void fill_unique(void *buffer, size_t bytes, uint64_t *state) {
    unsigned char *at = buffer;
    for (size_t done = 0; done < bytes; done += sizeof(uint64_t)) {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        uint64_t drawn = *state * UINT64_C(0x2545F4914F6CDD1D);
        size_t rest = bytes - done < sizeof drawn ? bytes - done : sizeof drawn;
        memcpy(at + done, &drawn, rest);
    }
}

static uint64_t number(const char *text) {
    char *end = NULL;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text || *end != '\0') fail("number", text, "malformed");
    return value;
}

static void wait_for_start(void) {
    char line[entry_bytes];
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) fail("start", "", "nobody gave the word");
}

static const char *entry(const char *prefix, uint64_t index) {
    static char names[2][entry_bytes];
    static unsigned turn;
    char *name = names[turn++ % 2];
    snprintf(name, entry_bytes, "%s%06llu", prefix, (unsigned long long)index);
    return name;
}

// The rate of one call on each of `count` names.
static double rate_of(struct front_end *front_end, uint64_t count, void (*call)(struct front_end *, const char *),
                      const char *prefix) {
    double begun = seconds_now();
    for (uint64_t index = 0; index < count; ++index) call(front_end, entry(prefix, index));
    return (double)count / (seconds_now() - begun);
}

static double rate_of_rename(struct front_end *front_end, uint64_t count) {
    double begun = seconds_now();
    for (uint64_t index = 0; index < count; ++index) front_end->calls->rename(front_end, entry("a", index), entry("b", index));
    return (double)count / (seconds_now() - begun);
}

static double rate_of_list(struct front_end *front_end, uint64_t count) {
    double begun = seconds_now();
    long listed = 0;
    do {
        long found = front_end->calls->list(front_end);
        if (found < (long)count) fail("list", ".", "names are missing");
        listed += found;
    } while (seconds_now() - begun < list_seconds_min);
    return (double)listed / (seconds_now() - begun);
}

static void measure_names(struct front_end *front_end, uint64_t count) {
    double create = rate_of(front_end, count, front_end->calls->create, "a");
    nanosleep(&(struct timespec){.tv_sec = (time_t)kernel_cache_s,
                                 .tv_nsec = (long)((kernel_cache_s - (double)(time_t)kernel_cache_s) * 1e9)}, NULL);
    double status = rate_of(front_end, count, front_end->calls->status, "a");
    double list = rate_of_list(front_end, count);
    double rename = rate_of_rename(front_end, count);
    double remove = rate_of(front_end, count, front_end->calls->remove, "b");
    printf("{\"create\": %.2f, \"stat\": %.2f, \"readdir\": %.2f, \"rename\": %.2f, \"unlink\": %.2f}\n", create, status,
           list, rename, remove);
}

// Files are removed afterwards, outside the measured time.
static void measure_files(struct front_end *front_end, uint64_t count, size_t bytes, bool stable) {
    unsigned char *data = malloc(bytes);
    if (data == NULL) fail("files", "", "no memory");
    uint64_t state = (uint64_t)(seconds_now() * 1e9) ^ ((uint64_t)getpid() << 40);
    double begun = seconds_now();
    for (uint64_t index = 0; index < count; ++index) {
        fill_unique(data, bytes, &state);
        front_end->calls->store(front_end, entry("s", index), data, bytes, stable);
    }
    double ended = seconds_now();
    printf("{\"begun\": %.6f, \"ended\": %.6f}\n", begun, ended);
    for (uint64_t index = 0; index < count; ++index) front_end->calls->remove(front_end, entry("s", index));
    free(data);
}

static void measure_data(struct front_end *front_end, const char *name, const struct transfer *transfer) {
    double begun = seconds_now();
    uint64_t requests = nfs_transfer(front_end, name, transfer);
    double per_s = (double)requests / (seconds_now() - begun);
    printf("{\"iops\": %.2f, \"mib_s\": %.3f}\n", per_s, per_s * (double)transfer->block_bytes / (1 << 20));
}

int main(int count, char **words) {
    if (count < 5) fail("usage", words[0], "see the head of its source");
    bool nfs = strcmp(words[1], "nfs") == 0;
    struct front_end *front_end = nfs ? open_nfs_front_end(words[2]) : open_local_front_end(words[2]);
    wait_for_start();
    if (count == 5 && strcmp(words[3], "names") == 0) {
        measure_names(front_end, number(words[4]));
    } else if (count == 7 && strcmp(words[3], "files") == 0) {
        measure_files(front_end, number(words[4]), number(words[5]), strcmp(words[6], "stable") == 0);
    } else if (nfs && count == 11 && strcmp(words[3], "data") == 0) {
        measure_data(front_end, words[4], &(struct transfer){
            .writes = strcmp(words[5], "write") == 0,
            .random = strcmp(words[6], "random") == 0,
            .block_bytes = number(words[7]),
            .depth = (unsigned)number(words[8]),
            .file_bytes = number(words[9]),
            .seconds_max = strtod(words[10], NULL),
        });
    } else {
        fail("usage", words[3], "see the head of its source");
    }
    return 0;
}
