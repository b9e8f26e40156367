/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h - what a complete step holds: files, tensors, boxes, checksums. Pure; docs/formats/ckpt.md.
 *
 * One struct for writer and reader; flat arrays, addressed by index, texts and numbers in pools.
 */
#ifndef DTPI_CKPT_MANIFEST_H
#define DTPI_CKPT_MANIFEST_H

#include <dtp/ckpt.h>

#include "base/buf.h"

enum {
    DTPI_MANIFEST_VERSION = 2,          /* what is written; 1 is read */
    DTPI_LINEAGE_MAX = 16,
    DTPI_CHUNK_MIN = 4096,
    DTPI_CHUNK_MAX = 1 << 30,
    DTPI_CHUNK_DEFAULT = 1 << 20
};
#define DTPI_MANIFEST_MAX (4ull << 30)
#define DTPI_NO_SIZES UINT64_MAX
#define DTPI_NO_SUMS UINT64_MAX         /* files of others: no sums are known */
#define DTPI_NO_BASE UINT32_MAX
#define DTPI_NO_PLAIN 0                 /* the first sum is never a chunk's */
#define DTPI_CHUNK_ALONE (1u << 31)     /* in a size: the chunk has no base though its box has */
#define DTPI_NO_PART UINT32_MAX

/*
 * A file with stored bytes: a shard of this step, or one of an earlier step that a part refers to (those
 * come behind the step's own, when the part was read).
 */
typedef struct dtpi_mf_file {
    uint32_t name_at;           /* dtpi_mf_file_name */
    uint32_t part_at;           /* name of its part, in `text`; DTPI_NO_PART: none is needed */
    int32_t rank;
    uint32_t n_boxes;           /* that this file's rank wrote: order[first_box ..] */
    uint64_t first_box;
    uint64_t step;              /* in whose folder it lies */
    uint64_t bytes, header_bytes, header_sum, digest;
    uint64_t part_bytes, part_sum;
    bool placed;                /* its boxes' places are known */
    bool is_far;                /* of an earlier step: its name is in `far` */
} dtpi_mf_file;

typedef struct dtpi_mf_tensor {
    uint32_t name_at, name_bytes;
    uint8_t dtype, n_dims;
    uint64_t dims_at;           /* its shape in `dims` */
    uint64_t first_box;
    uint32_t n_boxes;
} dtpi_mf_tensor;

/*
 * A box. Its dimensions and `home` are in the manifest; the rest, its place, comes from the part of its
 * home (dtpi_part_read) unless that file is `placed` already.
 */
typedef struct dtpi_mf_box {
    uint32_t home;              /* the file of the rank that wrote it */
    uint32_t key_at;            /* its name in that file, in `text` */
    uint64_t dims_at;           /* offset, then extent, in `dims` */
    uint32_t file;              /* where its stored bytes lie */
    uint32_t base;              /* in `base_buf`: what its plain bytes are XORed with; DTPI_NO_BASE */
    uint64_t begin, end;        /* of its stored bytes behind the file's header */
    uint64_t sums_at;           /* a sum per chunk, in `sums`; DTPI_NO_SUMS: none are known */
    uint64_t sizes_at;          /* stored bytes of each chunk, in `sizes`; DTPI_NO_SIZES: as plain */
    uint64_t plain_at;          /* a sum per plain chunk, in `sums`; DTPI_NO_PLAIN: none are known */
    uint64_t n_chunks;
} dtpi_mf_box;

typedef struct dtpi_manifest {
    const dtp_allocator *a;
    const char *format;         /* static; NULL: our own, else what foreign.h found */
    uint64_t step, id;
    uint32_t version;
    uint32_t world_size, attempt, generation, chunk_bytes;
    uint32_t n_own_files;       /* files of this step; after the check */
    bool has_parent;
    uint64_t parent;            /* the step this one was saved after */
    uint32_t n_lineage;
    uint64_t lineage[DTPI_LINEAGE_MAX]; /* steps whose files hold bytes of this one */
    char codec[16];
    dtpi_buf meta;              /* the caller's JSON object, terminated */
    dtpi_buf file_buf, tensor_buf, box_buf;
    dtpi_buf base_buf;          /* dtpi_mf_box: bases, which are boxes of no tensor of their own */
    dtpi_buf order;             /* uint32_t: boxes by home, then as listed; after the check */
    dtpi_buf dims;              /* int64_t */
    dtpi_buf sums;              /* uint64_t */
    dtpi_buf sizes;             /* uint32_t */
    dtpi_buf text;              /* stays where it is after the check: names of tensors are lent */
    dtpi_buf far;               /* names of files of earlier steps, which parts bring */
} dtpi_manifest;

/* Errors: NOMEM. Free it, also after a failure. */
dtp_status dtpi_manifest_init(dtpi_manifest *m, const dtp_allocator *a, dtp_error *err);
void dtpi_manifest_free(dtpi_manifest *m);

#define DTPI_MF_GET(type, buf, i) ((const type *)(const void *)(buf).data + (i))
static inline size_t dtpi_mf_n_files(const dtpi_manifest *m)
{
    return m->file_buf.len / sizeof(dtpi_mf_file);
}
static inline size_t dtpi_mf_n_tensors(const dtpi_manifest *m)
{
    return m->tensor_buf.len / sizeof(dtpi_mf_tensor);
}
static inline size_t dtpi_mf_n_boxes(const dtpi_manifest *m)
{
    return m->box_buf.len / sizeof(dtpi_mf_box);
}
static inline const dtpi_mf_file *dtpi_mf_file_at(const dtpi_manifest *m, size_t i)
{
    return DTPI_MF_GET(dtpi_mf_file, m->file_buf, i);
}
static inline const dtpi_mf_tensor *dtpi_mf_tensor_at(const dtpi_manifest *m, size_t i)
{
    return DTPI_MF_GET(dtpi_mf_tensor, m->tensor_buf, i);
}
static inline const dtpi_mf_box *dtpi_mf_box_at(const dtpi_manifest *m, size_t i)
{
    return DTPI_MF_GET(dtpi_mf_box, m->box_buf, i);
}
static inline const dtpi_mf_box *dtpi_mf_base_at(const dtpi_manifest *m, size_t i)
{
    return DTPI_MF_GET(dtpi_mf_box, m->base_buf, i);
}
static inline const int64_t *dtpi_mf_dims(const dtpi_manifest *m, uint64_t at)
{
    return DTPI_MF_GET(int64_t, m->dims, at);
}
static inline const char *dtpi_mf_text(const dtpi_manifest *m, uint32_t at)
{
    return (const char *)m->text.data + at;
}
static inline const char *dtpi_mf_file_name(const dtpi_manifest *m, const dtpi_mf_file *f)
{
    return (const char *)(f->is_far ? m->far : m->text).data + f->name_at;
}
static inline uint64_t dtpi_mf_sum(const dtpi_manifest *m, const dtpi_mf_box *b, uint64_t chunk)
{
    return *DTPI_MF_GET(uint64_t, m->sums, b->sums_at + chunk);
}
/* Plain bytes of a box; valid after the manifest was checked. */
uint64_t dtpi_mf_box_bytes(const dtpi_manifest *m, const dtpi_mf_tensor *t, const dtpi_mf_box *b);
/* Plain bytes of chunk `i` of `bytes`. */
uint32_t dtpi_mf_chunk_bytes(const dtpi_manifest *m, uint64_t bytes, uint64_t i);
/* Stored bytes of chunk `i` of a box with `bytes` plain bytes. */
uint32_t dtpi_mf_stored_bytes(const dtpi_manifest *m, const dtpi_mf_box *b, uint64_t bytes,
                              uint64_t i);

/* The sums and sizes of a box are possible and add up to its bytes. Errors: FORMAT. */
dtp_status dtpi_mf_check_chunks(const dtpi_manifest *m, const dtpi_mf_box *b, uint64_t bytes,
                                const char *path, const char *name, dtp_error *err);

/* The tensor that box `i` of box_buf belongs to; version 2. */
const dtpi_mf_tensor *dtpi_mf_tensor_of(const dtpi_manifest *m, uint32_t i);

/* Index of a tensor; false when it is not there. */
bool dtpi_mf_find(const dtpi_manifest *m, const char *name, uint32_t *i_out);

/* The text of version 2 with its checksum, into `out`. Errors: NOMEM, LIMIT (longer than a reader takes). */
dtp_status dtpi_manifest_write(const dtpi_manifest *m, dtpi_buf *out, dtp_error *err);

/*
 * Reads and checks everything that can be checked without the files: checksum, fields, boxes inside
 * tensors, coverage; in version 1 also sums and sizes and the tiling of each file, which version 2 has in
 * the parts. `path` is for messages.
 * Errors: TRUNCATED, CORRUPT, FORMAT, VERSION, LIMIT (boxes of a tensor), NOMEM.
 */
dtp_status dtpi_manifest_read(const dtp_allocator *a, const char *text, size_t bytes,
                              const char *path, dtpi_manifest *m_out, dtp_error *err);

/* The second half of reading: what the numbers must satisfy together. */
dtp_status dtpi_manifest_check(dtpi_manifest *m, const char *path, dtp_error *err);

/* A caller's metadata is one JSON object. Errors: FORMAT. */
dtp_status dtpi_manifest_check_meta(const char *json, dtp_error *err);

/* ,"checksum":"0123456789abcdef"}\n: the last bytes of every manifest; the sum is of all before them. */
enum { DTPI_MANIFEST_TAIL = 32 };

#endif /* DTPI_CKPT_MANIFEST_H */
