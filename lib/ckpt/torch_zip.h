/* SPDX-License-Identifier: Apache-2.0 */
/* torch_zip.h - one archive of torch.save within a file: its pickle, and where the bytes of tensors lie. */
#ifndef DTPI_CKPT_TORCH_ZIP_H
#define DTPI_CKPT_TORCH_ZIP_H

#include "ckpt/foreign.h"
#include "ckpt/pickle.h"
#include "ckpt/zip.h"

typedef struct dtpi_torch_zip {
    dtpi_foreign *f;            /* its file at hand holds the archive */
    uint32_t file;
    uint64_t base, bytes;       /* of the archive in the file */
    const char *path;           /* for messages */
    dtpi_zip_dir dir;
    dtpi_buf dir_bytes, members, pickle_bytes;
    size_t n_members;
    const char *prefix;         /* of every member, lent */
    uint32_t prefix_bytes;
    dtpi_pickle pickle;
} dtpi_torch_zip;

/*
 * Reads the directory and the pickle. Free `z` with dtpi_torch_zip_free, also after a failure. Errors: as
 * dtpi_zip_* and dtpi_pickle_read; UNSUPPORTED (big-endian).
 */
dtp_status dtpi_torch_zip_open(dtpi_torch_zip *z, dtpi_foreign *f, uint32_t file, uint64_t base,
                               uint64_t bytes, const char *path, dtp_error *err);
void dtpi_torch_zip_free(dtpi_torch_zip *z);

/* The record of a tensor or a parameter. */
bool dtpi_torch_is_tensor(const dtpi_pk_node *n);

/* A box of a tensor of which the archive's tensor is the content. */
typedef struct dtpi_torch_place {
    uint32_t name_at;
    const int64_t *shape, *offset;      /* NULL: it is the whole */
    const int64_t *extent;              /* what it must be; NULL: whatever it is */
    uint32_t n_dims;                    /* of those */
} dtpi_torch_place;

/*
 * Adds the box of tensor `n`, or several where its elements do not lie in one run. Errors: FORMAT, UNSUPPORTED
 * (type, scattered elements), those of dtpi_foreign_add.
 */
dtp_status dtpi_torch_add(dtpi_torch_zip *z, const dtpi_pk_node *n, const dtpi_torch_place *place,
                          dtp_error *err);

#endif /* DTPI_CKPT_TORCH_ZIP_H */
