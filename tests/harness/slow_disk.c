// Loaded before libc, it makes each fdatasync take longer, as on a disk whose cache is slow to empty: by the microseconds in
// TOMBOLO_SYNC_DELAY_US. Several at once wait at once.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int file) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    const char *delay_us = getenv("TOMBOLO_SYNC_DELAY_US");
    int result = real(file);
    if (delay_us != NULL) usleep((useconds_t)atoi(delay_us));
    return result;
}
