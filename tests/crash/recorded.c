/* SPDX-License-Identifier: Apache-2.0 */
/* recorded.c - reads a log; inode numbers, which come again, become numbers of their own. */
#include "crash/recorded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "crash/record.h"

typedef struct inodes {
    uint64_t inode[CRASH_MAX_NODES];
    uint32_t n;
    uint64_t root;
} inodes;

/* The newest file of a number; CRASH_MAX_NODES: none. */
static uint32_t node_of(const inodes *t, uint64_t inode)
{
    for (uint32_t i = t->n; i-- > 0;)
        if (t->inode[i] == inode)
            return i;
    return inode == t->root ? CRASH_ROOT : CRASH_MAX_NODES;
}

static char *read_whole(const char *path, size_t *n_out)
{
    FILE *f = fopen(path, "rb");
    struct stat s;
    char *p = NULL;

    if (!f)
        return NULL;
    if (fstat(fileno(f), &s) == 0)
        p = malloc((size_t)s.st_size + 1);
    if (p && fread(p, 1, (size_t)s.st_size, f) == (size_t)s.st_size)
        *n_out = (size_t)s.st_size;
    fclose(f);
    return p;
}

/* Texts end with NUL in a copy of their own. */
static char *copy_text(char **free_at, const char *text, size_t n)
{
    char *p = *free_at;

    memcpy(p, text, n);
    p[n] = '\0';
    *free_at += n + 1;
    return p;
}

static int add_op(recorded *r, inodes *t, const record_head *h, const char *body, char **texts)
{
    crash_op op = { .kind = (crash_kind)h->kind, .at = h->at, .bytes = h->bytes };

    op.path = copy_text(texts, body, h->path_bytes);
    if (h->to_bytes)
        op.to = copy_text(texts, body + h->path_bytes, h->to_bytes);
    op.data = (const uint8_t *)body + h->path_bytes + h->to_bytes;
    if (op.kind == CRASH_CREATE || op.kind == CRASH_MAKE_DIR) {
        if (t->n == CRASH_MAX_NODES)
            return -1;
        t->inode[t->n++] = h->inode;
    }
    op.node = node_of(t, h->inode);
    if (op.node == CRASH_MAX_NODES) {
        fprintf(stderr, "recorded: %s is not a file that was made here\n", op.path);
        return -1;
    }
    if (op.kind == CRASH_GROW && op.at == 0)
        return 0;
    r->ops[r->n++] = op;
    return 0;
}

static int read_all(recorded *r, inodes *t, size_t n)
{
    char *texts = r->bytes + n;

    for (size_t at = 0; at < n;) {
        record_head h;
        if (n - at < sizeof(h))
            return -1;
        memcpy(&h, r->bytes + at, sizeof(h));
        at += sizeof(h);
        if (h.bytes > n - at || (uint64_t)h.path_bytes + h.to_bytes > n - at - h.bytes)
            return -1;
        if (h.kind == RECORD_MARK)
            r->marks[r->n_marks++] = (recorded_mark){ h.at, r->n };
        else if (h.kind > CRASH_SYNC_DIR || add_op(r, t, &h, r->bytes + at, &texts) < 0)
            return -1;
        at += h.path_bytes + h.to_bytes + h.bytes;
    }
    return 0;
}

int recorded_read(recorded *r, const char *log, const char *dir)
{
    inodes *t = calloc(1, sizeof(*t));
    struct stat s;
    size_t n = 0;
    int rc = -1;

    *r = (recorded){ 0 };
    char *raw = read_whole(log, &n);
    if (raw && t && stat(dir, &s) == 0) {
        /* Texts grow by a byte each, and a record has more than two of those. */
        r->bytes = malloc(2 * n + 16);
        r->ops = calloc(n / sizeof(record_head) + 1, sizeof(*r->ops));
        r->marks = calloc(n / sizeof(record_head) + 1, sizeof(*r->marks));
        t->root = s.st_ino;
        if (r->bytes && r->ops && r->marks) {
            memcpy(r->bytes, raw, n);
            rc = read_all(r, t, n);
        }
    }
    free(raw);
    free(t);
    return rc;
}

void recorded_free(recorded *r)
{
    free(r->ops);
    free(r->marks);
    free(r->bytes);
}
