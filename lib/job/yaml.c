/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yaml.c - a job spec from YAML: one mapping of known fields, read event by event.
 *
 * Aliases, anchors and tags are refused, so a small file stays small; errors name line and field.
 */
#include "job/spec.h"

#include <stdio.h>
#include <yaml.h>

#include "base/text.h"

enum { MAX_FIELD = 32 };

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    dtpi_spec *spec;
    dtp_error *err;
    char field[MAX_FIELD];
    uint32_t seen;              /* fields by index, to find one given twice */
} reader;

static dtp_status bad(const reader *r, const char *what)
{
    const unsigned long line = r->has_event ? r->event.start_mark.line + 1 : 1;

    if (r->field[0])
        return dtpi_fail(r->err, DTP_ERR_FORMAT, "line %lu: %s: %s", line, r->field, what);
    return dtpi_fail(r->err, DTP_ERR_FORMAT, "line %lu: %s", line, what);
}

static void drop_event(reader *r)
{
    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = false;
}

static bool has_anchor(const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return e->data.scalar.anchor || e->data.scalar.tag;
    case YAML_SEQUENCE_START_EVENT:
        return e->data.sequence_start.anchor || e->data.sequence_start.tag;
    case YAML_MAPPING_START_EVENT:
        return e->data.mapping_start.anchor || e->data.mapping_start.tag;
    default:
        return false;
    }
}

static dtp_status next(reader *r)
{
    drop_event(r);
    if (!yaml_parser_parse(&r->parser, &r->event))
        return dtpi_fail(r->err, DTP_ERR_FORMAT, "line %zu: %s", r->parser.problem_mark.line + 1,
                         r->parser.problem ? r->parser.problem : "not YAML");
    r->has_event = true;
    if (r->event.type == YAML_ALIAS_EVENT || has_anchor(&r->event))
        return bad(r, "anchors, aliases and tags are not read");
    return DTP_OK;
}

/* The scalar of the present event as text without NUL. */
static dtp_status scalar(reader *r, const char **out)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return bad(r, "a plain value is expected");
    const char *text = (const char *)r->event.data.scalar.value;
    if (strlen(text) != r->event.data.scalar.length)
        return bad(r, "the value holds a NUL");
    *out = text;
    return DTP_OK;
}

/* ---- fields ---- */

typedef dtp_status (*read_fn)(reader *r, void *at);

static dtp_status read_text(reader *r, void *at)
{
    char **out = at;
    const char *text = NULL;

    const dtp_status st = scalar(r, &text);
    if (st < 0)
        return st;
    dtpi_text_free(r->spec->a, *out);
    *out = dtpi_text_dup(r->spec->a, text);
    return *out ? DTP_OK : dtpi_fail_nomem(r->err, 0);
}

static dtp_status read_count(reader *r, void *at)
{
    const char *text = NULL;
    int64_t v;

    const dtp_status st = scalar(r, &text);
    if (st < 0)
        return st;
    if (!dtpi_parse_i64(text, 0, INT32_MAX, &v))
        return bad(r, "a number is expected");
    *(uint32_t *)at = (uint32_t)v;
    return DTP_OK;
}

static dtp_status read_seconds(reader *r, void *at)
{
    const char *text = NULL;
    double v;
    char rest;

    const dtp_status st = scalar(r, &text);
    if (st < 0)
        return st;
    if (sscanf(text, "%lf%c", &v, &rest) != 1 || !(v >= 0 && v <= 86400))
        return bad(r, "a number of seconds is expected");
    *(int32_t *)at = (int32_t)(v * 1000);
    return DTP_OK;
}

/* bind: true or false; the spec holds the opposite. */
static dtp_status read_bind(reader *r, void *at)
{
    const char *text = NULL;

    const dtp_status st = scalar(r, &text);
    if (st < 0)
        return st;
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return bad(r, "true or false is expected");
    *(uint32_t *)at = strcmp(text, "false") == 0;
    return DTP_OK;
}

static dtp_status read_command(reader *r, void *at)
{
    dtpi_list *l = at;
    const char *text = NULL;

    if (r->event.type != YAML_SEQUENCE_START_EVENT)
        return bad(r, "a list of the program and its arguments is expected");
    for (;;) {
        dtp_status st = next(r);
        if (st < 0)
            return st;
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return DTP_OK;
        st = scalar(r, &text);
        if (st < 0)
            return st;
        dtpi_texts_add(&l->buf, &l->n, text);
    }
}

static dtp_status read_env(reader *r, void *at)
{
    dtpi_list *l = at;
    const char *text = NULL;
    DTPI_AUTO_BUF dtpi_buf var = dtpi_buf_init(r->spec->a);

    if (r->event.type != YAML_MAPPING_START_EVENT)
        return bad(r, "a mapping of names to values is expected");
    for (;;) {
        dtp_status st = next(r);
        if (st < 0)
            return st;
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return DTP_OK;
        st = scalar(r, &text);
        dtpi_buf_reset(&var);
        if (st >= 0)
            dtpi_buf_printf(&var, "%s=", text);
        if (st >= 0)
            st = next(r);
        if (st >= 0)
            st = scalar(r, &text);
        if (st < 0)
            return st;
        dtpi_buf_printf(&var, "%s", text);
        const char *whole = dtpi_buf_text(&var);
        if (!whole)
            return dtpi_fail_nomem(r->err, 0);
        dtpi_texts_add(&l->buf, &l->n, whole);
    }
}

static const struct {
    const char *name;
    read_fn read;
    size_t at;
} fields[] = {
    { "name", read_text, offsetof(dtpi_spec, name) },
    { "command", read_command, offsetof(dtpi_spec, argv) },
    { "env", read_env, offsetof(dtpi_spec, env) },
    { "cwd", read_text, offsetof(dtpi_spec, cwd) },
    { "ckpt", read_text, offsetof(dtpi_spec, ckpt_dir) },
    { "ranks", read_count, offsetof(dtpi_spec, n_ranks) },
    { "min_ranks", read_count, offsetof(dtpi_spec, min_ranks) },
    { "max_restarts", read_count, offsetof(dtpi_spec, max_restarts) },
    { "gpus_per_rank", read_count, offsetof(dtpi_spec, gpus_per_rank) },
    { "cores_per_rank", read_count, offsetof(dtpi_spec, cores_per_rank) },
    { "bind", read_bind, offsetof(dtpi_spec, no_bind) },
    { "grace", read_seconds, offsetof(dtpi_spec, grace_ms) },
    { "reform", read_seconds, offsetof(dtpi_spec, reform_ms) },
};

static dtp_status read_field(reader *r)
{
    const char *name = NULL;

    r->field[0] = '\0';
    dtp_status st = scalar(r, &name);
    if (st < 0)
        return st;
    for (size_t i = 0; i < DTPI_ARRAY_LEN(fields); i++) {
        if (strcmp(fields[i].name, name) != 0)
            continue;
        snprintf(r->field, sizeof(r->field), "%s", fields[i].name);
        if (r->seen & 1u << i)
            return bad(r, "given twice");
        r->seen |= 1u << i;
        st = next(r);
        return st < 0 ? st : fields[i].read(r, (char *)r->spec + fields[i].at);
    }
    return dtpi_fail(r->err, DTP_ERR_FORMAT, "line %lu: unknown field '%.40s'",
                     (unsigned long)r->event.start_mark.line + 1, name);
}

static dtp_status expect(reader *r, yaml_event_type_t type, const char *what)
{
    const dtp_status st = next(r);

    if (st < 0)
        return st;
    return r->event.type == type ? DTP_OK : bad(r, what);
}

static dtp_status read_document(reader *r)
{
    dtp_status st = expect(r, YAML_STREAM_START_EVENT, "not YAML");
    if (st >= 0)
        st = expect(r, YAML_DOCUMENT_START_EVENT, "the file is empty");
    if (st >= 0)
        st = expect(r, YAML_MAPPING_START_EVENT, "a mapping of fields is expected");
    while (st >= 0) {
        st = next(r);
        if (st < 0 || r->event.type == YAML_MAPPING_END_EVENT)
            break;
        st = read_field(r);
    }
    r->field[0] = '\0';
    if (st >= 0)
        st = expect(r, YAML_DOCUMENT_END_EVENT, "more after the fields");
    if (st >= 0)
        st = expect(r, YAML_STREAM_END_EVENT, "a second document");
    return st;
}

dtp_status dtpi_spec_parse(dtpi_spec *s, const char *text, size_t bytes, dtp_error *err)
{
    reader r = { .spec = s, .err = err };

    if (bytes > DTPI_SPEC_MAX_FILE)
        return dtpi_fail(err, DTP_ERR_LIMIT, "a job spec of %zu bytes; at most %d are read", bytes,
                         DTPI_SPEC_MAX_FILE);
    if (!yaml_parser_initialize(&r.parser))
        return dtpi_fail_nomem(err, 0);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
    const dtp_status st = read_document(&r);
    drop_event(&r);
    yaml_parser_delete(&r.parser);
    return st;
}
