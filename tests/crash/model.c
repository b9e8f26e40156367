/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - two tables of names and the durable bytes of each file, and beside them what was done since:
 * a sync moves from there to here, a crash keeps what it likes of it.
 */
#include "crash/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sum.h"

typedef struct bytes {
    uint8_t *data;
    size_t len, cap;
} bytes;

typedef struct inode {
    bytes durable;
    bytes built;
    uint64_t hash;              /* of durable */
    uint64_t told, largest;     /* the size that a reader was told, last and ever */
    bool is_dir, hashed;
} inode;

/* What was asked and is not durable. Equal names are one text, so that they are compared at once. */
typedef struct pending {
    const crash_op *op;
    const char *path, *place;   /* a change's name, and where it puts the file */
    uint32_t node, parent;      /* parent: of the folder that a change of names is in */
    bool doomed;
} pending;

typedef struct list {
    pending *all;
    size_t n, cap;
} list;

/* A name is in a folder, not at a path: what lay in a folder that is gone is not in its successor. */
typedef struct name {
    const char *path;
    uint32_t node, parent;
} name;

typedef struct table {
    name *all;
    size_t n, cap;
} table;

struct crash_model {
    inode nodes[CRASH_MAX_NODES];
    table now, durable, left;
    const char **texts;
    size_t n_texts, cap_texts;
    list names, data;
    uint32_t *version;          /* of each piece of the file being built: the last write kept, from 1 */
    size_t n_versions;
    crash_state state;
    size_t cap;
};

static void *grown(void *p, size_t n, size_t *cap, size_t width)
{
    if (n < *cap)
        return p;
    *cap = n < 32 ? 64 : 2 * n;
    p = realloc(p, *cap * width);
    if (!p)
        abort();
    return p;
}

static void bytes_size(bytes *b, size_t len)
{
    if (len > b->cap)
        b->data = grown(b->data, len, &b->cap, 1);
    if (len > b->len)
        memset(b->data + b->len, 0, len - b->len);
    b->len = len;
}

static void bytes_put(bytes *b, uint64_t at, const void *data, size_t n)
{
    if (at + n > b->len)
        bytes_size(b, at + n);
    if (n)
        memcpy(b->data + at, data, n);
}

/* ---- names ---- */

static void put(table *t, const char *path, uint32_t node, uint32_t parent)
{
    size_t i = 0;

    while (i < t->n && (t->all[i].parent != parent || t->all[i].path != path))
        i++;
    if (i == t->n)
        t->all = grown(t->all, t->n++, &t->cap, sizeof(*t->all));
    t->all[i] = (name){ path, node, parent };
}

static void drop(table *t, const char *path, uint32_t node)
{
    for (size_t i = t->n; i-- > 0;)
        if (t->all[i].node == node && t->all[i].path == path)
            t->all[i] = t->all[--t->n];
}

static bool has_node(const table *t, uint32_t node)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->all[i].node == node)
            return true;
    return node == CRASH_ROOT;
}

/* The folder that holds `path` at present. */
static uint32_t parent_of(const table *t, const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash || slash == path)
        return CRASH_ROOT;
    const size_t len = (size_t)(slash - path);
    for (size_t i = 0; i < t->n; i++)
        if (strncmp(t->all[i].path, path, len) == 0 && t->all[i].path[len] == '\0')
            return t->all[i].node;
    abort();
}

static const char *one_text(crash_model *m, const char *text)
{
    for (size_t i = 0; i < m->n_texts; i++)
        if (strcmp(m->texts[i], text) == 0)
            return m->texts[i];
    m->texts = grown(m->texts, m->n_texts, &m->cap_texts, sizeof(*m->texts));
    return m->texts[m->n_texts++] = text;
}

static void change(table *t, const pending *p)
{
    if (p->op->kind == CRASH_RENAME || p->op->kind == CRASH_REMOVE)
        drop(t, p->path, p->node);
    if (p->op->kind != CRASH_REMOVE)
        put(t, p->place, p->node, p->parent);
}

/* ---- the log ---- */

crash_model *crash_model_new(void)
{
    crash_model *m = calloc(1, sizeof(*m));

    if (!m)
        abort();
    return m;
}

void crash_model_free(crash_model *m)
{
    for (size_t i = 0; i < CRASH_MAX_NODES; i++) {
        free(m->nodes[i].durable.data);
        free(m->nodes[i].built.data);
    }
    free(m->now.all);
    free(m->durable.all);
    free(m->left.all);
    free(m->names.all);
    free(m->data.all);
    free(m->version);
    free(m->texts);
    free(m->state.entries);
    free(m);
}

static void add(list *l, const pending *p)
{
    l->all = grown(l->all, l->n, &l->cap, sizeof(*l->all));
    l->all[l->n++] = *p;
}

static void write_durable(inode *n, const crash_op *op)
{
    if (op->kind == CRASH_WRITE)
        bytes_put(&n->durable, op->at, op->data, op->bytes);
    else if (op->kind == CRASH_CUT || op->at > n->durable.len)
        bytes_size(&n->durable, op->at);
    n->hashed = false;
}

/* What was lost for good is made again by the operation `p`. */
static bool is_remade(bool is_name, const pending *lost, const pending *p)
{
    if (is_name)
        return lost->parent == p->parent && lost->place == p->place;
    return lost->node == p->node && lost->op->at >= p->op->at &&
           lost->op->at + lost->op->bytes <= p->op->at + p->op->bytes;
}

/* The part of a list that is `node`'s becomes durable, or never will; UINT32_MAX - 1: everybody's. */
static void settle(crash_model *m, list *l, uint32_t node, bool lost)
{
    const bool is_name = l == &m->names;
    size_t left = 0;

    for (size_t i = 0; i < l->n; i++) {
        pending *p = &l->all[i];
        const bool hit = node == CRASH_ROOT - 1 || (is_name ? p->parent : p->node) == node;
        p->doomed |= hit && lost;
        if (!hit || p->doomed) {
            l->all[left++] = *p;
            continue;
        }
        if (is_name)
            change(&m->durable, p);
        else
            write_durable(&m->nodes[p->node], p->op);
        for (size_t k = left; k-- > 0;)
            if (l->all[k].doomed && is_remade(is_name, &l->all[k], p)) {
                memmove(&l->all[k], &l->all[k + 1], (left - k - 1) * sizeof(*l->all));
                left--;
            }
    }
    l->n = left;
}

static void step_data(crash_model *m, const crash_op *op)
{
    inode *n = &m->nodes[op->node];

    if (op->kind == CRASH_WRITE)
        n->told = n->told > op->at + op->bytes ? n->told : op->at + op->bytes;
    else if (op->kind == CRASH_CUT || op->at > n->told)
        n->told = op->at;
    n->largest = n->largest > n->told ? n->largest : n->told;
    add(&m->data, &(pending){ .op = op, .node = op->node });
}

static void step_name(crash_model *m, const crash_op *op)
{
    const char *path = one_text(m, op->path), *place = op->to ? one_text(m, op->to) : path;
    const pending p = { op, path, place, op->node, parent_of(&m->now, place), false };

    if (op->kind == CRASH_MAKE_DIR)
        m->nodes[op->node].is_dir = true;
    change(&m->now, &p);
    add(&m->names, &p);
    if (op->kind == CRASH_CREATE && op->at > 0)
        step_data(m, op);
}

void crash_step(crash_model *m, const crash_op *op)
{
    if (op->node >= CRASH_MAX_NODES && op->node != CRASH_ROOT)
        abort();
    switch (op->kind) {
    case CRASH_WRITE:
    case CRASH_GROW:
    case CRASH_CUT:
        step_data(m, op);
        break;
    case CRASH_SYNC:
        settle(m, &m->data, op->node, false);
        break;
    case CRASH_SYNC_DIR:
        settle(m, &m->names, op->node, false);
        break;
    case CRASH_SYNC_LOST:
        settle(m, &m->data, op->node, true);
        settle(m, &m->names, op->node, true);
        break;
    default:
        step_name(m, op);
        break;
    }
}

void crash_settle(crash_model *m)
{
    settle(m, &m->names, CRASH_ROOT - 1, false);
    settle(m, &m->data, CRASH_ROOT - 1, false);
}

/* ---- choices ---- */

size_t crash_n_names(const crash_model *m)
{
    return m->names.n;
}

/* A cut is one piece, more room is none: it shows in the size. */
static size_t pieces_of(const crash_op *op, uint32_t piece)
{
    if (op->kind == CRASH_CUT)
        return 1;
    if (op->kind != CRASH_WRITE || op->bytes == 0)
        return 0;
    return (size_t)((op->at + op->bytes - 1) / piece - op->at / piece + 1);
}

size_t crash_n_pieces(const crash_model *m, uint32_t piece)
{
    size_t n = 0;

    for (size_t i = 0; i < m->data.n; i++)
        n += pieces_of(m->data.all[i].op, piece);
    return n;
}

/* Which write of each piece of a file was the last to reach the disk; gives the last of all, from 1. */
static size_t read_keep(crash_model *m, uint32_t node, const crash_choice *c)
{
    const uint8_t *keep = c->keep + m->names.n;
    const size_t n = (size_t)(m->nodes[node].largest / c->piece) + 2;
    size_t last = 0;

    if (n > m->n_versions)
        m->version = grown(m->version, n, &m->n_versions, sizeof(*m->version));
    memset(m->version, 0, n * sizeof(*m->version));
    for (size_t i = 0; i < m->data.n; i++) {
        const crash_op *op = m->data.all[i].op;
        const size_t n_pieces = pieces_of(op, c->piece);
        for (size_t k = 0; k < n_pieces && m->data.all[i].node == node; k++) {
            if (!keep[k])
                continue;
            last = i + 1;
            const size_t at = (size_t)(op->at / c->piece) + k;
            if (op->kind == CRASH_WRITE && at < n)
                m->version[at] = (uint32_t)(i + 1);
        }
        keep += n_pieces;
    }
    return last;
}

static void apply_pieces(const crash_model *m, bytes *b, const crash_op *op, size_t order, uint32_t piece)
{
    const uint64_t end = op->at + op->bytes;

    for (uint64_t at = op->at; at < end;) {
        const uint64_t next = (at / piece + 1) * piece;
        const uint64_t stop = next < end ? next : end;
        if (m->version[at / piece] >= order)
            bytes_put(b, at, op->data + (at - op->at), (size_t)(stop - at));
        at = stop;
    }
}

/* The bytes of a file with unsynced writes. */
static void build_file(crash_model *m, uint32_t node, const crash_choice *c)
{
    inode *n = &m->nodes[node];
    bytes *b = &n->built;
    const size_t last = read_keep(m, node, c);
    size_t durable = n->durable.len;

    b->len = 0;
    bytes_put(b, 0, n->durable.data, n->durable.len);
    for (size_t i = 0; i < m->data.n; i++) {
        const crash_op *op = m->data.all[i].op;
        if (m->data.all[i].node != node)
            continue;
        if (op->kind == CRASH_WRITE)
            apply_pieces(m, b, op, i + 1, c->piece);
        if (op->kind == CRASH_CUT && i < last) {
            bytes_size(b, b->len < op->at ? b->len : op->at);
            durable = durable < op->at ? durable : op->at;
        }
    }
    if (c->size == CRASH_SIZE_TOLD)
        bytes_size(b, n->told);
    else if (c->size == CRASH_SIZE_DURABLE)
        bytes_size(b, durable);
}

static bool is_pending(const crash_model *m, uint32_t node)
{
    for (size_t i = 0; i < m->data.n; i++)
        if (m->data.all[i].node == node)
            return true;
    return false;
}

/* The names that are left. */
static void build_names(crash_model *m, const crash_choice *c)
{
    table *t = &m->left;

    t->n = 0;
    for (size_t i = 0; i < m->durable.n; i++) {
        t->all = grown(t->all, t->n, &t->cap, sizeof(*t->all));
        t->all[t->n++] = m->durable.all[i];
    }
    for (size_t i = 0; i < m->names.n; i++)
        if (c->keep[i])
            change(t, &m->names.all[i]);
    for (size_t i = 0; i < t->n;) {
        if (has_node(t, t->all[i].parent)) {
            i++;
            continue;
        }
        t->all[i] = t->all[--t->n];
        i = 0;
    }
}

static int by_path(const void *x, const void *y)
{
    return strcmp(((const crash_entry *)x)->path, ((const crash_entry *)y)->path);
}

static crash_entry entry_of(crash_model *m, const name *e, const crash_choice *c, uint64_t *hash)
{
    inode *n = &m->nodes[e->node];
    crash_entry out = { .path = e->path, .node = e->node, .is_dir = n->is_dir };

    if (!n->is_dir && is_pending(m, e->node)) {
        build_file(m, e->node, c);
        out.data = n->built.data;
        out.bytes = n->built.len;
        *hash = dtpi_sum64(out.data, out.bytes);
        return out;
    }
    if (!n->hashed)
        n->hash = dtpi_sum64(n->durable.data, n->durable.len);
    n->hashed = true;
    *hash = n->hash;
    out.data = n->durable.data;
    out.bytes = n->durable.len;
    return out;
}

const crash_state *crash_build(crash_model *m, const crash_choice *c)
{
    crash_state *s = &m->state;

    build_names(m, c);
    s->n = 0;
    s->hash = 0;
    for (size_t i = 0; i < m->left.n; i++) {
        uint64_t hash;
        s->entries = grown(s->entries, s->n, &m->cap, sizeof(*s->entries));
        s->entries[s->n] = entry_of(m, &m->left.all[i], c, &hash);
        const char *path = s->entries[s->n++].path;
        const uint64_t both[2] = { dtpi_sum64(path, strlen(path)), hash };
        s->hash += dtpi_sum64(both, sizeof(both));
    }
    if (s->n)
        qsort(s->entries, s->n, sizeof(*s->entries), by_path);
    return s;
}

/* ---- out of the model ---- */

dtpi_files *crash_state_files(const crash_state *s)
{
    dtpi_files *files = NULL;
    bool made;

    if (dtpi_files_mem_open(&dtpi_malloc_allocator, &files, NULL) < 0)
        abort();
    for (size_t i = 0; i < s->n; i++) {
        const crash_entry *e = &s->entries[i];
        dtpi_file *file = NULL;
        if (e->is_dir ? files->ops->make_dir(files, e->path, &made, NULL) < 0
                      : files->ops->create(files, e->path, 0, &file, NULL) < 0 ||
                            files->ops->write(file, 0, e->data, e->bytes, NULL) < 0)
            abort();
        dtpi_file_drop(file);
    }
    return files;
}

static int put_file(const char *path, const crash_entry *e)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    size_t at = 0;

    if (fd < 0)
        return -1;
    while (at < e->bytes) {
        const ssize_t n = write(fd, e->data + at, e->bytes - at);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    return close(fd) < 0 || at < e->bytes ? -1 : 0;
}

int crash_state_put(const crash_state *s, const char *dir)
{
    char path[4096];

    for (size_t i = 0; i < s->n; i++) {
        if (snprintf(path, sizeof(path), "%s/%s", dir, s->entries[i].path) >= (int)sizeof(path))
            return -1;
        if (s->entries[i].is_dir ? mkdir(path, 0777) < 0 : put_file(path, &s->entries[i]) < 0)
            return -1;
    }
    return 0;
}

crash_op crash_op_of_mem(dtpi_files *files, uint32_t i)
{
    static const crash_kind kinds[] = {
        [DTPI_MEM_CREATE] = CRASH_CREATE,       [DTPI_MEM_WRITE] = CRASH_WRITE,
        [DTPI_MEM_SYNC] = CRASH_SYNC,           [DTPI_MEM_SYNC_LOST] = CRASH_SYNC_LOST,
        [DTPI_MEM_PUBLISH] = CRASH_RENAME,      [DTPI_MEM_SYNC_DIR] = CRASH_SYNC_DIR,
        [DTPI_MEM_MAKE_DIR] = CRASH_MAKE_DIR,   [DTPI_MEM_REMOVE] = CRASH_REMOVE,
        [DTPI_MEM_REMOVE_DIR] = CRASH_REMOVE,   [DTPI_MEM_CUT] = CRASH_CUT,
    };
    dtpi_mem_op o;

    dtpi_files_mem_op(files, i, &o);
    return (crash_op){ kinds[o.kind], o.node, o.path, o.to, o.at, o.data, o.bytes };
}

void crash_op_text(const crash_op *op, char *text_out, size_t room)
{
    static const char *const names[] = {
        [CRASH_CREATE] = "create", [CRASH_MAKE_DIR] = "mkdir",    [CRASH_WRITE] = "write",
        [CRASH_GROW] = "grow",     [CRASH_CUT] = "truncate",      [CRASH_SYNC] = "fsync",
        [CRASH_RENAME] = "rename", [CRASH_SYNC_LOST] = "failed fsync", [CRASH_LINK] = "link",
        [CRASH_REMOVE] = "unlink", [CRASH_SYNC_DIR] = "fsync folder",
    };

    snprintf(text_out, room, "%s %s%s%s %llu+%zu", names[op->kind], op->path ? op->path : "",
             op->to ? " " : "", op->to ? op->to : "", (unsigned long long)op->at, op->bytes);
}
