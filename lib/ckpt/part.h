/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part.h - the part file of a rank: where the stored bytes of each of its boxes lie, and their sums.
 *
 * The manifest says which boxes there are, a part where they are: in the rank's own shard, or in a file of
 * an earlier step. So the manifest stays small, rank 0 never hears of sums, and a load reads the parts of
 * the files it needs. The structs below lie in the file as in memory; docs/formats/ckpt.md.
 */
#ifndef DTPI_CKPT_PART_H
#define DTPI_CKPT_PART_H

#include "ckpt/manifest.h"
#include "files/files.h"

enum {
    DTPI_PART_VERSION = 1,
    DTPI_PART_MAX_CHAIN = 8,            /* bases of bases */
    DTPI_PART_TAIL = 8                  /* the XXH3 of all before */
};

#define DTPI_PART_MAX (4ull << 30)

/*
 * Stored bytes of a box or of a base. The first n_boxes ranges are the boxes of the rank, in the order in
 * which the manifest lists them; bases follow, and a base stands behind every range that uses it. Boxes of
 * equal content may have the same range; ranges of the own shard are equal in every number or disjoint.
 */
typedef struct dtpi_part_range {
    uint32_t file;              /* 0: the rank's own shard; k: files[k - 1] */
    uint32_t base;              /* index of a range; DTPI_NO_BASE: the stored bytes are the box's own */
    uint64_t begin, end;        /* behind the file's header */
    uint64_t sums_at;           /* a sum per chunk */
    uint64_t sizes_at;          /* stored bytes of each chunk; DTPI_NO_SIZES: as plain */
    uint64_t plain_at;          /* a sum per plain chunk; DTPI_NO_PLAIN: none are known */
} dtpi_part_range;

/* A shard of an earlier step. */
typedef struct dtpi_part_file {
    uint64_t step, bytes, header_bytes;
    uint32_t name_at, name_bytes;       /* in `text`, without a terminator */
} dtpi_part_file;

typedef struct dtpi_part_head {
    char magic[8];                      /* "dtp-part" */
    uint32_t version, chunk_bytes;
    uint64_t step, id;
    uint32_t rank, world_size;
    uint64_t n_boxes, n_ranges, n_sums, n_sizes;
    uint32_t n_files, text_bytes;
} dtpi_part_head;

/*
 * A part that grows. sums[0] is the header's sum of the shard; the sums of the chunks written to the shard
 * follow in the order in which they lie there, so that the shard's digest is the XXH3 of the first
 * 1 + n_own sums. Sums of other files come behind them.
 */
typedef struct dtpi_part {
    dtpi_part_head head;                /* counts are filled in by dtpi_part_write */
    dtpi_buf ranges, files, sums, sizes, text;
} dtpi_part;

void dtpi_part_init(dtpi_part *p, const dtp_allocator *a);
void dtpi_part_free(dtpi_part *p);
/* The bytes of the file. Errors: NOMEM (also when a buffer of `p` failed), LIMIT (longer than a reader takes). */
dtp_status dtpi_part_write(dtpi_part *p, dtpi_buf *out, dtp_error *err);

/* A part in memory: lent pointers into its bytes. */
typedef struct dtpi_part_view {
    const dtpi_part_head *head;
    const dtpi_part_range *ranges;
    const dtpi_part_file *files;
    const uint64_t *sums;
    const uint32_t *sizes;
    const char *text;
} dtpi_part_view;

/*
 * Looks at `bytes` bytes at `data` (aligned to 8): magic, sum, counts, and that every index points inside.
 * Errors: TRUNCATED, CORRUPT, VERSION, FORMAT.
 */
dtp_status dtpi_part_open(const void *data, size_t bytes, const char *path,
                          dtpi_part_view *view_out, dtp_error *err);

/*
 * Gives the boxes of file `file` their places and checks them: that the part is of this file, sums and
 * sizes, that ranges lie inside their files and those in the own shard tile it, lineage, chains.
 * Errors: FORMAT, NOMEM. Pointers to files, sums and sizes may move; boxes stay.
 */
dtp_status dtpi_part_place(dtpi_manifest *m, uint32_t file, const dtpi_part_view *view,
                           const char *path, dtp_error *err);

/*
 * Reads the part of a file of this step and places its boxes, once; nothing to do where they are placed
 * already. Not for several threads at once on one manifest. Errors: NOT_FOUND, IO, TRUNCATED, CORRUPT, and
 * those above.
 */
dtp_status dtpi_part_read(dtpi_files *files, const char *step_dir, dtpi_manifest *m, uint32_t file,
                          dtp_error *err);

#endif /* DTPI_CKPT_PART_H */
