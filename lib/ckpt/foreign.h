/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign.h - checkpoints that others wrote, as a manifest without checksums over ranges of their files.
 *
 * A reader per format finds tensors and adds their pieces; what they must satisfy together (coverage,
 * types, ranges inside files) is proven once, in foreign.c. Only heads and indexes are read, never the data.
 */
#ifndef DTPI_CKPT_FOREIGN_H
#define DTPI_CKPT_FOREIGN_H

#include "ckpt/manifest.h"
#include "files/files.h"

/* A dense box of a tensor that lies in one range of one file. */
typedef struct dtpi_foreign_box {
    uint32_t name_at;           /* of the tensor, by dtpi_foreign_name */
    uint32_t file;              /* by dtpi_foreign_file */
    uint64_t begin;             /* in the file */
    const int64_t *shape;       /* of the tensor; NULL: as large as its boxes say */
    const int64_t *offset;      /* NULL: 0 */
    const int64_t *extent;
    uint32_t n_dims;
    dtp_dtype dtype;
} dtpi_foreign_box;

typedef struct dtpi_foreign {
    dtpi_files *files;          /* lent */
    const char *path;           /* as it was given, for messages; lent */
    char root[DTPI_PATH_MAX];
    dtpi_manifest m;
    dtpi_buf boxes;             /* what was added */
    dtpi_buf meta;              /* members of the metadata's object */
    dtpi_file *open;            /* the file at hand */
    uint32_t open_index;
    uint64_t n_runs;            /* boxes of scattered tensors so far */
} dtpi_foreign;

/*
 * What lies at `path`: a safetensors file, a folder of them with or without an index, a folder that
 * torch.distributed.checkpoint wrote, a torch.save zip. `m_out` names files relative to `root_out`.
 * Errors: NOT_FOUND, FORMAT (also: what is no checkpoint), TRUNCATED, CORRUPT (coverage), UNSUPPORTED
 * (a type, a class in a pickle, a way of storing), LIMIT, IO, PERM, NOMEM.
 */
dtp_status dtpi_foreign_open(dtpi_files *files, const char *path, dtpi_manifest *m_out,
                             char root_out[DTPI_PATH_MAX], dtp_error *err);

/* ---- for the readers ---- */

/*
 * Opens a file under the root, which becomes the one at hand. Errors: FORMAT (leads out of the root), those of
 * opening, NOMEM.
 */
dtp_status dtpi_foreign_file(dtpi_foreign *f, const char *name, uint32_t *file_out,
                             uint64_t *bytes_out, dtp_error *err);
/* Reads from the file at hand. */
dtp_status dtpi_foreign_read(dtpi_foreign *f, uint64_t at, void *data, size_t bytes,
                             dtp_error *err);
/* Keeps a tensor's name. Errors: LIMIT (empty, or more than 1023 bytes), FORMAT (NUL, no UTF-8), NOMEM. */
dtp_status dtpi_foreign_name(dtpi_foreign *f, const char *name, size_t bytes, uint32_t *at_out,
                             dtp_error *err);
/* Errors: UNSUPPORTED (dimensions), FORMAT (not inside its file), NOMEM. */
dtp_status dtpi_foreign_add(dtpi_foreign *f, const dtpi_foreign_box *box, dtp_error *err);
/* Appends "KEY": to the metadata; the caller appends the value to `meta`. */
void dtpi_foreign_meta(dtpi_foreign *f, const char *key);

/* The formats. `path` is for messages; the root is set. */
dtp_status dtpi_foreign_hf_index(dtpi_foreign *f, const char *index, dtp_error *err);
/* `names`: n sorted names, each with its NUL; `is_folder`: all there are, so no number of a series lacks. */
dtp_status dtpi_foreign_hf_files(dtpi_foreign *f, const char *names, size_t n, bool is_folder,
                                 dtp_error *err);
/* A file of torch.save. */
dtp_status dtpi_foreign_torch(dtpi_foreign *f, const char *name, dtp_error *err);
/* The folder of a `.metadata` file. */
dtp_status dtpi_foreign_dcp(dtpi_foreign *f, dtp_error *err);

#endif /* DTPI_CKPT_FOREIGN_H */
