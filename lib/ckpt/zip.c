/* SPDX-License-Identifier: Apache-2.0 */
/* zip.c - every number is compared with what is there before it is used; members lie before the directory. */
#include "ckpt/zip.h"

#include <inttypes.h>

#include "base/text.h"

enum { END = 22, LOCATOR = 20, TWIN = 56, ENTRY = 46 };
enum { SIG_END = 0x06054b50, SIG_LOCATOR = 0x07064b50, SIG_TWIN = 0x06064b50 };
enum { SIG_ENTRY = 0x02014b50, SIG_LOCAL = 0x04034b50, EXTRA_64 = 1, ENCRYPTED = 1 };

static uint64_t number(const uint8_t *p, unsigned width)
{
    uint64_t v = 0;

    for (unsigned i = width; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static dtp_status bad(const char *path, const char *what, dtp_error *err)
{
    return dtpi_fail(err, DTP_ERR_FORMAT, "%s: zip: %s", path, what);
}

static dtp_status check_dir(const dtpi_zip_dir *d, uint64_t bytes, const char *path, dtp_error *err)
{
    uint64_t end = 0;

    if (__builtin_add_overflow(d->at, d->bytes, &end) || end > bytes - END)
        return bad(path, "its directory lies outside the file", err);
    if (d->bytes > DTPI_ZIP_DIR_MAX)
        return dtpi_fail(err, DTP_ERR_LIMIT, "%s: zip: a directory of %" PRIu64 " bytes", path,
                         d->bytes);
    if (d->n > d->bytes / ENTRY)
        return bad(path, "it claims more members than its directory can hold", err);
    return DTP_OK;
}

dtp_status dtpi_zip_end(const uint8_t *tail, size_t n, uint64_t bytes, const char *path,
                        dtpi_zip_dir *dir_out, dtp_error *err)
{
    if (n < END || number(tail + n - END, 4) != SIG_END)
        return bad(path, "no end record at the end of the file (cut, or no zip)", err);
    const uint8_t *e = tail + n - END;
    dtpi_zip_dir d = { number(e + 16, 4), number(e + 12, 4), number(e + 10, 2), UINT64_MAX };

    if (number(e + 20, 2) != 0)
        return bad(path, "it has a comment", err);
    if (n >= END + LOCATOR && number(e - LOCATOR, 4) == SIG_LOCATOR) {
        d.twin_at = number(e - LOCATOR + 8, 8);
        if (bytes < END + LOCATOR + TWIN || d.twin_at > bytes - END - LOCATOR - TWIN)
            return bad(path, "its 64-bit record lies outside the file", err);
        *dir_out = d;
        return DTP_OK;
    }
    if (number(e + 4, 2) != 0 || number(e + 6, 2) != 0 || number(e + 8, 2) != d.n)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "%s: zip: parts of it are on other disks", path);
    const dtp_status st = check_dir(&d, bytes, path, err);
    if (st >= 0)
        *dir_out = d;
    return st;
}

dtp_status dtpi_zip_twin(const uint8_t *twin, uint64_t bytes, const char *path, dtpi_zip_dir *dir,
                         dtp_error *err)
{
    if (number(twin, 4) != SIG_TWIN)
        return bad(path, "its 64-bit record is not where it should be", err);
    if (number(twin + 16, 4) != 0 || number(twin + 20, 4) != 0 ||
        number(twin + 24, 8) != number(twin + 32, 8))
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "%s: zip: parts of it are on other disks", path);
    dir->n = number(twin + 32, 8);
    dir->bytes = number(twin + 40, 8);
    dir->at = number(twin + 48, 8);
    return check_dir(dir, bytes, path, err);
}

/* Values of 32 bits that are all ones stand in the extra field, 64 bits each, in this order. */
static dtp_status widen(const uint8_t *extra, size_t bytes, uint64_t *plain, uint64_t *stored,
                        uint64_t *local, const char *path, dtp_error *err)
{
    uint64_t *const wide[] = { plain, stored, local };

    for (size_t at = 0; at + 4 <= bytes;) {
        const uint64_t id = number(extra + at, 2), n = number(extra + at + 2, 2);
        if (n > bytes - at - 4)
            return bad(path, "a member's extra field ends too late", err);
        size_t used = 0;
        for (size_t i = 0; id == EXTRA_64 && i < DTPI_ARRAY_LEN(wide); i++) {
            if (*wide[i] != UINT32_MAX)
                continue;
            if (used + 8 > n)
                return bad(path, "a member's 64-bit sizes are missing", err);
            *wide[i] = number(extra + at + 4 + used, 8);
            used += 8;
        }
        at += 4 + n;
    }
    return DTP_OK;
}

dtp_status dtpi_zip_next(const uint8_t *dir, const dtpi_zip_dir *d, uint64_t *at, uint64_t *i,
                         const char *path, dtpi_zip_member *out, dtp_error *err)
{
    const uint8_t *e = dir + *at;

    if (*i == d->n)
        return *at == d->bytes ? DTP_END : bad(path, "its directory is longer than its list", err);
    if (d->bytes - *at < ENTRY || number(e, 4) != SIG_ENTRY)
        return bad(path, "its directory is broken", err);
    const uint64_t name = number(e + 28, 2), extra = number(e + 30, 2), note = number(e + 32, 2);
    if (d->bytes - *at - ENTRY < name + extra + note)
        return bad(path, "its directory is cut", err);
    uint64_t plain = number(e + 24, 4), stored = number(e + 20, 4), local = number(e + 42, 4);
    const dtp_status st = widen(e + ENTRY + name, extra, &plain, &stored, &local, path, err);
    if (st < 0)
        return st;
    if (number(e + 10, 2) != 0 || plain != stored || number(e + 8, 2) & ENCRYPTED)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "%s: zip: member %.*s is compressed or encrypted",
                         path, (int)DTPI_MIN(name, (uint64_t)80), (const char *)e + ENTRY);
    if (!dtpi_utf8_ok((const char *)e + ENTRY, name))
        return bad(path, "a member's name is no UTF-8", err);
    if (local > d->at || d->at - local < DTPI_ZIP_LOCAL + name ||
        plain > d->at - local - DTPI_ZIP_LOCAL - name)
        return bad(path, "a member lies outside the file", err);
    *out = (dtpi_zip_member){ (const char *)e + ENTRY, (uint32_t)name, local, plain };
    *at += ENTRY + name + extra + note;
    ++*i;
    return DTP_OK;
}

dtp_status dtpi_zip_data(const uint8_t *local, const dtpi_zip_dir *d, const dtpi_zip_member *member,
                         const char *path, uint64_t *at_out, dtp_error *err)
{
    const uint64_t skip = DTPI_ZIP_LOCAL + number(local + 26, 2) + number(local + 28, 2);

    if (number(local, 4) != SIG_LOCAL || number(local + 8, 2) != 0 ||
        number(local + 26, 2) != member->name_bytes)
        return bad(path, "a member is not where the directory says", err);
    if (d->at - member->local_at < skip || d->at - member->local_at - skip < member->bytes)
        return bad(path, "a member lies outside the file", err);
    *at_out = member->local_at + skip;
    return DTP_OK;
}
