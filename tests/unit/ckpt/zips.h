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

static inline void zip_put(zip_maker *z, const char *name, const void *data, size_t bytes)
{
    const size_t at = z->out.len, n = strlen(name);

    put_le(&z->out, 0x04034b50, 4);
    put_le(&z->out, 0, 8);              /* version, flags, method, time */
    put_le(&z->out, 0, 6);              /* date, checksum */
    put_le(&z->out, bytes, 4);
    put_le(&z->out, bytes, 4);
    put_le(&z->out, n, 2);
    put_le(&z->out, 0, 2);
    dtpi_buf_append(&z->out, name, n);
    dtpi_buf_append(&z->out, data, bytes);
    put_le(&z->dir, 0x02014b50, 4);
    put_le(&z->dir, 0, 8);              /* versions, flags, method */
    put_le(&z->dir, 0, 8);              /* time, date, checksum */
    put_le(&z->dir, bytes, 4);
    put_le(&z->dir, bytes, 4);
    put_le(&z->dir, n, 2);
    put_le(&z->dir, 0, 8);              /* extra, comment, disk, attributes */
    put_le(&z->dir, 0, 4);
    put_le(&z->dir, at, 4);
    dtpi_buf_append(&z->dir, name, n);
    z->n++;
}

static inline void zip_end(zip_maker *z)
{
    const size_t at = z->out.len;

    dtpi_buf_append(&z->out, z->dir.data, z->dir.len);
    put_le(&z->out, 0x06054b50, 4);
    put_le(&z->out, 0, 4);
    put_le(&z->out, z->n, 2);
    put_le(&z->out, z->n, 2);
    put_le(&z->out, z->dir.len, 4);
    put_le(&z->out, at, 4);
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
