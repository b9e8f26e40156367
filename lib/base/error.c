/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - writes the detail of a failure, once, where the cause is known. */
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* Room for a path and what is said of it; what a shortened path keeps: at its beginning, in all. */
enum { TEXT_MAX = 4096 + 512, PATH_HEAD = 16, PATH_KEPT = 56 };

void dtpi_close_fd(int *fd)
{
    const int saved = errno;

    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = saved;
}

static bool status_has_errno(dtp_status status)
{
    switch (status) {
    case DTP_ERR_IO:
    case DTP_ERR_NOSPC:
    case DTP_ERR_PERM:
    case DTP_ERR_NOT_FOUND:
    case DTP_ERR_EXISTS:
    case DTP_ERR_LIMIT:
    case DTP_ERR_EXEC:
        return true;
    default:
        return false;
    }
}

/* Ends a text that did not fit after the last blank or comma, never inside a number. */
static void cut_text(char *text, size_t room)
{
    const size_t last = room - sizeof(" ...");
    size_t end = last;

    while (end > room / 2 && text[end] != ' ' && text[end] != ',')
        end--;
    /* One long word, such as a path: what fits of it. */
    if (text[end] != ' ' && text[end] != ',')
        end = last;
    while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == ','))
        end--;
    memcpy(text + end, " ...", sizeof(" ..."));
}

/* The longest path of the text, as an offset; its bytes are 0 where there is none. */
static size_t find_path(const char *text, size_t *bytes_out)
{
    size_t at = 0;

    *bytes_out = 0;
    for (const char *word = text; *word; word += strspn(word, " ")) {
        const size_t n = strcspn(word, " ");
        if (n > *bytes_out && memchr(word, '/', n)) {
            at = (size_t)(word - text);
            *bytes_out = n;
        }
        word += n;
    }
    return at;
}

/*
 * A text that does not fit because of a long path loses the middle of that: who reads it needs the
 * name at its end and what comes behind, "No space left on device". False where that is not enough.
 */
static bool shorten_path(char *text, size_t len, size_t room)
{
    static const char dots[] = "...";
    size_t bytes;
    const size_t at = find_path(text, &bytes), gone = len - (room - 1) + strlen(dots);

    if (bytes < gone + PATH_KEPT)
        return false;
    char *cut = text + at + PATH_HEAD;
    memcpy(cut, dots, strlen(dots));
    memmove(cut + strlen(dots), cut + gone, strlen(cut + gone) + 1);
    return true;
}

/* `whole` as far as it fits into `text`. */
static void fit_text(char *text, size_t room, char *whole, size_t len)
{
    if (len < room || shorten_path(whole, len, room)) {
        memcpy(text, whole, strlen(whole) + 1);
        return;
    }
    memcpy(text, whole, room - 1);
    text[room - 1] = '\0';
    cut_text(text, room);
}

dtp_status dtpi_vfail(dtp_error *err, dtp_status status, const char *fmt, va_list ap)
{
    const int saved = errno;
    char whole[TEXT_MAX];
    /* Made aside: the arguments may point into *err ("shard 3: %s", err->text). */
    dtp_error e = { .status = status, .rank = -1 };

    if (!err)
        return status;
    e.sys_errno = status_has_errno(status) ? saved : 0;
    if (vsnprintf(whole, sizeof(whole), fmt, ap) >= 0)
        fit_text(e.text, sizeof(e.text), whole, strlen(whole));
    dtpi_text_flatten(e.text);
    *err = e;
    errno = saved;
    return status;
}

dtp_status dtpi_fail(dtp_error *err, dtp_status status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    dtpi_vfail(err, status, fmt, ap);
    va_end(ap);
    return status;
}

dtp_status dtpi_fail_rank(dtp_error *err, dtp_status status, int32_t rank, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    dtpi_vfail(err, status, fmt, ap);
    va_end(ap);
    if (err)
        err->rank = rank;
    return status;
}

dtp_status dtpi_status_of_errno(int e)
{
    switch (e) {
    case ENOSPC:
    case EDQUOT:
        return DTP_ERR_NOSPC;
    case EACCES:
    case EPERM:
    case EROFS:
        return DTP_ERR_PERM;
    case ENOENT:
    case ENOTDIR:
        return DTP_ERR_NOT_FOUND;
    case EEXIST:
        return DTP_ERR_EXISTS;
    case ENOMEM:
        return DTP_ERR_NOMEM;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
        return DTP_ERR_LIMIT;
    default:
        return DTP_ERR_IO;
    }
}

dtp_status dtpi_fail_nomem(dtp_error *err, size_t bytes)
{
    if (bytes)
        return dtpi_fail(err, DTP_ERR_NOMEM, "out of memory (wanted %zu bytes)", bytes);
    return dtpi_fail(err, DTP_ERR_NOMEM, "out of memory");
}

dtp_status dtpi_noun(dtp_error *err, const char *noun, dtp_status status)
{
    if (status < 0 && err && !err->noun[0])
        snprintf(err->noun, sizeof(err->noun), "%s", noun);
    return status;
}
