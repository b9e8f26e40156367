/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip.h - the directory of a zip archive whose members are stored, not deflated: what torch.save writes. Pure.
 *
 * Read from the end: end record, its 64-bit twin, directory, and the local header of each member that is
 * wanted. Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 to 4.3.16, 4.5.3.
 */
#ifndef DTPI_CKPT_ZIP_H
#define DTPI_CKPT_ZIP_H

#include "base/buf.h"

enum {
    DTPI_ZIP_TAIL = 22 + 20 + 56,       /* the last bytes to look at, fewer where there are no more */
    DTPI_ZIP_LOCAL = 30,                /* bytes of a local header without name and extra */
    DTPI_ZIP_DIR_MAX = 256 << 20
};

/* Where the directory lies; `twin_at` is set where the 64-bit record has to be read for it first. */
typedef struct dtpi_zip_dir {
    uint64_t at, bytes, n;
    uint64_t twin_at;           /* 56 bytes; UINT64_MAX: none */
} dtpi_zip_dir;

typedef struct dtpi_zip_member {
    const char *name;           /* lent from the directory, not terminated */
    uint32_t name_bytes;
    uint64_t local_at;          /* of its local header */
    uint64_t bytes;
} dtpi_zip_member;

/*
 * `tail` are the last `n` bytes of an archive of `bytes` bytes, which has no comment. Errors: FORMAT (no
 * zip), TRUNCATED, UNSUPPORTED (several disks), LIMIT (directory).
 */
dtp_status dtpi_zip_end(const uint8_t *tail, size_t n, uint64_t bytes, const char *path,
                        dtpi_zip_dir *dir_out, dtp_error *err);
/* The same from the 56 bytes at `twin_at`. */
dtp_status dtpi_zip_twin(const uint8_t *twin, uint64_t bytes, const char *path, dtpi_zip_dir *dir,
                         dtp_error *err);

/*
 * The directory's next member; `*at` begins at 0. END behind the last. Errors: FORMAT, TRUNCATED, UNSUPPORTED
 * (compressed or encrypted).
 */
dtp_status dtpi_zip_next(const uint8_t *dir, const dtpi_zip_dir *d, uint64_t *at, uint64_t *i,
                         const char *path, dtpi_zip_member *out, dtp_error *err);

/* Where a member's data begins, from its local header's first DTPI_ZIP_LOCAL bytes. Errors: FORMAT. */
dtp_status dtpi_zip_data(const uint8_t *local, const dtpi_zip_dir *d, const dtpi_zip_member *member,
                         const char *path, uint64_t *at_out, dtp_error *err);

#endif /* DTPI_CKPT_ZIP_H */
