// What is used of libnfs (version 4, soname 13), whose own header is in a package that only developers install.
#ifndef TOMBOLO_BENCH_LIBNFS_H
#define TOMBOLO_BENCH_LIBNFS_H

#include <stdint.h>

struct nfs_context;
struct nfsfh;
struct nfsdir;
struct nfsdirent;

struct nfs_url {
    char *server;
    char *path;
    char *file;
};

struct nfs_stat_64 {
    uint64_t fields[17];
};

typedef void (*nfs_cb)(int outcome, struct nfs_context *nfs, void *data, void *own);

struct nfs_context *nfs_init_context(void);
char *nfs_get_error(struct nfs_context *nfs);
struct nfs_url *nfs_parse_url_dir(struct nfs_context *nfs, const char *url);
void nfs_set_uid(struct nfs_context *nfs, int uid);
void nfs_set_gid(struct nfs_context *nfs, int gid);
int nfs_mount(struct nfs_context *nfs, const char *server, const char *export);
int nfs_get_fd(struct nfs_context *nfs);
int nfs_which_events(struct nfs_context *nfs);
int nfs_service(struct nfs_context *nfs, int events);

int nfs_open(struct nfs_context *nfs, const char *path, int flags, struct nfsfh **handle);
int nfs_create(struct nfs_context *nfs, const char *path, int flags, int mode, struct nfsfh **handle);
int nfs_close(struct nfs_context *nfs, struct nfsfh *handle);
int nfs_fsync(struct nfs_context *nfs, struct nfsfh *handle);
int nfs_pwrite(struct nfs_context *nfs, struct nfsfh *handle, uint64_t offset, uint64_t count, const void *data);
int nfs_pread_async(struct nfs_context *nfs, struct nfsfh *handle, uint64_t offset, uint64_t count, nfs_cb done,
                    void *own);
int nfs_pwrite_async(struct nfs_context *nfs, struct nfsfh *handle, uint64_t offset, uint64_t count, const void *data,
                     nfs_cb done, void *own);

int nfs_lstat64(struct nfs_context *nfs, const char *path, struct nfs_stat_64 *status);
int nfs_unlink(struct nfs_context *nfs, const char *path);
int nfs_rename(struct nfs_context *nfs, const char *from, const char *to);
int nfs_opendir(struct nfs_context *nfs, const char *path, struct nfsdir **directory);
struct nfsdirent *nfs_readdir(struct nfs_context *nfs, struct nfsdir *directory);
void nfs_closedir(struct nfs_context *nfs, struct nfsdir *directory);

#endif
