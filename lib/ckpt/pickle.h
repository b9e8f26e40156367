/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.h - a Python pickle read as data: values, and inert records of what it would have built. Pure.
 *
 * Nothing is called, imported or looked up: a class or function is a number out of a fixed list, and a name
 * that is not in the list ends the reading. Memory and time are linear in the bytes that are there; a graph
 * that shares nodes stays shared. Sources: Python's pickletools.py (opcodes), torch/_utils.py,
 * torch/serialization.py, torch/distributed/checkpoint/metadata.py (what the list holds).
 */
#ifndef DTPI_CKPT_PICKLE_H
#define DTPI_CKPT_PICKLE_H

#include "base/buf.h"

typedef enum dtpi_pk_kind {
    DTPI_PK_NONE,
    DTPI_PK_BOOL,
    DTPI_PK_INT,
    DTPI_PK_BIG,                /* an integer of more than 64 bits: its bytes */
    DTPI_PK_FLOAT,
    DTPI_PK_TEXT,               /* as it is there: may be no UTF-8 */
    DTPI_PK_BYTES,
    DTPI_PK_TUPLE,
    DTPI_PK_LIST,
    DTPI_PK_DICT,               /* key, value, key, value ... */
    DTPI_PK_SET,
    DTPI_PK_GLOBAL,             /* a name from the list */
    DTPI_PK_OBJECT,             /* of the global `name`: arguments, then states */
    DTPI_PK_PERSISTENT          /* what stands outside the pickle: its id */
} dtpi_pk_kind;

/* What the list's names mean. */
typedef enum dtpi_pk_name {
    DTPI_PK_NO_NAME,
    DTPI_PK_METADATA,           /* torch.distributed.checkpoint */
    DTPI_PK_TENSOR_META,
    DTPI_PK_BYTES_META,
    DTPI_PK_PROPERTIES,
    DTPI_PK_CHUNK,
    DTPI_PK_INDEX,
    DTPI_PK_STORAGE_INFO,
    DTPI_PK_INERT,              /* of no meaning to us: paths, layouts, enums, devices */
    DTPI_PK_SIZE,
    DTPI_PK_DTYPE,              /* `i` is the dtp_dtype; NONE: one that is not read */
    DTPI_PK_STORAGE,            /* a storage class; `i` as above */
    DTPI_PK_BARE_STORAGE,       /* of bytes without a type */
    DTPI_PK_REBUILD,            /* _rebuild_tensor_v2 */
    DTPI_PK_REBUILD_TYPED,      /* _rebuild_tensor_v3 */
    DTPI_PK_PARAMETER,          /* _rebuild_parameter */
    DTPI_PK_ORDERED_DICT
} dtpi_pk_name;

typedef struct dtpi_pk_node {
    uint8_t kind;
    uint8_t name;               /* of GLOBAL and OBJECT */
    uint32_t n;                 /* bytes of a text, kids of a container */
    union {
        int64_t i;
        double f;
        uint64_t at;            /* of a text, in the pickle */
        struct {
            uint32_t at, room;
        } kids;
    };
} dtpi_pk_node;

typedef struct dtpi_pickle {
    const char *data;           /* lent */
    size_t bytes;
    dtpi_buf nodes, kids;
    uint32_t root;
} dtpi_pickle;

/*
 * Reads a pickle of protocol 2 to 5; it must end where `data` ends. `path` is for messages. Free `p_out`.
 * Errors: FORMAT, TRUNCATED, UNSUPPORTED (a name that is not in the list: the text has it), LIMIT, NOMEM.
 */
dtp_status dtpi_pickle_read(const dtp_allocator *a, const void *data, size_t bytes, const char *path,
                            dtpi_pickle *p_out, dtp_error *err);
void dtpi_pickle_free(dtpi_pickle *p);

static inline const dtpi_pk_node *dtpi_pk_at(const dtpi_pickle *p, uint32_t i)
{
    return (const dtpi_pk_node *)(const void *)p->nodes.data + i;
}
static inline const char *dtpi_pk_text(const dtpi_pickle *p, const dtpi_pk_node *n)
{
    return p->data + n->at;
}
/* Kid `i` of a container or object; NULL beyond its end. */
const dtpi_pk_node *dtpi_pk_kid(const dtpi_pickle *p, const dtpi_pk_node *n, uint32_t i);

/* NULL is no node, and answers no. */
static inline bool dtpi_pk_is(const dtpi_pk_node *n, dtpi_pk_kind kind)
{
    return n && n->kind == kind;
}
bool dtpi_pk_is_object(const dtpi_pk_node *n, dtpi_pk_name name);
bool dtpi_pk_is_text(const dtpi_pickle *p, const dtpi_pk_node *n, const char *text);
/* Value of a text key of a dict, the last one; NULL. */
const dtpi_pk_node *dtpi_pk_get(const dtpi_pickle *p, const dtpi_pk_node *dict, const char *key);
/* A field of an object whose state is a dict of at most 32; NULL. */
const dtpi_pk_node *dtpi_pk_field(const dtpi_pickle *p, const dtpi_pk_node *object, const char *key);
/* A tuple, list or torch.Size of integers, at most `max`; false for anything else. */
bool dtpi_pk_ints(const dtpi_pickle *p, const dtpi_pk_node *n, uint32_t max, int64_t *out,
                  uint32_t *n_out);

#endif /* DTPI_CKPT_PICKLE_H */
