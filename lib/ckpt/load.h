/* SPDX-License-Identifier: Apache-2.0 */
/* load.h - an open checkpoint: reads boxes, verifies everything. */
#ifndef DTPI_CKPT_LOAD_H
#define DTPI_CKPT_LOAD_H

#include "codec/codec.h"
#include "ckpt/manifest.h"
#include "ctx/ctx.h"
#include "files/files.h"

typedef struct dtpi_fetch dtpi_fetch;

/* Files that stay open: a process may have 1024 descriptors, and a file two of them. */
enum { DTPI_LOAD_FILES = 128 };

typedef struct dtpi_load {
    const dtp_allocator *a;
    dtp_ctx *ctx;               /* whose pool helps; NULL (unless it is set after opening): nobody's */
    dtpi_files *files;          /* lent */
    char dir[DTPI_PATH_MAX], step_dir[DTPI_PATH_MAX];
    dtpi_manifest m;
    dtpi_buf open;              /* dtpi_file *: a slot per file of the manifest */
    uint32_t n_open;
    uint64_t own_bytes;         /* of the step's own shards; any thread may ask, also during a read */
    dtp_ckpt_checks checks;
    size_t buffer_bytes;        /* of the largest chunk */
    dtpi_fetch *fetch;          /* made for the first read */
    struct dtpi_share *share;   /* with other ranks of the node; NULL: with none. Its owner frees it */
} dtpi_load;

/* Errors: as dtpi_step_read, UNSUPPORTED (codec), NOMEM. */
dtp_status dtpi_load_open(const dtp_allocator *a, dtpi_files *files, const char *dir, uint64_t step,
                          dtpi_load **load_out, dtp_error *err);
/* Of files under `root` that `m_take` tells of, which becomes the load's also on failure. */
dtp_status dtpi_load_adopt(const dtp_allocator *a, dtpi_files *files, const char *root,
                           dtpi_manifest *m_take, dtpi_load **load_out, dtp_error *err);
/* Whatever lies at `path`: a step's folder, or what foreign.h knows. Errors: as dtp_ckpt_open_path. */
dtp_status dtpi_load_open_path(const dtp_allocator *a, dtpi_files *files, const char *path,
                               dtpi_load **load_out, dtp_error *err);
void dtpi_load_close(dtpi_load *l);
DTPI_DEFINE_AUTO(load, dtpi_load, dtpi_load_close);

/* As dtp_ckpt_read, for tensors of the library's own size. */
dtp_status dtpi_load_read_all(dtpi_load *l, const dtp_ckpt_tensor *tensors, size_t n,
                              dtp_error *err);
dtp_status dtpi_load_read(dtpi_load *l, const dtp_ckpt_tensor *t, dtp_error *err);

/* As dtp_ckpt_verify. */
dtp_status dtpi_load_verify(dtpi_load *l,
                            void (*progress)(void *user, uint64_t done, uint64_t total), void *user,
                            dtp_error *err);

/*
 * Reads the part of file `i`, once, so that its boxes' places are known: before anything but the dimensions
 * of a box is looked at. Pointers to files of the manifest may move. Errors: as dtpi_part_read,
 * UNSUPPORTED.
 */
dtp_status dtpi_load_place(dtpi_load *l, uint32_t i, dtp_error *err);

/* The file of index `i`, opened once; its size is checked. */
dtp_status dtpi_load_file(dtpi_load *l, uint32_t i, dtpi_file **file_out, dtp_error *err);

/* So many are open that it is time to end what is under way and close them. */
static inline bool dtpi_load_is_full(const dtpi_load *l)
{
    return l->n_open >= DTPI_LOAD_FILES;
}
/* Closes all files; nothing that reads them is under way. */
void dtpi_load_close_files(dtpi_load *l);

/* CORRUPT: what is wrong with a chunk; names file, tensor and chunk, and the step unless it is this one. */
dtp_status dtpi_load_bad_chunk(const dtpi_load *l, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                               uint64_t chunk, const char *what, dtp_error *err);

/* What a codec said of a chunk: the same, unless memory was what it lacked (NOMEM). */
dtp_status dtpi_load_not_decoded(const dtpi_load *l, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                                 uint64_t chunk, const dtp_error *why, dtp_error *err);

/*
 * Reads the stored bytes of a chunk into `stored` and compares them with their sum; `stored_at` is where
 * they begin in the box.
 */
dtp_status dtpi_load_stored(dtpi_load *l, const dtpi_mf_tensor *t, const dtpi_mf_box *b,
                            uint64_t chunk, uint64_t stored_at, size_t bytes, void *stored,
                            dtp_error *err);

#endif /* DTPI_CKPT_LOAD_H */
