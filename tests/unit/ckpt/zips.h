/* SPDX-License-Identifier: Apache-2.0 */
/* zips.h - archives as torch.save makes them, byte by byte, so that each byte can be wrong. */
#ifndef DTP_TESTS_CKPT_ZIPS_H
#define DTP_TESTS_CKPT_ZIPS_H

#include "check.h"

#include "base/buf.h"
#include "files/mem.h"

typedef struct zip_maker {
    dtpi_buf out, dir;
    uint16_t n;
    bool is_wide;               /* with 64-bit numbers, as beyond 4 GiB */
} zip_maker;

static inline void put_le(dtpi_buf *b, uint64_t v, unsigned width)
{
    assert_true(dtpi_buf_append(b, &v, width));
}

static inline zip_maker zip_begin(void)
{
    return (zip_maker){ .out = dtpi_buf_init(&dtpi_malloc_allocator),
                        .dir = dtpi_buf_init(&dtpi_malloc_allocator) };
}

/* The field of 64-bit numbers: both sizes, and in the directory where the member is. */
static inline void put_wide(dtpi_buf *b, uint64_t bytes, uint64_t at, bool in_dir)
{
    put_le(b, 1, 2);
    put_le(b, in_dir ? 24 : 16, 2);
    put_le(b, bytes, 8);
    put_le(b, bytes, 8);
    if (in_dir)
        put_le(b, at, 8);
}

static inline void zip_put(zip_maker *z, const char *name, const void *data, size_t bytes)
{
    const size_t at = z->out.len, n = strlen(name);
    const uint64_t none = UINT32_MAX;

    put_le(&z->out, 0x04034b50, 4);
    put_le(&z->out, 0, 8);              /* version, flags, method, time */
    put_le(&z->out, 0, 6);              /* date, checksum */
    put_le(&z->out, z->is_wide ? none : bytes, 4);
    put_le(&z->out, z->is_wide ? none : bytes, 4);
    put_le(&z->out, n, 2);
    put_le(&z->out, z->is_wide ? 20 : 0, 2);
    dtpi_buf_append(&z->out, name, n);
    if (z->is_wide)
        put_wide(&z->out, bytes, at, false);
    dtpi_buf_append(&z->out, data, bytes);
    put_le(&z->dir, 0x02014b50, 4);
    put_le(&z->dir, 0, 8);              /* versions, flags, method */
    put_le(&z->dir, 0, 8);              /* time, date, checksum */
    put_le(&z->dir, z->is_wide ? none : bytes, 4);
    put_le(&z->dir, z->is_wide ? none : bytes, 4);
    put_le(&z->dir, n, 2);
    put_le(&z->dir, z->is_wide ? 28 : 0, 2);
    put_le(&z->dir, 0, 8);              /* comment, disk, attributes */
    put_le(&z->dir, 0, 2);
    put_le(&z->dir, z->is_wide ? none : at, 4);
    dtpi_buf_append(&z->dir, name, n);
    if (z->is_wide)
        put_wide(&z->dir, bytes, at, true);
    z->n++;
}

/* The 64-bit record of the directory, and where it is. */
static inline void put_twin(zip_maker *z, uint64_t dir_at)
{
    const size_t at = z->out.len;

    put_le(&z->out, 0x06064b50, 4);
    put_le(&z->out, 44, 8);
    put_le(&z->out, 0, 8);              /* versions, this disk */
    put_le(&z->out, 0, 4);
    put_le(&z->out, z->n, 8);
    put_le(&z->out, z->n, 8);
    put_le(&z->out, z->dir.len, 8);
    put_le(&z->out, dir_at, 8);
    put_le(&z->out, 0x07064b50, 4);
    put_le(&z->out, 0, 4);
    put_le(&z->out, at, 8);
    put_le(&z->out, 1, 4);
}

static inline void zip_end(zip_maker *z)
{
    const size_t at = z->out.len;

    dtpi_buf_append(&z->out, z->dir.data, z->dir.len);
    if (z->is_wide)
        put_twin(z, at);
    put_le(&z->out, 0x06054b50, 4);
    put_le(&z->out, 0, 4);
    put_le(&z->out, z->is_wide ? UINT16_MAX : z->n, 2);
    put_le(&z->out, z->is_wide ? UINT16_MAX : z->n, 2);
    put_le(&z->out, z->is_wide ? UINT32_MAX : z->dir.len, 4);
    put_le(&z->out, z->is_wide ? UINT32_MAX : at, 4);
    put_le(&z->out, 0, 2);
}

static inline void zip_free(zip_maker *z)
{
    dtpi_buf_free(&z->out);
    dtpi_buf_free(&z->dir);
}

static inline void put_bytes(dtpi_files *files, const char *path, const void *data, size_t bytes)
{
    dtpi_file *file = NULL;

    assert_ok(files->ops->create(files, path, bytes, &file, ERR));
    assert_ok(files->ops->write(file, 0, data, bytes, ERR));
    assert_ok(files->ops->close_file(file, ERR));
}

#endif /* DTP_TESTS_CKPT_ZIPS_H */
