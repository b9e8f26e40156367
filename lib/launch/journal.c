/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - writes and reads the lines of a job's journal; every number is checked. */
#include "launch/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

enum { MAX_NUMBERS = 4 };

/* The word of an event, its numbers in order, and whether text follows. */
typedef struct shape {
    dtpi_journal_type type;
    const char *word;
    size_t at[MAX_NUMBERS];
    int n;
    bool has_text;
} shape;

#define AT(member) offsetof(dtpi_journal_entry, member)

static const shape shapes[] = {
    { DTPI_JOURNAL_ATTEMPT, "attempt", { AT(attempt), AT(n) }, 2, false },
    { DTPI_JOURNAL_RANK, "rank", { AT(attempt), AT(rank), AT(pid) }, 3, false },
    { DTPI_JOURNAL_EXIT, "exit", { AT(attempt), AT(rank), AT(wstatus) }, 3, false },
    { DTPI_JOURNAL_ENDING, "ending", { AT(attempt) }, 1, false },
    { DTPI_JOURNAL_REFORMED, "reformed", { AT(attempt), AT(n) }, 2, false },
    { DTPI_JOURNAL_GONE, "gone", { AT(attempt) }, 1, false },
    { DTPI_JOURNAL_FAILED, "failed", { AT(attempt), AT(status), AT(code), AT(rank) }, 4, true },
    { DTPI_JOURNAL_LOST, "lost", { AT(attempt) }, 1, false },
    { DTPI_JOURNAL_CANCEL, "cancel", { 0 }, 0, false },
    { DTPI_JOURNAL_END, "end", { AT(status), AT(code) }, 2, false },
};

static int32_t *number(dtpi_journal_entry *e, const shape *s, int i)
{
    return (int32_t *)(void *)((char *)e + s->at[i]);
}

void dtpi_journal_format(dtpi_buf *b, const dtpi_journal_entry *e)
{
    dtpi_journal_entry copy = *e;

    for (size_t k = 0; k < DTPI_ARRAY_LEN(shapes); k++) {
        const shape *s = &shapes[k];
        if (s->type != e->type)
            continue;
        dtpi_buf_printf(b, "%" PRId64 " %s", e->ms, s->word);
        for (int i = 0; i < s->n; i++)
            dtpi_buf_printf(b, " %" PRId32, *number(&copy, s, i));
        dtpi_buf_printf(b, "%s%s\n", s->has_text ? " " : "", s->has_text ? e->text : "");
    }
}

static bool is_torn(int fd)
{
    const off_t end = lseek(fd, 0, SEEK_END);
    char last = '\n';

    return end > 0 && pread(fd, &last, 1, end - 1) == 1 && last != '\n';
}

dtp_status dtpi_journal_append(int fd, dtpi_journal_entry e, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf line = dtpi_buf_init(&dtpi_malloc_allocator);
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    e.ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (is_torn(fd))
        dtpi_buf_append(&line, "\n", 1);
    dtpi_journal_format(&line, &e);
    if (line.failed)
        return dtpi_fail_nomem(err, 0);
    ssize_t n;
    do {
        n = write(fd, line.data, line.len);
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t)line.len)
        return DTP_OK;
    if (n >= 0)
        errno = ENOSPC;
    return dtpi_fail(err, dtpi_status_of_errno(errno), "the job's journal cannot be written: %m");
}

/* Cuts the next word off; the rest of the line stays in *p. */
static char *next_word(char **p)
{
    return strsep(p, " ");
}

/* Attempts and counts are small u32: negative numbers only where they mean something. */
static bool number_ok(const shape *s, int i, int64_t v)
{
    const bool is_signed = s->at[i] == AT(status) || s->at[i] == AT(code) || s->at[i] == AT(rank) ||
                           s->at[i] == AT(wstatus);

    return is_signed ? v >= INT32_MIN : v >= 0;
}

static bool parse_numbers(char **p, const shape *s, dtpi_journal_entry *e)
{
    for (int i = 0; i < s->n; i++) {
        int64_t v;
        if (!*p || !dtpi_parse_i64(next_word(p), INT32_MIN, INT32_MAX, &v) || !number_ok(s, i, v))
            return false;
        *number(e, s, i) = (int32_t)v;
    }
    return true;
}

static bool parse(char *line, dtpi_journal_entry *e)
{
    char *p = line;

    if (!dtpi_parse_i64(next_word(&p), 0, INT64_MAX, &e->ms) || !p)
        return false;
    const char *word = next_word(&p);
    for (size_t k = 0; k < DTPI_ARRAY_LEN(shapes); k++) {
        const shape *s = &shapes[k];
        if (strcmp(s->word, word) != 0)
            continue;
        e->type = s->type;
        if (!parse_numbers(&p, s, e))
            return false;
        if (s->has_text && p)
            snprintf(e->text, sizeof(e->text), "%s", p);
        return s->has_text || !p;
    }
    return false;
}

dtp_status dtpi_journal_parse(const char *line, size_t bytes, dtpi_journal_entry *out,
                              dtp_error *err)
{
    char copy[DTPI_JOURNAL_MAX_LINE];
    dtpi_journal_entry e = { .rank = -1 };

    if (bytes >= sizeof(copy) || memchr(line, 0, bytes))
        return dtpi_fail(err, DTP_ERR_FORMAT, "journal: a line of %zu bytes", bytes);
    memcpy(copy, line, bytes);
    copy[bytes] = '\0';
    if (!parse(copy, &e))
        return dtpi_fail(err, DTP_ERR_FORMAT, "journal: malformed line '%.*s'",
                         (int)DTPI_MIN(bytes, (size_t)80), line);
    *out = e;
    return DTP_OK;
}
