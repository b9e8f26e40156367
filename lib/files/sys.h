/* SPDX-License-Identifier: Apache-2.0 */
/* sys.h - what the members over descriptors share: every operation through plain system calls. */
#ifndef DTPI_FILES_SYS_H
#define DTPI_FILES_SYS_H

#include <stdatomic.h>
#include <sys/types.h>

#include "files/files.h"

typedef struct dtpi_sys_file {
    dtpi_file base;
    int fd;                     /* through the page cache */
    uint64_t expected;          /* bytes the file was made for; 0: unknown */
    bool locked;
    /* set by a member that goes around the page cache */
    int direct_fd;              /* -1: none */
    uint32_t at_align, data_align;      /* what it asks of places in the file and in memory */
    atomic_bool is_cold;        /* a read found bytes that are not in the page cache */
} dtpi_sys_file;

void dtpi_sys_close(dtpi_files *files);
dtp_status dtpi_sys_create(dtpi_files *files, const char *path, uint64_t bytes,
                           dtpi_file **file_out, dtp_error *err);
dtp_status dtpi_sys_open(dtpi_files *files, const char *path, dtpi_file **file_out,
                         uint64_t *bytes_out, dtp_error *err);
dtp_status dtpi_sys_write(dtpi_file *file, uint64_t at, const void *data, size_t bytes,
                          dtp_error *err);
dtp_status dtpi_sys_read(dtpi_file *file, uint64_t at, void *data, size_t bytes, dtp_error *err);
dtp_status dtpi_sys_set_size(dtpi_file *file, uint64_t bytes, dtp_error *err);
dtp_status dtpi_sys_sync(dtpi_file *file, dtp_error *err);
dtp_status dtpi_sys_close_file(dtpi_file *file, dtp_error *err);
dtp_status dtpi_sys_publish(dtpi_files *files, const char *from, const char *to, bool replace,
                            dtp_error *err);
dtp_status dtpi_sys_sync_dir(dtpi_files *files, const char *path, dtp_error *err);
dtp_status dtpi_sys_make_dir(dtpi_files *files, const char *path, bool *made_out, dtp_error *err);
dtp_status dtpi_sys_list(dtpi_files *files, const char *path,
                         dtp_status (*each)(void *user, const char *name, dtp_error *err),
                         void *user, dtp_error *err);
dtp_status dtpi_sys_size(dtpi_files *files, const char *path, uint64_t *bytes_out, dtp_error *err);
dtp_status dtpi_sys_remove(dtpi_files *files, const char *path, dtp_error *err);
dtp_status dtpi_sys_remove_dir(dtpi_files *files, const char *path, dtp_error *err);
dtp_status dtpi_sys_lock(dtpi_files *files, const char *path, dtpi_file **file_out,
                         dtp_error *err);

/* Every mandatory operation but `create` and `open`, in a table of designated initialisers. */
#define DTPI_SYS_OPS                                                                                \
    .close = dtpi_sys_close, .write = dtpi_sys_write, .read = dtpi_sys_read,                        \
    .set_size = dtpi_sys_set_size, .sync = dtpi_sys_sync, .close_file = dtpi_sys_close_file,        \
    .publish = dtpi_sys_publish, .sync_dir = dtpi_sys_sync_dir, .make_dir = dtpi_sys_make_dir,      \
    .list = dtpi_sys_list, .size = dtpi_sys_size, .remove = dtpi_sys_remove,                        \
    .remove_dir = dtpi_sys_remove_dir, .lock = dtpi_sys_lock

/* open, again when a signal came; -1 with errno. */
int dtpi_sys_open_fd(const char *path, int flags, mode_t mode);
/* The failure in errno of a write at `at` that left `left` bytes; a full disk says how many are missing. */
dtp_status dtpi_sys_fail_write(const dtpi_sys_file *f, uint64_t at, size_t left, dtp_error *err);

#endif /* DTPI_FILES_SYS_H */
