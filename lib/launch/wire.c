/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.c - frames between supervisor and shim, both ways from one table of fields.
 *
 * Bytes come from a process of the same user, and are bounded all the same: lengths before use,
 * texts must end, lists must hold as many texts as they say.
 */
#include "launch/wire.h"

#include "base/wire.h"

typedef enum kind { END_OF_FIELDS, U32, U64, TEXT, LIST, DATA } kind;

typedef struct field {
    kind kind;
    size_t at;
} field;

enum { MAX_FIELDS = 8 };

typedef struct layout {
    dtpi_shim_type type;
    const char *name;
    field fields[MAX_FIELDS];
} layout;

#define F(kind, member) { kind, offsetof(dtpi_shim_msg, member) }

static const layout layouts[] = {
    { DTPI_SHIM_HELLO, "HELLO", { F(U32, magic), F(U32, version), F(U32, role), F(U32, output) } },
    { DTPI_SHIM_ASK_PORTS, "ASK_PORTS", { F(U32, n) } },
    { DTPI_SHIM_ATTEMPT, "ATTEMPT",
      { F(U32, attempt), F(U32, n), F(U32, grace_ms), F(TEXT, name), F(TEXT, secret), F(TEXT, cwd),
        F(LIST, argv), F(LIST, env) } },
    { DTPI_SHIM_RANK, "RANK", { F(U32, rank), F(TEXT, cpus), F(LIST, env) } },
    { DTPI_SHIM_GO, "GO", { { END_OF_FIELDS, 0 } } },
    { DTPI_SHIM_END, "END", { F(U32, grace_ms) } },
    { DTPI_SHIM_CANCEL, "CANCEL", { { END_OF_FIELDS, 0 } } },
    { DTPI_SHIM_WELCOME, "WELCOME", { F(U32, version), F(U32, pid), F(U64, bytes) } },
    { DTPI_SHIM_REFUSED, "REFUSED", { F(U32, status), F(TEXT, text) } },
    { DTPI_SHIM_PORTS, "PORTS", { F(DATA, data) } },
    { DTPI_SHIM_STARTED, "STARTED", { F(U32, attempt), F(DATA, data) } },
    { DTPI_SHIM_FAILED, "FAILED",
      { F(U32, attempt), F(U32, status), F(U32, code), F(U32, rank), F(TEXT, text) } },
    { DTPI_SHIM_EXIT, "EXIT", { F(U32, attempt), F(U32, rank), F(U32, code) } },
    { DTPI_SHIM_OUTPUT, "OUTPUT", { F(U32, rank), F(U32, stream), F(DATA, data) } },
    { DTPI_SHIM_GONE, "GONE", { F(U32, attempt) } },
    { DTPI_SHIM_CANCELED, "CANCELED", { { END_OF_FIELDS, 0 } } },
    { DTPI_SHIM_ENDING, "ENDING", { F(U32, attempt) } },
    { DTPI_SHIM_REFORMED, "REFORMED", { F(U32, attempt), F(U32, n) } },
};

static const layout *find_layout(uint32_t type)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(layouts); i++)
        if (layouts[i].type == type)
            return &layouts[i];
    return NULL;
}

const char *dtpi_shim_type_name(uint32_t type)
{
    const layout *l = find_layout(type);

    return l ? l->name : "unknown";
}

/* ---- lists ---- */

void dtpi_texts_add(dtpi_buf *b, uint32_t *n, const char *text)
{
    dtpi_buf_append(b, text, strlen(text) + 1);
    (*n)++;
}

const char *dtpi_texts_next(const dtpi_texts *list, const char *at)
{
    const char *next = at ? at + strlen(at) + 1 : list->data;

    return next && next < list->data + list->bytes ? next : NULL;
}

/* ---- writing ---- */

static void put_text(dtpi_buf *b, const char *text)
{
    dtpi_wr_block(b, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void put_field(dtpi_buf *b, const field *f, const dtpi_shim_msg *msg)
{
    const char *p = (const char *)msg + f->at;

    switch (f->kind) {
    case U32:
        dtpi_wr_u32(b, *(const uint32_t *)(const void *)p);
        break;
    case U64:
        dtpi_wr_u64(b, *(const uint64_t *)(const void *)p);
        break;
    case TEXT:
        put_text(b, *(const char *const *)(const void *)p);
        break;
    case LIST: {
        const dtpi_texts *list = (const void *)p;
        dtpi_wr_u32(b, list->n);
        dtpi_wr_block(b, list->data, list->bytes);
        break;
    }
    case DATA:
        dtpi_wr_block(b, msg->data, msg->data_bytes);
        break;
    case END_OF_FIELDS:
        break;
    }
}

dtp_status dtpi_shim_encode(dtpi_buf *b, const dtpi_shim_msg *msg, dtp_error *err)
{
    const layout *l = find_layout(msg->type);
    const size_t start = b->len;

    assert(l);
    dtpi_wr_u32(b, 0);
    dtpi_wr_u8(b, (uint8_t)msg->type);
    for (int i = 0; i < MAX_FIELDS && l->fields[i].kind != END_OF_FIELDS; i++)
        put_field(b, &l->fields[i], msg);
    if (b->failed) {
        b->len = start;
        return dtpi_fail_nomem(err, 0);
    }
    const size_t body = b->len - start - 4;
    if (body > DTPI_SHIM_MAX_FRAME) {
        b->len = start;
        return dtpi_fail(err, DTP_ERR_LIMIT, "message %s to the shim: %zu bytes are more than %d",
                         l->name, body, DTPI_SHIM_MAX_FRAME);
    }
    for (int i = 0; i < 4; i++)
        b->data[start + (size_t)i] = (uint8_t)(body >> (8 * i));
    return DTP_OK;
}

/* ---- reading ---- */

static void get_text(dtpi_rd *r, const char **out)
{
    size_t bytes = 0;
    const uint8_t *p = dtpi_rd_block(r, DTPI_SHIM_MAX_FRAME, &bytes);

    if (!p || bytes == 0 || memchr(p, 0, bytes) != p + bytes - 1) {
        r->failed = true;
        return;
    }
    *out = (const char *)p;
}

static void get_list(dtpi_rd *r, dtpi_texts *out)
{
    const uint32_t n = dtpi_rd_u32(r);
    size_t bytes = 0;
    uint32_t found = 0;
    const uint8_t *p = dtpi_rd_block(r, DTPI_SHIM_MAX_FRAME, &bytes);

    for (size_t i = 0; p && i < bytes; i++)
        found += p[i] == 0;
    if (!p || n > DTPI_SHIM_MAX_LIST || found != n || (bytes > 0 && p[bytes - 1] != 0)) {
        r->failed = true;
        return;
    }
    *out = (dtpi_texts){ .n = n, .data = (const char *)p, .bytes = bytes };
}

static void get_field(dtpi_rd *r, const field *f, dtpi_shim_msg *msg)
{
    char *p = (char *)msg + f->at;

    switch (f->kind) {
    case U32:
        *(uint32_t *)(void *)p = dtpi_rd_u32(r);
        break;
    case U64:
        *(uint64_t *)(void *)p = dtpi_rd_u64(r);
        break;
    case TEXT:
        get_text(r, (const char **)(void *)p);
        break;
    case LIST:
        get_list(r, (dtpi_texts *)(void *)p);
        break;
    case DATA:
        msg->data = dtpi_rd_block(r, DTPI_SHIM_MAX_FRAME, &msg->data_bytes);
        break;
    case END_OF_FIELDS:
        break;
    }
}

dtp_status dtpi_shim_decode(const void *data, size_t bytes, dtpi_shim_msg *msg_out,
                            size_t *used_out, dtp_error *err)
{
    dtpi_rd head = dtpi_rd_init(data, bytes);
    dtpi_shim_msg msg = { 0 };

    if (bytes < 4)
        return DTP_PENDING;
    const uint32_t body = dtpi_rd_u32(&head);
    if (body < 1 || body > DTPI_SHIM_MAX_FRAME)
        return dtpi_fail(err, DTP_ERR_PROTO, "a shim frame of %u bytes", body);
    if (head.left < body)
        return DTP_PENDING;
    dtpi_rd r = dtpi_rd_init(head.p, body);
    msg.type = dtpi_rd_u8(&r);
    const layout *l = find_layout(msg.type);
    if (!l)
        return dtpi_fail(err, DTP_ERR_PROTO, "a shim frame of unknown type %u", msg.type);
    for (int i = 0; i < MAX_FIELDS && l->fields[i].kind != END_OF_FIELDS; i++)
        get_field(&r, &l->fields[i], &msg);
    if (!dtpi_rd_done(&r))
        return dtpi_fail(err, DTP_ERR_PROTO, "a malformed shim frame %s", l->name);
    *msg_out = msg;
    *used_out = 4 + (size_t)body;
    return DTP_OK;
}
