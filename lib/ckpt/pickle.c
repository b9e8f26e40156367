/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle.c - the machine that runs a pickle's opcodes on inert nodes.
 *
 * Every opcode makes at most one node and moves what is on the stack, so nodes and kids are bounded by the
 * bytes read. There is no recursion. Opcodes of protocols 0 and 1 that nothing in use writes are refused.
 */
#include "ckpt/pickle.h"

#include <inttypes.h>

#include "ckpt/pickle_names.h"

#define MARK UINT32_MAX
enum { MAX_NODES = 1 << 30, N_SHARED = 4, MAX_FIELDS = 32 };
/* Nodes that every pickle has: values that cannot change are made once. */
enum { NODE_NONE, NODE_FALSE, NODE_TRUE, NODE_EMPTY };

typedef struct machine {
    dtpi_pickle *p;
    size_t at;                  /* of the next byte */
    size_t op_at;               /* of the opcode, for messages */
    dtpi_buf stack, memo;       /* uint32_t */
    const char *path;
    dtp_error *err;
} machine;

/* ---- looking at the result ---- */

const dtpi_pk_node *dtpi_pk_kid(const dtpi_pickle *p, const dtpi_pk_node *n, uint32_t i)
{
    if (!n || n->kind < DTPI_PK_TUPLE || n->kind == DTPI_PK_GLOBAL || i >= n->n)
        return NULL;
    return dtpi_pk_at(p, *((const uint32_t *)(const void *)p->kids.data + n->kids.at + i));
}

bool dtpi_pk_is_object(const dtpi_pk_node *n, dtpi_pk_name name)
{
    return dtpi_pk_is(n, DTPI_PK_OBJECT) && n->name == name;
}

bool dtpi_pk_is_text(const dtpi_pickle *p, const dtpi_pk_node *n, const char *text)
{
    return dtpi_pk_is(n, DTPI_PK_TEXT) && n->n == strlen(text) &&
           memcmp(dtpi_pk_text(p, n), text, n->n) == 0;
}

const dtpi_pk_node *dtpi_pk_get(const dtpi_pickle *p, const dtpi_pk_node *dict, const char *key)
{
    if (!dtpi_pk_is(dict, DTPI_PK_DICT))
        return NULL;
    for (uint32_t i = dict->n; i >= 2; i -= 2)
        if (dtpi_pk_is_text(p, dtpi_pk_kid(p, dict, i - 2), key))
            return dtpi_pk_kid(p, dict, i - 1);
    return NULL;
}

const dtpi_pk_node *dtpi_pk_field(const dtpi_pickle *p, const dtpi_pk_node *object, const char *key)
{
    const dtpi_pk_node *state =
        dtpi_pk_is(object, DTPI_PK_OBJECT) ? dtpi_pk_kid(p, object, 1) : NULL;

    /* A state that many objects share is searched many times: it must be as small as states are. */
    return state && state->n <= 2 * MAX_FIELDS ? dtpi_pk_get(p, state, key) : NULL;
}

bool dtpi_pk_ints(const dtpi_pickle *p, const dtpi_pk_node *n, uint32_t max, int64_t *out,
                  uint32_t *n_out)
{
    if (dtpi_pk_is_object(n, DTPI_PK_SIZE))
        n = dtpi_pk_kid(p, dtpi_pk_kid(p, n, 0), 0);
    if ((!dtpi_pk_is(n, DTPI_PK_TUPLE) && !dtpi_pk_is(n, DTPI_PK_LIST)) || n->n > max)
        return false;
    for (uint32_t i = 0; i < n->n; i++) {
        const dtpi_pk_node *v = dtpi_pk_kid(p, n, i);
        if (v->kind != DTPI_PK_INT)
            return false;
        out[i] = v->i;
    }
    *n_out = n->n;
    return true;
}

void dtpi_pickle_free(dtpi_pickle *p)
{
    dtpi_buf_free(&p->nodes);
    dtpi_buf_free(&p->kids);
}

/* ---- failures ---- */

static dtp_status bad(machine *m, const char *what)
{
    return dtpi_fail(m->err, DTP_ERR_FORMAT, "%s: pickle, byte %zu: %s", m->path, m->op_at, what);
}

static dtp_status no_memory(machine *m)
{
    return dtpi_fail_nomem(m->err, m->p->bytes);
}

/* ---- bytes ---- */

static dtp_status take(machine *m, size_t n, const uint8_t **out)
{
    if (n > m->p->bytes - m->at)
        return dtpi_fail(m->err, DTP_ERR_TRUNCATED,
                         "%s: pickle, byte %zu: it ends within a value of %zu bytes", m->path,
                         m->op_at, n);
    *out = (const uint8_t *)m->p->data + m->at;
    m->at += n;
    return DTP_OK;
}

static dtp_status take_number(machine *m, unsigned width, uint64_t *out)
{
    const uint8_t *b = NULL;
    const dtp_status st = take(m, width, &b);

    *out = 0;
    for (unsigned i = width; st >= 0 && i-- > 0;)
        *out = *out << 8 | b[i];
    return st;
}

/* ---- stack and memo ---- */

static size_t depth(const machine *m)
{
    return m->stack.len / sizeof(uint32_t);
}

static uint32_t *stack_at(const machine *m, size_t i)
{
    return (uint32_t *)(void *)m->stack.data + i;
}

static dtp_status push(machine *m, uint32_t node)
{
    return dtpi_buf_append(&m->stack, &node, sizeof(node)) ? DTP_OK : no_memory(m);
}

static dtp_status push_node(machine *m, const dtpi_pk_node *n)
{
    const size_t id = m->p->nodes.len / sizeof(*n);

    if (id >= MAX_NODES)
        return dtpi_fail(m->err, DTP_ERR_LIMIT, "%s: the pickle has too many values", m->path);
    return dtpi_buf_append(&m->p->nodes, n, sizeof(*n)) ? push(m, (uint32_t)id) : no_memory(m);
}

/* The topmost value; a mark or nothing is an error. */
static dtp_status top(machine *m, uint32_t *out)
{
    const size_t n = depth(m);

    if (n == 0 || *stack_at(m, n - 1) == MARK)
        return bad(m, "nothing is on the stack");
    *out = *stack_at(m, n - 1);
    return DTP_OK;
}

static dtp_status pop(machine *m, uint32_t *out)
{
    const dtp_status st = top(m, out);

    if (st >= 0)
        m->stack.len -= sizeof(uint32_t);
    return st;
}

static dtp_status pop_pair(machine *m, uint32_t *below, uint32_t *top)
{
    const dtp_status st = pop(m, top);

    return st < 0 ? st : pop(m, below);
}

static dtp_status find_mark(machine *m, size_t *at_out)
{
    for (size_t i = depth(m); i-- > 0;) {
        if (*stack_at(m, i) == MARK) {
            *at_out = i;
            return DTP_OK;
        }
    }
    return bad(m, "there is no mark on the stack");
}

static dtpi_pk_node *node_at(machine *m, uint32_t id)
{
    return (dtpi_pk_node *)(void *)m->p->nodes.data + id;
}

static dtp_status memo_put(machine *m, uint64_t i)
{
    uint32_t id = 0;
    const dtp_status st = top(m, &id);

    if (st < 0)
        return st;
    /* Each entry was written by an opcode: a number beyond that is an attack on our memory. */
    if (i > m->at)
        return bad(m, "a memo's number is impossible");
    while (m->memo.len / sizeof(uint32_t) <= i)
        if (!dtpi_buf_append(&m->memo, &(uint32_t){ MARK }, sizeof(uint32_t)))
            return no_memory(m);
    *((uint32_t *)(void *)m->memo.data + i) = id;
    return DTP_OK;
}

static dtp_status memo_get(machine *m, uint64_t i)
{
    if (i >= m->memo.len / sizeof(uint32_t) ||
        *((uint32_t *)(void *)m->memo.data + i) == MARK)
        return bad(m, "a memo is used that was never put");
    return push(m, *((uint32_t *)(void *)m->memo.data + i));
}

/* ---- containers ---- */

/* Appends `n` values to node `id`; room doubles, so that all kids together stay linear. */
static dtp_status add_kids(machine *m, uint32_t id, const uint32_t *values, size_t n)
{
    dtpi_buf *kids = &m->p->kids;
    dtpi_pk_node *node = node_at(m, id);
    const size_t want = (size_t)node->n + n;

    if (want > node->kids.room) {
        const size_t room = node->n ? 2 * want : want, at = kids->len / sizeof(uint32_t);
        if (at + room >= UINT32_MAX)
            return dtpi_fail(m->err, DTP_ERR_LIMIT, "%s: the pickle has too many values", m->path);
        uint8_t *to = dtpi_buf_reserve(kids, room * sizeof(uint32_t));
        if (!to)
            return no_memory(m);
        if (node->n)
            memcpy(to, kids->data + node->kids.at * sizeof(uint32_t), node->n * sizeof(uint32_t));
        kids->len += room * sizeof(uint32_t);
        node->kids.at = (uint32_t)at;
        node->kids.room = (uint32_t)room;
    }
    if (n)
        memcpy(kids->data + (node->kids.at + (size_t)node->n) * sizeof(uint32_t), values,
               n * sizeof(uint32_t));
    node->n += (uint32_t)n;
    return DTP_OK;
}

/* A container of the topmost `n` values, which it replaces, and `below` marks under them. */
static dtp_status gather(machine *m, dtpi_pk_kind kind, size_t n, size_t below)
{
    const dtpi_pk_node node = { .kind = (uint8_t)kind };
    uint32_t id = 0;

    if (depth(m) < n)
        return bad(m, "too little is on the stack");
    const size_t from = depth(m) - n;
    for (size_t i = from; i < depth(m); i++)
        if (*stack_at(m, i) == MARK)
            return bad(m, "too little is on the stack");
    dtp_status st = push_node(m, &node);
    if (st >= 0)
        st = pop(m, &id);
    if (st >= 0)
        st = add_kids(m, id, n ? stack_at(m, from) : NULL, n);
    m->stack.len = (from - below) * sizeof(uint32_t);
    return st < 0 ? st : push(m, id);
}

static dtp_status gather_marked(machine *m, dtpi_pk_kind kind)
{
    size_t mark = 0;
    const dtp_status st = find_mark(m, &mark);

    if (st < 0)
        return st;
    if (kind == DTPI_PK_DICT && (depth(m) - mark - 1) % 2)
        return bad(m, "a key lacks its value");
    return gather(m, kind, depth(m) - mark - 1, 1);
}

/* What lies above `from` goes into the container below it (and below `skip` marks). */
static dtp_status add_from(machine *m, size_t from, size_t skip, dtpi_pk_kind kind)
{
    const size_t n = depth(m) - from;

    if (from < skip + 1 || *stack_at(m, from - skip - 1) == MARK)
        return bad(m, "too little is on the stack");
    const uint32_t id = *stack_at(m, from - skip - 1);
    if (node_at(m, id)->kind != kind || (kind == DTPI_PK_DICT && n % 2))
        return bad(m, "something is added to what cannot hold it");
    const dtp_status st = add_kids(m, id, n ? stack_at(m, from) : NULL, n);
    m->stack.len = (from - skip) * sizeof(uint32_t);
    return st;
}

static dtp_status add_marked(machine *m, dtpi_pk_kind kind)
{
    size_t mark = 0;
    const dtp_status st = find_mark(m, &mark);

    return st < 0 ? st : add_from(m, mark + 1, 1, kind);
}

static dtp_status add_top(machine *m, size_t n, dtpi_pk_kind kind)
{
    if (depth(m) < n + 1)
        return bad(m, "too little is on the stack");
    for (size_t i = depth(m) - n; i < depth(m); i++)
        if (*stack_at(m, i) == MARK)
            return bad(m, "too little is on the stack");
    return add_from(m, depth(m) - n, 0, kind);
}

/* ---- values ---- */

static dtp_status push_int(machine *m, int64_t v)
{
    return push_node(m, &(dtpi_pk_node){ .kind = DTPI_PK_INT, .i = v });
}

static dtp_status push_number(machine *m, unsigned width)
{
    uint64_t v = 0;
    const dtp_status st = take_number(m, width, &v);

    return st < 0 ? st : push_int(m, width == 4 ? (int32_t)(uint32_t)v : (int64_t)v);
}

static dtp_status push_float(machine *m)
{
    const uint8_t *b = NULL;
    uint64_t bits = 0;
    double v;

    const dtp_status st = take(m, 8, &b);
    if (st < 0)
        return st;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | b[i];
    memcpy(&v, &bits, sizeof(v));
    return push_node(m, &(dtpi_pk_node){ .kind = DTPI_PK_FLOAT, .f = v });
}

/* A length of `width` bytes and as many bytes. */
static dtp_status push_bytes(machine *m, unsigned width, dtpi_pk_kind kind)
{
    const uint8_t *b = NULL;
    uint64_t n = 0;

    dtp_status st = take_number(m, width, &n);
    if (st >= 0)
        st = take(m, n, &b);
    if (st < 0)
        return st;
    if (n > UINT32_MAX)
        return bad(m, "a text is too long");
    return push_node(m, &(dtpi_pk_node){ .kind = (uint8_t)kind,
                                         .n = (uint32_t)n,
                                         .at = (uint64_t)(b - (const uint8_t *)m->p->data) });
}

/* An integer of n bytes, two's complement. */
static dtp_status push_long(machine *m, unsigned width)
{
    const uint8_t *b = NULL;
    uint64_t n = 0, v = 0;

    dtp_status st = take_number(m, width, &n);
    if (st >= 0)
        st = take(m, n, &b);
    if (st < 0)
        return st;
    if (n > UINT32_MAX)
        return bad(m, "an integer is too long");
    if (n > 8)
        return push_node(m, &(dtpi_pk_node){ .kind = DTPI_PK_BIG,
                                             .n = (uint32_t)n,
                                             .at = (uint64_t)(b - (const uint8_t *)m->p->data) });
    if (n > 0 && b[n - 1] & 0x80)
        v = UINT64_MAX;
    for (uint64_t i = n; i-- > 0;)
        v = v << 8 | b[i];
    return push_int(m, (int64_t)v);
}

/* ---- names ---- */

static dtp_status push_name(machine *m, const char *module, size_t module_bytes, const char *name,
                            size_t name_bytes)
{
    const dtpi_pk_listed *l = dtpi_pk_find_name(module, module_bytes, name, name_bytes);

    if (!l)
        return dtpi_fail(m->err, DTP_ERR_UNSUPPORTED,
                         "%s: the pickle names %.*s.%.*s, which is not among what is read", m->path,
                         (int)DTPI_MIN(module_bytes, (size_t)60), module,
                         (int)DTPI_MIN(name_bytes, (size_t)60), name);
    return push_node(
        m, &(dtpi_pk_node){ .kind = DTPI_PK_GLOBAL, .name = (uint8_t)l->name, .i = l->dtype });
}

/* A line without its end. */
static dtp_status take_line(machine *m, const char **out, size_t *bytes_out)
{
    const char *p = m->p->data + m->at;
    const char *end = memchr(p, '\n', m->p->bytes - m->at);

    if (!end)
        return bad(m, "a name does not end");
    *out = p;
    *bytes_out = (size_t)(end - p);
    m->at += *bytes_out + 1;
    return DTP_OK;
}

static dtp_status push_global(machine *m)
{
    const char *module = NULL, *name = NULL;
    size_t module_bytes = 0, name_bytes = 0;

    dtp_status st = take_line(m, &module, &module_bytes);
    if (st >= 0)
        st = take_line(m, &name, &name_bytes);
    return st < 0 ? st : push_name(m, module, module_bytes, name, name_bytes);
}

static dtp_status push_stack_global(machine *m)
{
    uint32_t name = 0, module = 0;

    const dtp_status st = pop_pair(m, &module, &name);
    if (st < 0)
        return st;
    const dtpi_pk_node *a = node_at(m, module), *b = node_at(m, name);
    if (a->kind != DTPI_PK_TEXT || b->kind != DTPI_PK_TEXT)
        return bad(m, "a name is no text");
    return push_name(m, dtpi_pk_text(m->p, a), a->n, dtpi_pk_text(m->p, b), b->n);
}

/* ---- objects ---- */

/* Class and arguments become a record; an OrderedDict a dict. */
static dtp_status make_object(machine *m)
{
    uint32_t args = 0, global = 0;

    dtp_status st = pop_pair(m, &global, &args);
    if (st < 0)
        return st;
    const dtpi_pk_node g = *node_at(m, global);
    if (g.kind != DTPI_PK_GLOBAL || node_at(m, args)->kind != DTPI_PK_TUPLE)
        return bad(m, "something is built of what is no class");
    if (g.name == DTPI_PK_DTYPE || g.name == DTPI_PK_STORAGE || g.name == DTPI_PK_BARE_STORAGE)
        return bad(m, "a type is called");
    if (g.name == DTPI_PK_ORDERED_DICT) {
        if (node_at(m, args)->n)
            return bad(m, "a dict is built of arguments");
        return push_node(m, &(dtpi_pk_node){ .kind = DTPI_PK_DICT });
    }
    st = push_node(m, &(dtpi_pk_node){ .kind = DTPI_PK_OBJECT, .name = g.name });
    return st < 0 ? st : add_kids(m, *stack_at(m, depth(m) - 1), &args, 1);
}

/* A state becomes one more kid of an object; attributes of a dict are of no use here. */
static dtp_status set_state(machine *m)
{
    uint32_t state = 0, object = 0;

    dtp_status st = pop(m, &state);
    if (st >= 0)
        st = top(m, &object);
    if (st < 0)
        return st;
    if (node_at(m, object)->kind == DTPI_PK_DICT)
        return DTP_OK;
    if (node_at(m, object)->kind != DTPI_PK_OBJECT)
        return bad(m, "a state is given to what has none");
    return add_kids(m, object, &state, 1);
}

static dtp_status frame(machine *m)
{
    uint64_t n = 0;
    const dtp_status st = take_number(m, 8, &n);

    if (st < 0)
        return st;
    return n > m->p->bytes - m->at ? dtpi_fail(m->err, DTP_ERR_TRUNCATED,
                                               "%s: pickle, byte %zu: a frame of %" PRIu64
                                               " bytes where %zu are left",
                                               m->path, m->op_at, n, m->p->bytes - m->at)
                                   : DTP_OK;
}

static dtp_status protocol(machine *m)
{
    uint64_t v = 0;
    const dtp_status st = take_number(m, 1, &v);

    if (st < 0)
        return st;
    return v < 2 || v > 5 ? dtpi_fail(m->err, DTP_ERR_VERSION,
                                      "%s: pickle protocol %" PRIu64 ", 2 to 5 are read", m->path,
                                      v)
                          : DTP_OK;
}

static dtp_status drop(machine *m)
{
    if (depth(m) == 0)
        return bad(m, "nothing is on the stack");
    m->stack.len -= sizeof(uint32_t);
    return DTP_OK;
}

static dtp_status drop_marked(machine *m)
{
    size_t mark = 0;
    const dtp_status st = find_mark(m, &mark);

    if (st >= 0)
        m->stack.len = mark * sizeof(uint32_t);
    return st;
}

static dtp_status duplicate(machine *m)
{
    uint32_t id = 0;
    const dtp_status st = top(m, &id);

    return st < 0 ? st : push(m, id);
}

static dtp_status with_number(machine *m, unsigned width,
                              dtp_status (*then)(machine *m, uint64_t i))
{
    uint64_t i = 0;
    const dtp_status st = take_number(m, width, &i);

    return st < 0 ? st : then(m, i);
}

/* One opcode; names in Python's pickletools.py. */
static dtp_status run_op(machine *m, uint8_t op)
{
    switch (op) {
    case 0x80: return protocol(m);
    case 0x95: return frame(m);
    case '(': return push(m, MARK);
    case '0': return drop(m);
    case '1': return drop_marked(m);
    case '2': return duplicate(m);

    case 'N': return push(m, NODE_NONE);
    case 0x88: return push(m, NODE_TRUE);
    case 0x89: return push(m, NODE_FALSE);
    case ')': return push(m, NODE_EMPTY);
    case 'J': return push_number(m, 4);
    case 'K': return push_number(m, 1);
    case 'M': return push_number(m, 2);
    case 0x8a: return push_long(m, 1);
    case 0x8b: return push_long(m, 4);
    case 'G': return push_float(m);
    case 0x8c: return push_bytes(m, 1, DTPI_PK_TEXT);
    case 'X': return push_bytes(m, 4, DTPI_PK_TEXT);
    case 0x8d: return push_bytes(m, 8, DTPI_PK_TEXT);
    case 'C': case 'U': return push_bytes(m, 1, DTPI_PK_BYTES);
    case 'B': case 'T': return push_bytes(m, 4, DTPI_PK_BYTES);
    case 0x8e: case 0x96: return push_bytes(m, 8, DTPI_PK_BYTES);

    case 0x85: return gather(m, DTPI_PK_TUPLE, 1, 0);
    case 0x86: return gather(m, DTPI_PK_TUPLE, 2, 0);
    case 0x87: return gather(m, DTPI_PK_TUPLE, 3, 0);
    case 't': return gather_marked(m, DTPI_PK_TUPLE);
    case ']': return gather(m, DTPI_PK_LIST, 0, 0);
    case 'l': return gather_marked(m, DTPI_PK_LIST);
    case 'a': return add_top(m, 1, DTPI_PK_LIST);
    case 'e': return add_marked(m, DTPI_PK_LIST);
    case '}': return gather(m, DTPI_PK_DICT, 0, 0);
    case 'd': return gather_marked(m, DTPI_PK_DICT);
    case 's': return add_top(m, 2, DTPI_PK_DICT);
    case 'u': return add_marked(m, DTPI_PK_DICT);
    case 0x8f: return gather(m, DTPI_PK_SET, 0, 0);
    case 0x90: return add_marked(m, DTPI_PK_SET);
    case 0x91: return gather_marked(m, DTPI_PK_SET);

    case 'h': return with_number(m, 1, memo_get);
    case 'j': return with_number(m, 4, memo_get);
    case 'q': return with_number(m, 1, memo_put);
    case 'r': return with_number(m, 4, memo_put);
    case 0x94: return memo_put(m, m->memo.len / sizeof(uint32_t));

    case 'c': return push_global(m);
    case 0x93: return push_stack_global(m);
    case 'R': case 0x81: return make_object(m);
    case 'b': return set_state(m);
    case 'Q': return gather(m, DTPI_PK_PERSISTENT, 1, 0);
    default:
        return dtpi_fail(m->err, DTP_ERR_UNSUPPORTED,
                         "%s: pickle, byte %zu: opcode 0x%02x is not read", m->path, m->op_at, op);
    }
}

static dtp_status run(machine *m)
{
    const uint8_t *op = NULL;

    for (;;) {
        m->op_at = m->at;
        dtp_status st = take(m, 1, &op);
        if (st < 0)
            return st;
        if (*op == '.')
            break;
        st = run_op(m, *op);
        if (st < 0)
            return st;
    }
    if (depth(m) != 1)
        return bad(m, "it ends with more or less than one value");
    if (m->at != m->p->bytes)
        return bad(m, "bytes follow its end");
    return pop(m, &m->p->root);
}

dtp_status dtpi_pickle_read(const dtp_allocator *a, const void *data, size_t bytes, const char *path,
                            dtpi_pickle *p_out, dtp_error *err)
{
    static const dtpi_pk_node shared[N_SHARED] = {
        [NODE_NONE] = { .kind = DTPI_PK_NONE },
        [NODE_FALSE] = { .kind = DTPI_PK_BOOL },
        [NODE_TRUE] = { .kind = DTPI_PK_BOOL, .i = 1 },
        [NODE_EMPTY] = { .kind = DTPI_PK_TUPLE },
    };
    dtpi_pickle p = {
        .data = data, .bytes = bytes, .nodes = dtpi_buf_init(a), .kids = dtpi_buf_init(a)
    };
    machine m = {
        .p = &p, .stack = dtpi_buf_init(a), .memo = dtpi_buf_init(a), .path = path, .err = err
    };

    dtp_status st = dtpi_buf_append(&p.nodes, shared, sizeof(shared)) ? run(&m) : no_memory(&m);
    dtpi_buf_free(&m.stack);
    dtpi_buf_free(&m.memo);
    if (st < 0) {
        dtpi_pickle_free(&p);
        return st;
    }
    *p_out = p;
    return DTP_OK;
}
