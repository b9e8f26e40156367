/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostlist.c - expands host lists as Slurm writes them.
 *
 * One item is literal text with brackets of ranges; several brackets multiply, the last varies fastest.
 */
#include "base/hostlist.h"

#include <ctype.h>
#include <stdio.h>

enum { NAME_MAX_BYTES = 255, DIGITS_MAX = 9 };

typedef struct walk {
    const char *list;
    dtp_status (*each)(void *user, const char *name);
    void *user;
    uint32_t n;
    dtp_error *err;
} walk;

static dtp_status malformed(const walk *w)
{
    return dtpi_fail(w->err, DTP_ERR_FORMAT, "host list '%.120s' is malformed", w->list);
}

/* A number with its width; NULL when there is none or it is too long. */
static const char *parse_number(const char *p, const char *end, uint32_t *v_out, int *width_out)
{
    uint32_t v = 0;
    int width = 0;

    for (; p < end && isdigit((unsigned char)*p); p++, width++) {
        if (width == DIGITS_MAX)
            return NULL;
        v = v * 10 + (uint32_t)(*p - '0');
    }
    *v_out = v;
    *width_out = width;
    return width ? p : NULL;
}

static dtp_status expand_from(walk *w, char *name, size_t len, const char *p, const char *end);

/* One bracket's ranges, `p` behind '[' and `close` at ']'. */
static dtp_status expand_ranges(walk *w, char *name, size_t len, const char *p, const char *close,
                                const char *end)
{
    while (p < close) {
        uint32_t first, last;
        int width, last_width;

        p = parse_number(p, close, &first, &width);
        if (!p)
            return malformed(w);
        last = first;
        if (p < close && *p == '-') {
            p = parse_number(p + 1, close, &last, &last_width);
            if (!p || last < first)
                return malformed(w);
        }
        if (p < close && *p++ != ',')
            return malformed(w);
        if (p == close && p[-1] == ',')
            return malformed(w);
        for (uint32_t v = first; v <= last; v++) {
            char digits[DIGITS_MAX + 2];
            const int n = snprintf(digits, sizeof(digits), "%0*u", width, v);

            if (len + (size_t)n > NAME_MAX_BYTES)
                return malformed(w);
            memcpy(name + len, digits, (size_t)n);
            const dtp_status st = expand_from(w, name, len + (size_t)n, close + 1, end);
            if (st < 0)
                return st;
        }
    }
    return DTP_OK;
}

static dtp_status expand_from(walk *w, char *name, size_t len, const char *p, const char *end)
{
    while (p < end && *p != '[') {
        if (len == NAME_MAX_BYTES || *p == ']' || isspace((unsigned char)*p))
            return malformed(w);
        name[len++] = *p++;
    }
    if (p < end) {
        const char *close = memchr(p, ']', (size_t)(end - p));
        if (!close || close == p + 1)
            return malformed(w);
        return expand_ranges(w, name, len, p + 1, close, end);
    }
    if (len == 0)
        return malformed(w);
    if (w->n++ == DTPI_HOSTLIST_MAX)
        return dtpi_fail(w->err, DTP_ERR_LIMIT, "host list '%.120s' has more than %d names", w->list,
                         DTPI_HOSTLIST_MAX);
    name[len] = '\0';
    return w->each(w->user, name);
}

/* End of the item at `p`: the next comma outside brackets. */
static const char *item_end(const char *p)
{
    bool inside = false;

    for (; *p && (inside || *p != ','); p++) {
        if (*p == '[')
            inside = true;
        else if (*p == ']')
            inside = false;
    }
    return p;
}

dtp_status dtpi_hostlist_expand(const char *list, dtp_status (*each)(void *user, const char *name),
                                void *user, dtp_error *err)
{
    walk w = { .list = list, .each = each, .user = user, .err = err };
    char name[NAME_MAX_BYTES + 1];
    const char *p = list;

    if (!*list)
        return malformed(&w);
    for (;;) {
        const char *end = item_end(p);
        const dtp_status st = expand_from(&w, name, 0, p, end);
        if (st < 0)
            return st;
        if (!*end)
            return DTP_OK;
        p = end + 1;
    }
}
