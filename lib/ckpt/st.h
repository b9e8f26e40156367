/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st.h - the safetensors header: a strict reader without a tree, and a writer. Pure.
 *
 * Source: https://github.com/huggingface/safetensors, README "Format" and safetensors/src/tensor.rs.
 */
#ifndef DTPI_CKPT_ST_H
#define DTPI_CKPT_ST_H

#include "base/buf.h"

enum {
    DTPI_ST_MAX_HEADER = 100000000,     /* the reference reader's limit */
    DTPI_ST_MAX_DIMS = 64,
    DTPI_ST_ALIGN = 4096                /* data begins at a multiple, for direct I/O */
};

/* One of the format's number types. */
typedef struct dtpi_st_type {
    const char *name;
    uint32_t bits;
    dtp_dtype dtype;
} dtpi_st_type;

/* By name, length-counted; NULL when there is none such. */
const dtpi_st_type *dtpi_st_type_find(const char *name, size_t bytes);
const dtpi_st_type *dtpi_st_type_of(dtp_dtype dtype);

typedef struct dtpi_st_entry {
    uint32_t name_at, name_bytes;       /* in `names` */
    uint32_t dims_at;                   /* in `dims` */
    uint8_t n_dims;
    uint8_t type;                       /* index for dtpi_st_entry_type */
    uint64_t begin, end;                /* of its bytes, counted from the end of the header */
} dtpi_st_entry;

typedef struct dtpi_st {
    const dtp_allocator *a;
    dtpi_buf entries;                   /* dtpi_st_entry, in order of names */
    dtpi_buf dims;                      /* uint64_t */
    dtpi_buf names;
    dtpi_buf meta;                      /* key NUL value NUL ... */
    size_t n;
    uint64_t data_bytes;
} dtpi_st;

/*
 * The length at the start of a file of `file_bytes` bytes: how long the header behind it is, bounded by
 * what the file can hold. Errors: TRUNCATED, LIMIT.
 */
dtp_status dtpi_st_header_bytes(const uint8_t prefix[8], uint64_t file_bytes, const char *path,
                                uint64_t *bytes_out, dtp_error *err);

/*
 * Reads the JSON of a header; `data_bytes` is what follows it in the file. Everything is checked: types,
 * shapes against sizes, duplicates, overlaps, gaps, bytes missing or left over. Free `st_out` with
 * dtpi_st_free. Errors: FORMAT, TRUNCATED, NOMEM; the text names `path`.
 */
dtp_status dtpi_st_read(const dtp_allocator *a, const char *header, size_t bytes,
                        uint64_t data_bytes, const char *path, dtpi_st *st_out, dtp_error *err);
void dtpi_st_free(dtpi_st *st);

const dtpi_st_entry *dtpi_st_get(const dtpi_st *st, size_t i);
const char *dtpi_st_name(const dtpi_st *st, const dtpi_st_entry *e);
const uint64_t *dtpi_st_dims(const dtpi_st *st, const dtpi_st_entry *e);
const dtpi_st_type *dtpi_st_entry_type(const dtpi_st_entry *e);
/* NULL when it is not there. */
const dtpi_st_entry *dtpi_st_find(const dtpi_st *st, const char *name, size_t bytes);
/* Value of a key of __metadata__; NULL when it is not there. */
const char *dtpi_st_meta(const dtpi_st *st, const char *key);

/*
 * Writing: begin, the metadata (any number), the tensors, end. The text grows in `b`, its first 8 bytes
 * are the length.
 */
void dtpi_st_write_begin(dtpi_buf *b);
void dtpi_st_write_meta(dtpi_buf *b, const char *key, const char *value, size_t bytes);
void dtpi_st_write_tensor(dtpi_buf *b, const char *name, size_t name_bytes, const char *type,
                          uint32_t n_dims, const int64_t *dims, uint64_t begin, uint64_t end);
/* Pads to `total` bytes (0: the next multiple of DTPI_ST_ALIGN). Errors: LIMIT, NOMEM. */
dtp_status dtpi_st_write_end(dtpi_buf *b, size_t total, dtp_error *err);

#endif /* DTPI_CKPT_ST_H */
