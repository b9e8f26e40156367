/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.c - files in memory. A node is a file or folder, a name points at a node; every operation that
 * changes something, and every sync, is written down in order, so that a test can tell what a crash
 * after any of them may leave.
 */
#include "files/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

static const char *const op_names[] = {
    [DTPI_MEM_CREATE] = "create",     [DTPI_MEM_WRITE] = "write",
    [DTPI_MEM_SYNC] = "sync",         [DTPI_MEM_SYNC_LOST] = "sync_lost",
    [DTPI_MEM_PUBLISH] = "publish",   [DTPI_MEM_SYNC_DIR] = "sync_dir",
    [DTPI_MEM_MAKE_DIR] = "make_dir", [DTPI_MEM_REMOVE] = "remove",
    [DTPI_MEM_REMOVE_DIR] = "remove_dir", [DTPI_MEM_CUT] = "cut",
};

typedef struct node {
    dtpi_buf data;
    bool is_dir;
    bool locked;
} node;

typedef struct name {
    char *path;
    uint32_t node;
} name;

typedef struct names {
    name *all;
    uint32_t n, cap;
} names;

typedef struct op {
    dtpi_mem_kind kind;
    uint32_t node;
    char *path, *to;
    uint64_t at;
    dtpi_buf data;
} op;

typedef struct mem {
    dtpi_files base;
    pthread_mutex_t mutex;
    node **nodes;
    uint32_t n_nodes, cap_nodes;
    names now;
    op *ops;
    uint32_t n_ops, cap_ops;
    uint32_t n_calls, fail_at, dead_from;
    int fail_errno;
    bool fail_late;
    void (*hook)(void *user);
    void *hook_user;
    uint64_t limit, used;
} mem;

typedef struct mem_file {
    dtpi_file base;
    uint32_t node;
    bool holds_lock;
} mem_file;

static mem *mem_of(dtpi_files *files)
{
    return DTPI_CONTAINER(files, mem, base);
}

/* Room for one more of an array of `width` bytes each. */
static bool grow(const dtp_allocator *a, void *array, uint32_t n, uint32_t *cap, size_t width)
{
    void **slot = array;

    if (n < *cap)
        return true;
    const uint32_t wanted = *cap ? *cap * 2 : 16;
    void *fresh = dtpi_alloc_array(a, wanted, width);
    if (!fresh)
        return false;
    if (n)
        memcpy(fresh, *slot, n * width);
    dtpi_free(a, *slot, *cap * width);
    *slot = fresh;
    *cap = wanted;
    return true;
}

/* ---- names ---- */

static name *names_find(names *t, const char *path)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (strcmp(t->all[i].path, path) == 0)
            return &t->all[i];
    return NULL;
}

static bool names_put(const dtp_allocator *a, names *t, const char *path, uint32_t at_node)
{
    name *e = names_find(t, path);

    if (e) {
        e->node = at_node;
        return true;
    }
    char *copy = dtpi_text_dup(a, path);
    if (!copy || !grow(a, &t->all, t->n, &t->cap, sizeof(*t->all))) {
        dtpi_text_free(a, copy);
        return false;
    }
    t->all[t->n++] = (name){ copy, at_node };
    return true;
}

static void names_drop(const dtp_allocator *a, names *t, const char *path)
{
    name *e = names_find(t, path);

    if (!e)
        return;
    dtpi_text_free(a, e->path);
    *e = t->all[--t->n];
}

static void names_free(const dtp_allocator *a, names *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        dtpi_text_free(a, t->all[i].path);
    dtpi_free(a, t->all, t->cap * sizeof(*t->all));
    *t = (names){ 0 };
}

/* The part of `path` below `dir`; NULL when it is not a direct child. */
static const char *child_of(const char *dir, const char *path)
{
    const size_t len = strlen(dir);

    if (strcmp(dir, ".") == 0)
        return strchr(path, '/') ? NULL : path;
    if (strncmp(path, dir, len) != 0 || path[len] != '/' || strchr(path + len + 1, '/'))
        return NULL;
    return path + len + 1;
}

/* ---- doing and recording; with the mutex held ---- */

static dtp_status fail_errno(dtp_error *err, int e, const char *what, const char *path)
{
    errno = e;
    return dtpi_fail(err, dtpi_status_of_errno(e), "cannot %s %s: %m", what, path);
}

static bool is_dead(const mem *m)
{
    return m->dead_from && m->n_calls >= m->dead_from;
}

/* Counts a call; the one chosen to fail says so. */
static dtp_status enter(mem *m, const char *what, const char *path, dtp_error *err)
{
    if (m->hook)
        m->hook(m->hook_user);
    pthread_mutex_lock(&m->mutex);
    m->n_calls++;
    const bool dead = is_dead(m);
    if (!dead && (m->fail_at == 0 || --m->fail_at > 0))
        return DTP_OK;
    const dtp_status st = fail_errno(err, dead ? EIO : m->fail_errno, what, path);
    pthread_mutex_unlock(&m->mutex);
    return st;
}

static dtp_status leave(mem *m, dtp_status st)
{
    pthread_mutex_unlock(&m->mutex);
    return st;
}

static dtp_status node_new(mem *m, bool is_dir, uint32_t *node_out, dtp_error *err)
{
    const dtp_allocator *a = m->base.a;

    if (!grow(a, &m->nodes, m->n_nodes, &m->cap_nodes, sizeof(*m->nodes)))
        return dtpi_fail_nomem(err, 0);
    node *n = dtpi_alloc(a, sizeof(*n));
    if (!n)
        return dtpi_fail_nomem(err, sizeof(*n));
    n->data = dtpi_buf_init(a);
    n->is_dir = is_dir;
    *node_out = m->n_nodes;
    m->nodes[m->n_nodes++] = n;
    return DTP_OK;
}

static bool buf_set(dtpi_buf *b, uint64_t at, const void *data, size_t bytes)
{
    const size_t end = (size_t)at + bytes;

    if (end > b->len) {
        if (!dtpi_buf_reserve(b, end - b->len))
            return false;
        memset(b->data + b->len, 0, end - b->len);
        b->len = end;
    }
    if (bytes)
        memcpy(b->data + at, data, bytes);
    return true;
}

/* Changes the state; the operation is known to be possible. */
static dtp_status apply(mem *m, const op *o, dtp_error *err)
{
    const dtp_allocator *a = m->base.a;
    uint32_t fresh = 0;
    bool ok = true;

    switch (o->kind) {
    case DTPI_MEM_CREATE:
    case DTPI_MEM_MAKE_DIR:
        if (node_new(m, o->kind == DTPI_MEM_MAKE_DIR, &fresh, err) < 0)
            return DTP_ERR_NOMEM;
        ok = names_put(a, &m->now, o->path, fresh) &&
             buf_set(&m->nodes[fresh]->data, o->at, NULL, 0);
        break;
    case DTPI_MEM_WRITE:
        ok = buf_set(&m->nodes[o->node]->data, o->at, o->data.data, o->data.len);
        break;
    case DTPI_MEM_CUT:
        ok = buf_set(&m->nodes[o->node]->data, o->at, NULL, 0);
        m->nodes[o->node]->data.len = ok ? o->at : 0;
        break;
    case DTPI_MEM_PUBLISH:
        ok = names_put(a, &m->now, o->to, names_find(&m->now, o->path)->node);
        names_drop(a, &m->now, o->path);
        break;
    case DTPI_MEM_REMOVE:
    case DTPI_MEM_REMOVE_DIR:
        names_drop(a, &m->now, o->path);
        break;
    case DTPI_MEM_SYNC:
    case DTPI_MEM_SYNC_LOST:
    case DTPI_MEM_SYNC_DIR:
        break;
    }
    return ok ? DTP_OK : dtpi_fail_nomem(err, 0);
}

static void op_free(const dtp_allocator *a, op *o)
{
    dtpi_text_free(a, o->path);
    dtpi_text_free(a, o->to);
    dtpi_buf_free(&o->data);
}

/* Records and does it. */
static dtp_status act(mem *m, dtpi_mem_kind kind, uint32_t at_node, const char *path, const char *to,
                      uint64_t at, const void *data, size_t bytes, dtp_error *err)
{
    const dtp_allocator *a = m->base.a;
    op o = { .kind = kind, .node = at_node, .at = at, .data = dtpi_buf_init(a) };

    o.path = dtpi_text_dup(a, path);
    o.to = dtpi_text_dup(a, to);
    if (!o.path || (to && !o.to) || !dtpi_buf_append(&o.data, data, bytes) ||
        !grow(a, &m->ops, m->n_ops, &m->cap_ops, sizeof(*m->ops))) {
        op_free(a, &o);
        return dtpi_fail_nomem(err, bytes);
    }
    if (kind == DTPI_MEM_CREATE || kind == DTPI_MEM_MAKE_DIR)
        o.node = m->n_nodes;
    m->ops[m->n_ops++] = o;
    return apply(m, &m->ops[m->n_ops - 1], err);
}

/* What a call that failed did all the same; gives back its failure. */
static dtp_status act_failed(mem *m, dtp_status failure, dtpi_mem_kind kind, uint32_t at_node,
                             const char *path, uint64_t at, const void *data, size_t bytes)
{
    pthread_mutex_lock(&m->mutex);
    if (!is_dead(m))
        act(m, kind, at_node, path, NULL, at, data, bytes, NULL);
    pthread_mutex_unlock(&m->mutex);
    return failure;
}

/* ---- the operations ---- */

static void mem_close(dtpi_files *files)
{
    mem *m = mem_of(files);
    const dtp_allocator *a = files->a;

    for (uint32_t i = 0; i < m->n_nodes; i++) {
        dtpi_buf_free(&m->nodes[i]->data);
        dtpi_free(a, m->nodes[i], sizeof(node));
    }
    for (uint32_t i = 0; i < m->n_ops; i++)
        op_free(a, &m->ops[i]);
    dtpi_free(a, m->nodes, m->cap_nodes * sizeof(*m->nodes));
    dtpi_free(a, m->ops, m->cap_ops * sizeof(*m->ops));
    names_free(a, &m->now);
    pthread_mutex_destroy(&m->mutex);
    dtpi_free(a, m, sizeof(*m));
}

static bool has_parent(mem *m, const char *path)
{
    char up[DTPI_PATH_MAX];
    const char *slash = strrchr(path, '/');

    if (!slash || slash == path)
        return true;
    snprintf(up, sizeof(up), "%.*s", (int)(slash - path), path);
    const name *e = names_find(&m->now, up);
    return e && m->nodes[e->node]->is_dir;
}

static dtp_status file_new(mem *m, const char *path, uint32_t at_node, dtpi_file **file_out,
                           dtp_error *err)
{
    mem_file *f = dtpi_alloc(m->base.a, sizeof(*f));
    char *copy = dtpi_text_dup(m->base.a, path);

    if (!f || !copy) {
        dtpi_text_free(m->base.a, copy);
        dtpi_free(m->base.a, f, sizeof(*f));
        return dtpi_fail_nomem(err, sizeof(*f));
    }
    *f = (mem_file){ .base = { &m->base, copy }, .node = at_node };
    *file_out = &f->base;
    return DTP_OK;
}

static dtp_status mem_create(dtpi_files *files, const char *path, uint64_t bytes,
                             dtpi_file **file_out, dtp_error *err)
{
    mem *m = mem_of(files);

    dtp_status st = enter(m, "create", path, err);
    if (st < 0)
        return st;
    if (names_find(&m->now, path))
        return leave(m, fail_errno(err, EEXIST, "create", path));
    if (!has_parent(m, path))
        return leave(m, fail_errno(err, ENOENT, "create", path));
    if (m->used + bytes > m->limit) {
        errno = ENOSPC;
        return leave(m, dtpi_fail(err, DTP_ERR_NOSPC,
                                  "no space for %s: %llu bytes wanted, %llu missing", path,
                                  (unsigned long long)bytes,
                                  (unsigned long long)(m->used + bytes - m->limit)));
    }
    st = act(m, DTPI_MEM_CREATE, 0, path, NULL, bytes, NULL, 0, err);
    m->used += st >= 0 ? bytes : 0;
    if (st >= 0)
        st = file_new(m, path, names_find(&m->now, path)->node, file_out, err);
    return leave(m, st);
}

static dtp_status mem_open(dtpi_files *files, const char *path, dtpi_file **file_out,
                           uint64_t *bytes_out, dtp_error *err)
{
    mem *m = mem_of(files);

    dtp_status st = enter(m, "open", path, err);
    if (st < 0)
        return st;
    const name *e = names_find(&m->now, path);
    if (!e)
        return leave(m, fail_errno(err, ENOENT, "open", path));
    if (m->nodes[e->node]->is_dir)
        return leave(m, dtpi_fail(err, DTP_ERR_FORMAT, "%s is not a plain file", path));
    st = file_new(m, path, e->node, file_out, err);
    if (st >= 0)
        *bytes_out = m->nodes[e->node]->data.len;
    return leave(m, st);
}

static dtp_status mem_write(dtpi_file *file, uint64_t at, const void *data, size_t bytes,
                            dtp_error *err)
{
    mem *m = mem_of(file->files);
    mem_file *f = DTPI_CONTAINER(file, mem_file, base);

    dtp_status st = enter(m, "write", file->path, err);
    if (st < 0)
        return act_failed(m, st, DTPI_MEM_WRITE, f->node, file->path, at, data, bytes / 2);
    const uint64_t len = m->nodes[f->node]->data.len;
    const uint64_t more = at + bytes > len ? at + bytes - len : 0;
    if (m->used + more > m->limit) {
        errno = ENOSPC;
        return leave(m, dtpi_fail(err, DTP_ERR_NOSPC,
                                  "no space for %s: %llu bytes wanted, %llu missing", file->path,
                                  (unsigned long long)(at + bytes),
                                  (unsigned long long)(m->used + more - m->limit)));
    }
    st = act(m, DTPI_MEM_WRITE, f->node, file->path, NULL, at, data, bytes, err);
    if (st >= 0)
        m->used += more;
    return leave(m, st);
}

static dtp_status mem_read(dtpi_file *file, uint64_t at, void *data, size_t bytes, dtp_error *err)
{
    mem *m = mem_of(file->files);
    mem_file *f = DTPI_CONTAINER(file, mem_file, base);

    const dtp_status st = enter(m, "read", file->path, err);
    if (st < 0)
        return st;
    const dtpi_buf *b = &m->nodes[f->node]->data;
    if (at > b->len || bytes > b->len - at)
        return leave(m,
                     dtpi_fail(err, DTP_ERR_TRUNCATED, "%s ends at byte %zu, %llu bytes too early",
                               file->path, b->len, (unsigned long long)(at + bytes - b->len)));
    if (bytes)
        memcpy(data, b->data + at, bytes);
    return leave(m, DTP_OK);
}

static dtp_status mem_set_size(dtpi_file *file, uint64_t bytes, dtp_error *err)
{
    mem *m = mem_of(file->files);
    mem_file *f = DTPI_CONTAINER(file, mem_file, base);

    dtp_status st = enter(m, "cut", file->path, err);
    if (st < 0)
        return st;
    const uint64_t len = m->nodes[f->node]->data.len;
    st = act(m, DTPI_MEM_CUT, f->node, file->path, NULL, bytes, NULL, 0, err);
    if (st >= 0)
        m->used = m->used + bytes - len;
    return leave(m, st);
}

static dtp_status mem_sync(dtpi_file *file, dtp_error *err)
{
    mem *m = mem_of(file->files);
    mem_file *f = DTPI_CONTAINER(file, mem_file, base);

    const dtp_status st = enter(m, "sync", file->path, err);
    if (st < 0)
        return act_failed(m, st, DTPI_MEM_SYNC_LOST, f->node, file->path, 0, NULL, 0);
    return leave(m, act(m, DTPI_MEM_SYNC, f->node, file->path, NULL, 0, NULL, 0, err));
}

static dtp_status mem_close_file(dtpi_file *file, dtp_error *err)
{
    mem *m = mem_of(file->files);
    mem_file *f = DTPI_CONTAINER(file, mem_file, base);
    const dtp_allocator *a = m->base.a;

    const dtp_status st = enter(m, "close", file->path, err);
    if (st < 0) {
        pthread_mutex_lock(&m->mutex);
        if (!is_dead(m))
            act(m, DTPI_MEM_SYNC_LOST, f->node, file->path, NULL, 0, NULL, 0, NULL);
    }
    if (f->holds_lock)
        m->nodes[f->node]->locked = false;
    leave(m, st);
    dtpi_text_free(a, file->path);
    dtpi_free(a, f, sizeof(*f));
    return st;
}

/* A rename that fails late was done: the answer of a server got lost. */
static dtp_status mem_publish(dtpi_files *files, const char *from, const char *to, bool replace,
                              dtp_error *err)
{
    mem *m = mem_of(files);

    const dtp_status failed = enter(m, "rename", from, err);
    if (failed < 0)
        pthread_mutex_lock(&m->mutex);
    if (failed < 0 && (!m->fail_late || is_dead(m)))
        return leave(m, failed);
    if (!names_find(&m->now, from))
        return leave(m, fail_errno(err, ENOENT, "rename", from));
    if (!replace && names_find(&m->now, to))
        return leave(m, dtpi_fail(err, DTP_ERR_EXISTS, "%s is already there", to));
    const dtp_status st = act(m, DTPI_MEM_PUBLISH, names_find(&m->now, from)->node, from, to, 0,
                              NULL, 0, failed < 0 ? NULL : err);
    return leave(m, failed < 0 ? failed : st);
}

/* The working folder, where paths begin, is nobody's node. */
static uint32_t dir_node(mem *m, const char *path)
{
    const name *e = names_find(&m->now, path);

    return e ? e->node : DTPI_MEM_ROOT;
}

static dtp_status mem_sync_dir(dtpi_files *files, const char *path, dtp_error *err)
{
    mem *m = mem_of(files);

    const dtp_status st = enter(m, "sync", path, err);
    if (st < 0)
        pthread_mutex_lock(&m->mutex);
    if (is_dead(m))
        return leave(m, st);
    const dtp_status done = act(m, st < 0 ? DTPI_MEM_SYNC_LOST : DTPI_MEM_SYNC_DIR,
                                dir_node(m, path), path, NULL, 0, NULL, 0, st < 0 ? NULL : err);
    return leave(m, st < 0 ? st : done);
}

static dtp_status mem_make_dir(dtpi_files *files, const char *path, bool *made_out, dtp_error *err)
{
    mem *m = mem_of(files);

    const dtp_status st = enter(m, "make folder", path, err);
    if (st < 0)
        return st;
    const name *e = names_find(&m->now, path);
    if (e && !m->nodes[e->node]->is_dir)
        return leave(m, dtpi_fail(err, DTP_ERR_EXISTS, "%s is not a folder", path));
    *made_out = !e;
    if (e)
        return leave(m, DTP_OK);
    if (!has_parent(m, path))
        return leave(m, fail_errno(err, ENOENT, "make folder", path));
    return leave(m, act(m, DTPI_MEM_MAKE_DIR, 0, path, NULL, 0, NULL, 0, err));
}

/* The names are copied first: `each` may remove what it is told. */
static dtp_status mem_list(dtpi_files *files, const char *path,
                           dtp_status (*each)(void *user, const char *name, dtp_error *err),
                           void *user, dtp_error *err)
{
    mem *m = mem_of(files);
    DTPI_AUTO_BUF dtpi_buf all = dtpi_buf_init(files->a);

    dtp_status st = enter(m, "read folder", path, err);
    if (st < 0)
        return st;
    const name *dir = names_find(&m->now, path);
    if (strcmp(path, ".") != 0 && (!dir || !m->nodes[dir->node]->is_dir))
        return leave(m, fail_errno(err, ENOENT, "read folder", path));
    for (uint32_t i = 0; i < m->now.n; i++) {
        const char *child = child_of(path, m->now.all[i].path);
        if (child)
            dtpi_buf_append(&all, child, strlen(child) + 1);
    }
    leave(m, DTP_OK);
    if (all.failed)
        return dtpi_fail_nomem(err, 0);
    for (size_t at = 0; st >= 0 && at < all.len; at += strlen((char *)all.data + at) + 1)
        st = each(user, (const char *)all.data + at, err);
    return st;
}

static dtp_status mem_size(dtpi_files *files, const char *path, uint64_t *bytes_out, dtp_error *err)
{
    mem *m = mem_of(files);

    const dtp_status st = enter(m, "look at", path, err);
    if (st < 0)
        return st;
    const name *e = names_find(&m->now, path);
    if (!e)
        return leave(m, fail_errno(err, ENOENT, "look at", path));
    *bytes_out = m->nodes[e->node]->data.len;
    return leave(m, DTP_OK);
}

static dtp_status remove_name(dtpi_files *files, const char *path, bool is_dir, dtp_error *err)
{
    mem *m = mem_of(files);

    const dtp_status st = enter(m, "remove", path, err);
    if (st < 0)
        return st;
    const name *e = names_find(&m->now, path);
    if (!e || m->nodes[e->node]->is_dir != is_dir)
        return leave(m, fail_errno(err, ENOENT, "remove", path));
    for (uint32_t i = 0; is_dir && i < m->now.n; i++)
        if (child_of(path, m->now.all[i].path))
            return leave(m, fail_errno(err, ENOTEMPTY, "remove", path));
    m->used -= DTPI_MIN(m->used, (uint64_t)m->nodes[e->node]->data.len);
    return leave(m, act(m, is_dir ? DTPI_MEM_REMOVE_DIR : DTPI_MEM_REMOVE, e->node, path, NULL, 0, NULL, 0, err));
}

static dtp_status mem_remove(dtpi_files *files, const char *path, dtp_error *err)
{
    return remove_name(files, path, false, err);
}

static dtp_status mem_remove_dir(dtpi_files *files, const char *path, dtp_error *err)
{
    return remove_name(files, path, true, err);
}

static dtp_status mem_lock(dtpi_files *files, const char *path, dtpi_file **file_out,
                           dtp_error *err)
{
    mem *m = mem_of(files);

    dtp_status st = enter(m, "lock", path, err);
    if (st < 0)
        return st;
    if (!names_find(&m->now, path))
        st = act(m, DTPI_MEM_CREATE, 0, path, NULL, 0, NULL, 0, err);
    if (st < 0)
        return leave(m, st);
    const uint32_t at_node = names_find(&m->now, path)->node;
    if (m->nodes[at_node]->locked)
        return leave(m, dtpi_fail(err, DTP_ERR_BUSY, "another process holds %s", path));
    st = file_new(m, path, at_node, file_out, err);
    if (st >= 0) {
        m->nodes[at_node]->locked = true;
        DTPI_CONTAINER(*file_out, mem_file, base)->holds_lock = true;
    }
    return leave(m, st);
}

static const struct dtpi_files_ops mem_ops = {
    .name = "mem",
    .close = mem_close,
    .create = mem_create,
    .open = mem_open,
    .write = mem_write,
    .read = mem_read,
    .set_size = mem_set_size,
    .sync = mem_sync,
    .close_file = mem_close_file,
    .publish = mem_publish,
    .sync_dir = mem_sync_dir,
    .make_dir = mem_make_dir,
    .list = mem_list,
    .size = mem_size,
    .remove = mem_remove,
    .remove_dir = mem_remove_dir,
    .lock = mem_lock,
};

dtp_status dtpi_files_mem_open(const dtp_allocator *a, dtpi_files **files_out, dtp_error *err)
{
    mem *m = dtpi_alloc(a, sizeof(*m));

    if (!m)
        return dtpi_fail_nomem(err, sizeof(*m));
    m->base = (dtpi_files){ .ops = &mem_ops, .a = a };
    m->limit = UINT64_MAX;
    pthread_mutex_init(&m->mutex, NULL);
    *files_out = &m->base;
    return DTP_OK;
}

/* ---- for tests ---- */

uint32_t dtpi_files_mem_n_ops(dtpi_files *files)
{
    return mem_of(files)->n_ops;
}

uint32_t dtpi_files_mem_n_calls(dtpi_files *files)
{
    return mem_of(files)->n_calls;
}

void dtpi_files_mem_op_text(dtpi_files *files, uint32_t i, char *text_out, size_t room)
{
    const op *o = &mem_of(files)->ops[i];

    snprintf(text_out, room, "%s %s%s%s %llu+%zu", op_names[o->kind], o->path, o->to ? " " : "",
             o->to ? o->to : "", (unsigned long long)o->at, o->data.len);
}

void dtpi_files_mem_op(dtpi_files *files, uint32_t i, dtpi_mem_op *op_out)
{
    const op *o = &mem_of(files)->ops[i];

    *op_out = (dtpi_mem_op){ o->kind, o->node, o->path, o->to, o->at, o->data.data, o->data.len };
}

void dtpi_files_mem_hook(dtpi_files *files, void (*hook)(void *user), void *user)
{
    mem_of(files)->hook = hook;
    mem_of(files)->hook_user = user;
}

void dtpi_files_mem_fail_late(dtpi_files *files, bool late)
{
    mem_of(files)->fail_late = late;
}

void dtpi_files_mem_fail(dtpi_files *files, uint32_t nth, int e)
{
    mem_of(files)->fail_at = nth;
    mem_of(files)->fail_errno = e;
}

void dtpi_files_mem_die(dtpi_files *files, uint32_t nth)
{
    mem *m = mem_of(files);

    m->dead_from = nth ? m->n_calls + nth : 0;
}

void dtpi_files_mem_limit(dtpi_files *files, uint64_t bytes)
{
    mem_of(files)->limit = bytes;
}

static node *node_at(dtpi_files *files, const char *path)
{
    const name *e = names_find(&mem_of(files)->now, path);

    return e ? mem_of(files)->nodes[e->node] : NULL;
}

dtp_status dtpi_files_mem_flip(dtpi_files *files, const char *path, uint64_t at, uint8_t mask,
                               dtp_error *err)
{
    node *n = node_at(files, path);

    if (!n)
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "no file %s", path);
    if (at >= n->data.len)
        return dtpi_fail(err, DTP_ERR_RANGE, "%s has %zu bytes", path, n->data.len);
    n->data.data[at] ^= mask;
    return DTP_OK;
}

dtp_status dtpi_files_mem_resize(dtpi_files *files, const char *path, uint64_t bytes,
                                 dtp_error *err)
{
    node *n = node_at(files, path);

    if (!n)
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "no file %s", path);
    if (bytes > n->data.len && !buf_set(&n->data, bytes, NULL, 0))
        return dtpi_fail_nomem(err, bytes);
    n->data.len = bytes;
    return DTP_OK;
}
