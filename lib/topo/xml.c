/* SPDX-License-Identifier: Apache-2.0 */
/* xml.c - the strict reader. Source: Extensible Markup Language (XML) 1.0, the part named in xml.h. */
#include "topo/xml.h"

#include <ctype.h>
#include <stdlib.h>

void dtpi_xml_start(dtpi_xml *x, char *text, size_t bytes)
{
    memset(x, 0, sizeof(*x));
    x->p = text;
    x->end = text + bytes;
    x->line = 1;
}

static dtpi_xml_event bad(dtpi_xml *x, const char *why)
{
    x->why = why;
    return DTPI_XML_BAD;
}

static void step(dtpi_xml *x)
{
    x->line += *x->p == '\n';
    x->p++;
}

static void skip_blanks(dtpi_xml *x)
{
    while (x->p < x->end && strchr(" \t\r\n", *x->p) && *x->p)
        step(x);
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

/* A name; the character behind it is where x->p stands then. NULL where there is none. */
static char *take_name(dtpi_xml *x, size_t *len_out)
{
    char *start = x->p;

    while (x->p < x->end && is_name(*x->p))
        x->p++;
    *len_out = (size_t)(x->p - start);
    return *len_out && *len_out < DTPI_XML_MAX_NAME ? start : NULL;
}

/* Past the next `mark`; false when there is none. */
static bool skip_past(dtpi_xml *x, const char *mark)
{
    const size_t len = strlen(mark);

    for (; x->p + len <= x->end; step(x))
        if (memcmp(x->p, mark, len) == 0) {
            x->p += len;
            return true;
        }
    return false;
}

/* One entity at *from ("&amp;") into *to; false for an unknown one. Only what fits a byte is kept. */
static bool take_entity(char **from, char **to)
{
    static const struct {
        const char *text;
        char c;
    } known[] = { { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' },
                  { "&apos;", '\'' } };

    for (size_t i = 0; i < DTPI_ARRAY_LEN(known); i++) {
        const size_t len = strlen(known[i].text);
        if (strncmp(*from, known[i].text, len) == 0) {
            *(*to)++ = known[i].c;
            *from += len;
            return true;
        }
    }
    if ((*from)[1] != '#')
        return false;
    const bool hex = (*from)[2] == 'x';
    char *digits = *from + (hex ? 3 : 2), *end;
    if (!isxdigit((unsigned char)*digits))
        return false;
    const unsigned long v = strtoul(digits, &end, hex ? 16 : 10);
    if (*end != ';' || v == 0 || v > 0x10ffff)
        return false;
    *(*to)++ = v < 0x80 ? (char)v : '?';
    *from = end + 1;
    return true;
}

/* A quoted value, made plain in place. */
static bool take_value(dtpi_xml *x, const char **value_out)
{
    const char quote = *x->p;
    char *to = ++x->p;

    *value_out = to;
    while (x->p < x->end && *x->p != quote) {
        if (*x->p == '<' || *x->p == '\0')
            return false;
        if (*x->p == '&') {
            if (!take_entity(&x->p, &to))
                return false;
            continue;
        }
        x->line += *x->p == '\n';
        *to++ = *x->p++;
    }
    if (x->p >= x->end)
        return false;
    x->p++;
    *to = '\0';
    return true;
}

static dtpi_xml_event take_attrs(dtpi_xml *x)
{
    for (x->n_attrs = 0;;) {
        size_t len;
        skip_blanks(x);
        if (x->p >= x->end)
            return bad(x, "an element is not finished");
        if (*x->p == '>' || (*x->p == '/' && x->p[1] == '>')) {
            x->self_closed = *x->p == '/';
            x->p += x->self_closed ? 2 : 1;
            return DTPI_XML_OPEN;
        }
        char *name = take_name(x, &len);
        char *name_end = x->p;
        skip_blanks(x);
        if (!name || *x->p != '=')
            return bad(x, "an attribute is malformed");
        x->p++;
        skip_blanks(x);
        if (x->n_attrs == DTPI_XML_MAX_ATTRS)
            return bad(x, "an element has too many attributes");
        if ((*x->p != '"' && *x->p != '\'') ||
            !take_value(x, &x->attrs[x->n_attrs].value))
            return bad(x, "the value of an attribute is malformed");
        *name_end = '\0';
        x->attrs[x->n_attrs++].name = name;
    }
}

static dtpi_xml_event open_element(dtpi_xml *x)
{
    size_t len;
    char *name = take_name(x, &len);

    if (!name)
        return bad(x, "the name of an element is malformed");
    if (x->depth == DTPI_XML_MAX_DEPTH)
        return bad(x, "elements are nested too deep");
    if (x->depth == 0 && x->seen_root)
        return bad(x, "there is more than one root element");
    memcpy(x->open[x->depth], name, len);
    x->open[x->depth][len] = '\0';
    x->name = x->open[x->depth++];
    x->seen_root = true;
    return take_attrs(x);
}

static dtpi_xml_event close_element(dtpi_xml *x)
{
    size_t len;
    char *name = take_name(x, &len);

    skip_blanks(x);
    if (!name || !x->depth || *x->p != '>' || strlen(x->open[x->depth - 1]) != len ||
        memcmp(x->open[x->depth - 1], name, len) != 0)
        return bad(x, "an end tag closes no open element");
    x->p++;
    x->name = x->open[--x->depth];
    return DTPI_XML_CLOSE;
}

/* What stands between elements and says nothing; false where it has no end. */
static bool skip_other(dtpi_xml *x)
{
    if (strncmp(x->p, "<!--", 4) == 0)
        return skip_past(x, "-->");
    if (strncmp(x->p, "<?", 2) == 0)
        return skip_past(x, "?>");
    if (strncmp(x->p, "<!DOCTYPE", 9) == 0) {
        const size_t len = strcspn(x->p, "[>");
        return x->p[len] == '>' && skip_past(x, ">");
    }
    return false;
}

dtpi_xml_event dtpi_xml_next(dtpi_xml *x)
{
    if (x->self_closed) {
        x->self_closed = false;
        x->name = x->open[--x->depth];
        return DTPI_XML_CLOSE;
    }
    for (;;) {
        char *start = x->p;
        while (x->p < x->end && *x->p != '<') {
            if (*x->p == '\0' || (!x->depth && !strchr(" \t\r\n\xef\xbb\xbf", *x->p)))
                return bad(x, "there is text outside of the elements");
            step(x);
        }
        x->body = start;
        if (x->p >= x->end)
            return x->seen_root && !x->depth ? DTPI_XML_END
                                             : bad(x, "the document ends too early");
        if (x->p[1] == '!' || x->p[1] == '?') {
            if (!skip_other(x))
                return bad(x, "a comment, instruction or DOCTYPE is malformed");
            continue;
        }
        *x->p = '\0';           /* ends the text before */
        x->p++;
        if (*x->p == '/') {
            x->p++;
            return close_element(x);
        }
        return open_element(x);
    }
}

const char *dtpi_xml_attr_of(const dtpi_xml *x, const char *name)
{
    for (uint32_t i = 0; i < x->n_attrs; i++)
        if (strcmp(x->attrs[i].name, name) == 0)
            return x->attrs[i].value;
    return NULL;
}
