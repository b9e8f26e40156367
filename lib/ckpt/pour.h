/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pour.h - the data of a shard on its way to the file: chunk -> (encode) -> checksum -> write, several
 * chunks at once. The bytes of the file do not depend on how many threads take part.
 */
#ifndef DTPI_CKPT_POUR_H
#define DTPI_CKPT_POUR_H

#include <dtp/base.h>

#include "codec/codec.h"
#include "ctx/ctx.h"
#include "files/files.h"

typedef struct dtpi_pour_item dtpi_pour_item;

/* One box; its chunks lie in the file behind those of the item before. */
struct dtpi_pour_item {
    const uint8_t *data;
    uint64_t bytes;
    dtp_dtype dtype;
    /*
     * Optional: takes the place of dtpi_codec_store for chunk `i`; of codecs that encode alone. What it
     * stores may mean something else than the chunk; if so it is shorter. Several threads call it at once.
     */
    dtp_status (*store)(const dtpi_pour_item *item, uint64_t i, dtpi_codec *codec,
                        const uint8_t *data, size_t bytes, uint8_t *scratch,
                        const void **stored_out, size_t *n_out, dtp_error *err);
    void *user;                 /* of `store` */
};

typedef struct dtpi_pour {
    const dtp_allocator *a;
    dtp_ctx *ctx;               /* whose pool helps; NULL: the caller alone */
    dtpi_files *files;
    dtpi_file *file;
    uint64_t at;                /* in the file, of the first byte */
    const char *codec;
    uint32_t chunk_bytes;
    const dtpi_pour_item *items;
    size_t n_items;
    /* what comes out, per chunk, in order: dtpi_pour_chunks of them */
    uint64_t *sums;
    uint32_t *sizes;            /* stored bytes */
    uint64_t *plains;           /* sums of plain bytes; NULL: not wanted */
} dtpi_pour;

uint64_t dtpi_pour_chunks(const dtpi_pour *p);

/* Errors: UNSUPPORTED (codec), those of `write` and `store`, NOMEM. */
dtp_status dtpi_pour_run(const dtpi_pour *p, uint64_t *end_out, dtp_error *err);

#endif /* DTPI_CKPT_POUR_H */
