/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs.h - small files of sysfs and procfs, of the live machine or below the folder of a recorded one.
 *
 * In a recorded machine nothing is read outside its folder: symbolic links are resolved inside it.
 * Only regular files are read, and never more than the caller's room.
 */
#ifndef DTPI_TOPO_FS_H
#define DTPI_TOPO_FS_H

#include <dirent.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/cpuset.h"

typedef struct dtpi_topo_fs {
    int root;                   /* descriptor of / or of the recorded machine */
    bool recorded;
    int trouble;                /* errno when memory or descriptors ran out: not all was read */
} dtpi_topo_fs;

/* `fsroot` NULL: the live machine. Errors: NOT_FOUND, PERM, IO; names the folder. */
dtp_status dtpi_topo_fs_open(dtpi_topo_fs *fs, const char *fsroot, dtp_error *err);
/*
 * Closes, and returns `st`, unless memory or descriptors ran out meanwhile: what could not be read for
 * that must not pass for what is not there. Errors: NOMEM, LIMIT.
 */
dtp_status dtpi_topo_fs_finish(dtpi_topo_fs *fs, dtp_status st, dtp_error *err);

/* Paths are printf formats without a leading slash. */

/* The file as terminated text without the final newline; false when it cannot be read. */
bool dtpi_topo_fs_text(dtpi_topo_fs *fs, char *text_out, size_t room, const char *fmt, ...)
    DTPI_PRINTF(4, 5);
/* Up to `room` bytes; -1 when the file cannot be read. */
ssize_t dtpi_topo_fs_bytes(dtpi_topo_fs *fs, void *data_out, size_t room, const char *fmt, ...)
    DTPI_PRINTF(4, 5);
bool dtpi_topo_fs_number(dtpi_topo_fs *fs, int64_t *out, const char *fmt, ...)
    DTPI_PRINTF(3, 4);
/* A list file ("0-3"), else the mask file that older kernels have; `mask` may be NULL. */
bool dtpi_topo_fs_cpus(dtpi_topo_fs *fs, dtpi_cpuset *out, const char *dir, const char *list,
                       const char *mask);
/* A folder to walk with readdir(), NULL when there is none; closedir() it. */
DIR *dtpi_topo_fs_dir(dtpi_topo_fs *fs, const char *fmt, ...) DTPI_PRINTF(2, 3);
bool dtpi_topo_fs_exists(dtpi_topo_fs *fs, const char *fmt, ...) DTPI_PRINTF(2, 3);
/* Last part of a symbolic link's target. */
bool dtpi_topo_fs_link(dtpi_topo_fs *fs, char *name_out, size_t room, const char *fmt, ...)
    DTPI_PRINTF(4, 5);

/* Next name of a folder that is not hidden; NULL at the end. */
const char *dtpi_topo_fs_next(DIR *dir);

static inline void dtpi_auto_dir(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}
#define DTPI_AUTO_DIR __attribute__((cleanup(dtpi_auto_dir)))

#endif /* DTPI_TOPO_FS_H */
