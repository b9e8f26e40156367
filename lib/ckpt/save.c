/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - the protocol of a save:
 *
 *   rank 0 makes the step's folder and takes the lock -> all declare their boxes -> each computes the
 *   same plan -> each writes its shard and its part under names of this save, syncs and renames
 *   them -> all acknowledge -> rank 0 publishes the manifest -> all hear the verdict.
 *
 * There are three exchanges whatever happens, so that no rank waits for one that gave up: a rank that
 * failed says so in the next exchange, and the failure of the lowest rank becomes everybody's.
 */
#include "ckpt/save.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "ckpt/manifest.h"
#include "ckpt/msg.h"
#include "base/sum.h"
#include "ckpt/part.h"
#include "ckpt/plan.h"
#include "ckpt/retain.h"
#include "ckpt/shard.h"
#include "ckpt/steps.h"

static const char *const codec_names[] = { [DTP_CODEC_NONE] = "none", [DTP_CODEC_ZSTD] = "zstd",
                                           [DTP_CODEC_PLANES] = "planes" };

typedef struct save {
    const dtpi_save_in *in;
    dtp_error failure;          /* of this rank; status 0: none */
    dtp_error agreed;           /* of all; status 0: none */
    dtpi_declare declare;       /* of rank 0, after the first exchange */
    dtpi_file *lock;            /* rank 0's */
    dtpi_pieces declared, acks;
    dtpi_plan plan;
    dtpi_written written;
    uint32_t chunk_bytes;
    uint64_t parent_id;         /* rank 0's; 0: there is no parent */
    dtpi_lineage lineage;       /* rank 0's: the parent, then what it refers to */
    uint32_t used;              /* rank 0's: bits of the lineage that parts refer to */
    bool prepared;              /* rank 0 holds the step's folder */
    bool made_shard, made_part;
    bool root_failed;           /* rank 0 said so */
    bool abandoned;             /* known by all before rank 0 could publish */
    char step_dir[DTPI_PATH_MAX], shard[DTPI_PATH_MAX], part[DTPI_PATH_MAX];
} save;

static bool is_well(const save *s)
{
    return s->failure.status >= 0 && s->agreed.status >= 0;
}

static void note(save *s, dtp_status st, const dtp_error *err)
{
    if (st >= 0 || s->failure.status < 0)
        return;
    s->failure = *err;
    s->failure.status = st;
}

static void look_canceled(save *s)
{
    dtp_error err = { 0 };

    if (s->in->canceled && atomic_load(s->in->canceled))
        note(s, dtpi_fail(&err, DTP_ERR_CANCELED, "the save of step %" PRIu64 " was cancelled",
                          s->in->step), &err);
}

/* ---- before the first exchange ---- */

static dtp_status check_opts(const save *s, dtp_error *err)
{
    const dtp_ckpt_save_opts *o = s->in->opts;

    if ((unsigned)o->codec >= DTPI_ARRAY_LEN(codec_names))
        return dtpi_fail(err, DTP_ERR_INVAL, "unknown codec %d", (int)o->codec);
    if (s->chunk_bytes < DTPI_CHUNK_MIN || s->chunk_bytes > DTPI_CHUNK_MAX ||
        s->chunk_bytes % DTPI_CHUNK_MIN)
        return dtpi_fail(err, DTP_ERR_INVAL, "chunk_bytes %u is not a multiple of %d up to %d",
                         s->chunk_bytes, DTPI_CHUNK_MIN, DTPI_CHUNK_MAX);
    return o->meta_json ? dtpi_manifest_check_meta(o->meta_json, err) : DTP_OK;
}

static dtp_status check_tensors(const save *s, dtp_error *err)
{
    for (size_t i = 0; i < s->in->n_tensors; i++) {
        const dtp_ckpt_tensor *t = &s->in->tensors[i];
        const dtp_status st = dtpi_plan_check(t, err);
        if (st < 0)
            return st;
        const int64_t *extent = t->extent ? t->extent : t->shape;
        bool empty = false;
        for (uint32_t d = 0; d < t->n_dims; d++)
            empty |= extent[d] == 0;
        if (!t->data && !empty)
            return dtpi_fail(err, DTP_ERR_INVAL, "tensor %.80s has no data", t->name);
    }
    return DTP_OK;
}

/* What an earlier save left of this step; a complete step is refused. */
static dtp_status clear_step(save *s, dtp_error *err)
{
    dtpi_files *files = s->in->files;
    dtp_error why = { 0 };

    const dtp_status st = dtpi_step_check(files, s->in->dir, s->in->step, &why);
    if (st >= 0)
        return dtpi_fail(err, DTP_ERR_EXISTS, "step %" PRIu64 " is already complete in %s",
                         s->in->step, s->in->dir);
    if (!dtpi_step_is_damaged(st)) {
        if (err)
            *err = why;
        return st;
    }
    if (st != DTP_ERR_NOT_FOUND)
        dtpi_logf(s->in->log, DTP_LOG_WARN, "ckpt", "damaged step is replaced: %s", why.text);
    bool is_needed = false;
    const dtp_status seen = dtpi_step_needed(files, s->in->dir, s->in->step, &is_needed, err);
    if (seen < 0)
        return seen;
    return dtpi_step_clean(files, s->step_dir, is_needed, s->in->opts->no_sync, err);
}

/* The newest complete step before this one; where there is none, or none can be looked at, all is new. */
static dtp_status find_parent(save *s, dtp_error *err)
{
    dtpi_manifest m;

    const dtp_status st =
        dtpi_steps_before(s->in->files, s->in->log, s->in->dir, s->in->step, &m, err);
    if (st < 0)
        return st == DTP_ERR_NOMEM ? st : DTP_OK;
    s->parent_id = m.id;
    dtpi_lineage_after(&m, &s->lineage);
    dtpi_manifest_free(&m);
    return DTP_OK;
}

/* Rank 0: folder, lock, no remains. */
static dtp_status prepare(save *s, dtp_error *err)
{
    dtpi_files *files = s->in->files;
    const bool no_sync = s->in->opts->no_sync;
    char path[DTPI_PATH_MAX];

    dtp_status st = dtpi_files_make_dirs(files, s->in->dir, no_sync, err);
    if (st >= 0)
        st = dtpi_path_join(path, s->in->dir, ".lock", err);
    if (st >= 0 && files->ops->lock)
        st = files->ops->lock(files, path, &s->lock, err);
    if (st < 0)
        return st;
    s->prepared = true;
    st = dtpi_files_make_dirs(files, s->step_dir, no_sync, err);
    if (st >= 0)
        st = clear_step(s, err);
    if (st >= 0 && s->in->opts->delta)
        st = find_parent(s, err);
    return st;
}

static void begin(save *s)
{
    const dtpi_save_in *in = s->in;
    dtp_error err = { 0 };

    if (in->failure) {
        note(s, in->failure->status, in->failure);
        return;
    }
    s->chunk_bytes = in->opts->chunk_bytes ? in->opts->chunk_bytes : (uint32_t)DTPI_CHUNK_DEFAULT;
    dtp_status st = dtpi_step_path(s->step_dir, in->dir, in->step, &err);
    if (st >= 0)
        st = check_opts(s, &err);
    if (st >= 0)
        st = check_tensors(s, &err);
    if (st >= 0 && in->link->rank == 0)
        st = prepare(s, &err);
    note(s, st, &err);
}

/* ---- exchanges ---- */

/* The lowest rank that failed speaks for all. */
static void agree(save *s, int32_t rank, const dtp_error *failure)
{
    if (failure->status >= 0 || s->agreed.status < 0)
        return;
    s->agreed = *failure;
    if (failure->rank >= 0)     /* names ranks already */
        return;
    if (s->in->link->size > 1) {
        dtp_error prefixed;
        dtpi_fail_rank(&prefixed, failure->status, rank, "rank %d: %s", rank, failure->text);
        prefixed.sys_errno = failure->sys_errno;
        s->agreed = prefixed;
    }
}

/*
 * Sends and gathers; heads are read, `out` keeps the pieces. A failure means that the ranks cannot talk,
 * or (NOMEM) that this one cannot listen and says so next time.
 */
static dtp_status exchange(save *s, uint8_t kind, const dtpi_buf *msg, dtpi_pieces *out,
                           dtp_error *err)
{
    dtp_status st = dtpi_link_exchange(s->in->a, s->in->link, msg->data, msg->len, out, err);

    for (int32_t i = 0; st >= 0 && i < s->in->link->size; i++) {
        dtpi_rd r = dtpi_rd_init(out->data.data + out->at[i], out->at[i + 1] - out->at[i]);
        dtp_error failure;
        st = dtpi_msg_open(&r, kind, i, &failure, err);
        if (st >= 0)
            agree(s, i, &failure);
        s->root_failed |= st >= 0 && i == 0 && failure.status < 0;
    }
    return st;
}

/* What follows the head of a rank's message. */
static dtpi_rd body(const dtpi_pieces *p, uint8_t kind, int32_t rank)
{
    dtpi_rd r = dtpi_rd_init(p->data.data + p->at[rank], p->at[rank + 1] - p->at[rank]);
    dtp_error failure;

    dtpi_msg_open(&r, kind, rank, &failure, NULL);
    return r;
}

/* A message that could not be built says so. */
static void seal(save *s, dtpi_buf *msg, uint8_t kind)
{
    dtp_error err = { 0 };

    if (!msg->failed)
        return;
    note(s, dtpi_fail_nomem(&err, msg->len), &err);
    dtpi_buf_free(msg);
    *msg = dtpi_buf_init(s->in->a);
    dtpi_msg_begin(msg, kind, &s->failure);
}

static dtp_status declare(save *s, dtp_error *err)
{
    const dtpi_save_in *in = s->in;
    DTPI_AUTO_BUF dtpi_buf msg = dtpi_buf_init(in->a);
    const char *meta = in->opts->meta_json ? in->opts->meta_json : "{}";
    const bool first = in->link->rank == 0;
    const dtpi_declare d = {
        .step = in->step,
        .chunk_bytes = s->chunk_bytes,
        .codec = (uint8_t)in->opts->codec,
        .id = first ? in->id : 0,
        .parent = s->lineage.steps[0],
        .parent_id = s->parent_id,
        .meta = (const uint8_t *)meta,
        .meta_bytes = first ? strlen(meta) : 0,
    };

    dtpi_msg_begin(&msg, DTPI_MSG_DECLARE, &s->failure);
    if (is_well(s))
        dtpi_msg_put_declare(&msg, &d, in->tensors, in->n_tensors);
    seal(s, &msg, DTPI_MSG_DECLARE);
    return exchange(s, DTPI_MSG_DECLARE, &msg, &s->declared, err);
}

/* ---- the plan ---- */

static dtp_status compare(const save *s, const dtpi_declare *d, int32_t rank, dtp_error *err)
{
    const dtpi_declare *a = &s->declare;

    if (d->step != a->step)
        return dtpi_fail_rank(err, DTP_ERR_INVAL, rank,
                              "rank 0 saves step %" PRIu64 ", rank %d step %" PRIu64, a->step, rank,
                              d->step);
    if (d->codec != a->codec || d->chunk_bytes != a->chunk_bytes)
        return dtpi_fail_rank(
            err, DTP_ERR_INVAL, rank,
            "rank 0 saves with codec %u and chunks of %u bytes, rank %d with %u and %u", a->codec,
            a->chunk_bytes, rank, d->codec, d->chunk_bytes);
    return DTP_OK;
}

static dtp_status make_plan(save *s, dtp_error *err)
{
    size_t n_boxes = 0, n_numbers = 0, boxes, numbers;

    for (int32_t i = 0; i < s->in->link->size; i++) {
        dtpi_msg_measure(body(&s->declared, DTPI_MSG_DECLARE, i), &boxes, &numbers);
        n_boxes += boxes;
        n_numbers += numbers;
    }
    dtp_status st = dtpi_plan_reserve(&s->plan, n_boxes, n_numbers, err);
    for (int32_t i = 0; i < s->in->link->size && st >= 0; i++) {
        dtpi_rd r = body(&s->declared, DTPI_MSG_DECLARE, i);
        dtpi_declare d;
        st = dtpi_msg_get_declare(&r, i, &d, &s->plan, err);
        if (i == 0)
            s->declare = d;
        if (st >= 0)
            st = compare(s, &d, i, err);
    }
    return st < 0 ? st : dtpi_plan_finish(&s->plan, err);
}

/* ---- the shard ---- */

static void shard_name(const save *s, int32_t rank, char *name_out, size_t room)
{
    snprintf(name_out, room, "shard-%05d-of-%05d.%016" PRIx64 ".safetensors", rank,
             s->in->link->size, s->declare.id);
}

static void part_name(const save *s, int32_t rank, char *name_out, size_t room)
{
    snprintf(name_out, room, "part-%05d-of-%05d.%016" PRIx64 ".bin", rank, s->in->link->size,
             s->declare.id);
}

static dtp_status write_shard(save *s, dtpi_delta *delta, dtpi_part *part, dtp_error *err)
{
    dtpi_files *files = s->in->files;
    char name[96], temp[DTPI_PATH_MAX + 8];

    shard_name(s, s->in->link->rank, name, sizeof(name));
    dtp_status st = dtpi_path_join(s->shard, s->step_dir, name, err);
    if (st < 0)
        return st;
    snprintf(temp, sizeof(temp), "%s.tmp", s->shard);
    const dtpi_shard_in in = {
        .ctx = s->in->ctx,
        .files = files,
        .path = temp,
        .plan = &s->plan,
        .delta = delta,
        .layout = &delta->stored,
        .tensors = s->in->tensors,
        .codec = codec_names[s->in->opts->codec],
        .chunk_bytes = s->chunk_bytes,
        .step = s->in->step,
        .id = s->declare.id,
        .rank = s->in->link->rank,
        .world_size = s->in->link->size,
        .no_sync = s->in->opts->no_sync,
    };
    st = dtpi_shard_write(s->in->a, &in, part, &s->written, err);
    if (st < 0)
        return st;
    st = files->ops->publish(files, temp, s->shard, false, err);
    if (st < 0) {
        files->ops->remove(files, temp, NULL);
        return st;
    }
    s->made_shard = true;
    return DTP_OK;
}

/* Where the shard's boxes lie; the sync of the folder makes both names durable. */
static dtp_status write_part(save *s, dtpi_part *part, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(s->in->a);
    char name[96], temp[DTPI_PATH_MAX + 8];

    part_name(s, s->in->link->rank, name, sizeof(name));
    dtp_status st = dtpi_path_join(s->part, s->step_dir, name, err);
    if (st >= 0)
        st = dtpi_part_write(part, &text, err);
    if (st < 0)
        return st;
    snprintf(temp, sizeof(temp), "%s.tmp", s->part);
    s->written.part_bytes = text.len;
    s->written.part_sum = dtpi_sum64(text.data, text.len);
    s->made_part = true;
    return dtpi_files_publish_all(s->in->files, s->step_dir, temp, s->part, text.data, text.len,
                                  s->in->opts->no_sync, err);
}

static dtp_status write_files(save *s, const dtpi_layout *layout, dtp_error *err)
{
    const dtpi_delta_in in = {
        .files = s->in->files,
        .log = s->in->log,
        .plan = &s->plan,
        .layout = layout,
        .tensors = s->in->tensors,
        .codec = codec_names[s->in->opts->codec],
        .chunk_bytes = s->chunk_bytes,
        .dir = s->in->dir,
        .parent = s->declare.parent,
        .parent_id = s->declare.parent_id,
    };
    dtpi_delta delta;
    dtpi_part part;

    dtpi_part_init(&part, s->in->a);
    dtp_status st = dtpi_delta_decide(s->in->a, &in, &delta, err);
    if (st >= 0)
        st = write_shard(s, &delta, &part, err);
    if (st >= 0)
        st = write_part(s, &part, err);
    s->written.lineage = (uint16_t)delta.used;
    dtpi_part_free(&part);
    dtpi_delta_free(&delta);
    return st;
}

static void plan_and_write(save *s)
{
    dtpi_layout layout = { 0 };
    dtp_error err = { 0 };

    if (!is_well(s))
        return;
    dtp_status st = make_plan(s, &err);
    if (st >= 0)
        st = dtpi_layout_make(&s->plan, s->in->link->rank, &layout, &err);
    if (st >= 0 && layout.n > 0)
        st = write_files(s, &layout, &err);
    dtpi_layout_free(&layout);
    note(s, st, &err);
}

static dtp_status acknowledge(save *s, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf msg = dtpi_buf_init(s->in->a);

    dtpi_msg_begin(&msg, DTPI_MSG_ACK, &s->failure);
    if (is_well(s))
        dtpi_msg_put_written(&msg, &s->written);
    seal(s, &msg, DTPI_MSG_ACK);
    return exchange(s, DTPI_MSG_ACK, &msg, &s->acks, err);
}

/* ---- the manifest ---- */

/* A rank's files, and which boxes are in them; the keys by box of the plan. */
static void add_files(save *s, dtpi_manifest *m, uint32_t *keys, int32_t rank,
                      const dtpi_written *w, const dtpi_layout *layout)
{
    char name[96], part[96];

    shard_name(s, rank, name, sizeof(name));
    part_name(s, rank, part, sizeof(part));
    const dtpi_mf_file f = {
        .name_at = (uint32_t)m->text.len,
        .part_at = (uint32_t)(m->text.len + strlen(name) + 1),
        .rank = rank,
        .step = m->step,
        .bytes = w->bytes,
        .header_bytes = w->header_bytes,
        .header_sum = w->header_sum,
        .digest = w->digest,
        .part_bytes = w->part_bytes,
        .part_sum = w->part_sum,
    };
    dtpi_buf_append(&m->text, name, strlen(name) + 1);
    dtpi_buf_append(&m->text, part, strlen(part) + 1);
    dtpi_buf_append(&m->file_buf, &f, sizeof(f));
    for (size_t i = 0; i < layout->n; i++) {
        const dtpi_piece *p = dtpi_layout_get(layout, i);
        keys[p->box] = (uint32_t)m->text.len;
        dtpi_buf_append(&m->text, dtpi_layout_key(layout, p), p->key_bytes + 1);
    }
}

/* One rank's acknowledgement into the manifest. */
static dtp_status add_rank(save *s, dtpi_manifest *m, uint32_t *keys, uint32_t *files, int32_t rank,
                           dtp_error *err)
{
    dtpi_rd r = body(&s->acks, DTPI_MSG_ACK, rank);
    dtpi_layout layout = { 0 };
    dtpi_written w;

    dtp_status st = dtpi_msg_get_written(&r, rank, &w, err);
    if (st >= 0)
        st = dtpi_layout_make(&s->plan, rank, &layout, err);
    if (st >= 0 && (w.bytes > 0) != (layout.n > 0))
        st = dtpi_fail_rank(err, DTP_ERR_PROTO, rank, "rank %d acknowledged another plan", rank);
    files[rank] = (uint32_t)dtpi_mf_n_files(m);
    if (st >= 0)
        s->used |= w.lineage;
    if (st >= 0 && layout.n > 0)
        add_files(s, m, keys, rank, &w, &layout);
    dtpi_layout_free(&layout);
    return st;
}

/* Tensors and boxes of the plan, in its order. */
static void add_tensors(save *s, dtpi_manifest *m, const uint32_t *keys, const uint32_t *files)
{
    const dtpi_plan *p = &s->plan;

    for (size_t t = 0; t < p->n_tensors; t++) {
        const dtpi_plan_box *first = &p->boxes[p->tensors[t].first];
        const dtpi_mf_tensor tensor = {
            .name_at = (uint32_t)m->text.len,
            .name_bytes = p->tensors[t].name_bytes,
            .dtype = first->dtype,
            .n_dims = first->n_dims,
            .dims_at = m->dims.len / sizeof(int64_t),
            .first_box = dtpi_mf_n_boxes(m),
            .n_boxes = (uint32_t)p->tensors[t].n,
        };
        dtpi_buf_append(&m->text, dtpi_plan_name(p, first), tensor.name_bytes + 1);
        dtpi_buf_append(&m->dims, dtpi_plan_shape(p, first), first->n_dims * sizeof(int64_t));
        for (size_t i = 0; i < p->tensors[t].n; i++) {
            const dtpi_plan_box *from = &first[i];
            const uint32_t file = files[from->rank];
            const dtpi_mf_box b = { .home = file, .key_at = keys[p->tensors[t].first + i],
                                    .dims_at = m->dims.len / sizeof(int64_t), .file = file,
                                    .base = DTPI_NO_BASE };
            dtpi_buf_append(&m->dims, dtpi_plan_offset(p, from), 2 * first->n_dims * sizeof(int64_t));
            dtpi_buf_append(&m->box_buf, &b, sizeof(b));
        }
        dtpi_buf_append(&m->tensor_buf, &tensor, sizeof(tensor));
    }
}

static void add_lineage(const save *s, dtpi_manifest *m)
{
    m->has_parent = s->parent_id != 0;
    m->parent = s->lineage.steps[0];
    for (uint32_t i = s->lineage.n; i-- > 0;)
        if (s->used >> i & 1)
            m->lineage[m->n_lineage++] = s->lineage.steps[i];
}

static dtp_status build_manifest(save *s, dtpi_manifest *m, dtp_error *err)
{
    const size_t n = s->plan.n_boxes, n_ranks = (size_t)s->in->link->size;
    dtp_status st = DTP_OK;

    m->step = s->in->step;
    m->id = s->declare.id;
    m->world_size = (uint32_t)s->in->link->size;
    m->attempt = s->in->link->attempt;
    m->generation = s->in->link->generation;
    m->chunk_bytes = s->chunk_bytes;
    snprintf(m->codec, sizeof(m->codec), "%s", codec_names[s->in->opts->codec]);
    dtpi_buf_append(&m->meta, s->declare.meta, s->declare.meta_bytes);
    uint32_t *keys = dtpi_alloc_array(s->in->a, n + n_ranks, sizeof(*keys));
    if (!keys)
        return dtpi_fail_nomem(err, (n + n_ranks) * sizeof(*keys));
    for (int32_t i = 0; i < s->in->link->size && st >= 0; i++)
        st = add_rank(s, m, keys, keys + n, i, err);
    if (st >= 0)
        add_tensors(s, m, keys, keys + n);
    if (st >= 0)
        add_lineage(s, m);
    dtpi_free(s->in->a, keys, (n + n_ranks) * sizeof(*keys));
    if (st >= 0 && (m->text.failed || m->dims.failed || m->box_buf.failed || m->tensor_buf.failed ||
                    m->file_buf.failed || m->meta.failed))
        return dtpi_fail_nomem(err, 0);
    /* What we write is what we would accept. */
    return st < 0 ? st : dtpi_manifest_check(m, DTPI_MANIFEST_NAME, err);
}

static dtp_status publish_text(save *s, const dtpi_buf *text, dtp_error *err)
{
    char temp[DTPI_PATH_MAX], path[DTPI_PATH_MAX], name[64];

    snprintf(name, sizeof(name), "manifest.%016" PRIx64 ".tmp", s->declare.id);
    dtp_status st = dtpi_path_join(temp, s->step_dir, name, err);
    if (st >= 0)
        st = dtpi_path_join(path, s->step_dir, DTPI_MANIFEST_NAME, err);
    if (st < 0)
        return st;
    return dtpi_files_publish_all(s->in->files, s->step_dir, temp, path, text->data, text->len,
                                  s->in->opts->no_sync, err);
}

/* Rank 0, when all are well: the step becomes complete. */
static void publish(save *s)
{
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(s->in->a);
    dtp_error err = { 0 };
    dtpi_manifest m;

    if (s->in->link->rank != 0 || !is_well(s))
        return;
    dtp_status st = dtpi_manifest_init(&m, s->in->a, &err);
    if (st >= 0)
        st = build_manifest(s, &m, &err);
    if (st >= 0)
        st = dtpi_manifest_write(&m, &text, &err);
    dtpi_manifest_free(&m);
    if (st >= 0)
        st = publish_text(s, &text, &err);
    note(s, st, &err);
}

static dtp_status verdict(save *s, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf msg = dtpi_buf_init(s->in->a);
    dtpi_pieces heard = { 0 };

    dtpi_msg_begin(&msg, DTPI_MSG_VERDICT, &s->failure);
    seal(s, &msg, DTPI_MSG_VERDICT);
    const dtp_status st = exchange(s, DTPI_MSG_VERDICT, &msg, &heard, err);
    dtpi_pieces_free(s->in->a, &heard);
    return st;
}

/* ---- after the last exchange ---- */

static bool is_published(save *s)
{
    char path[DTPI_PATH_MAX];
    uint64_t bytes;

    return dtpi_path_join(path, s->step_dir, DTPI_MANIFEST_NAME, NULL) < 0 ||
           s->in->files->ops->size(s->in->files, path, &bytes, NULL) != DTP_ERR_NOT_FOUND;
}

static void retain(save *s)
{
    const dtp_ckpt_save_opts *o = s->in->opts;
    const dtpi_retain r = { .keep_last = o->keep_last, .keep_every = o->keep_every,
                            .saved = s->in->step, .no_sync = o->no_sync };
    dtp_error err = { 0 };

    if (r.keep_last > 0 &&
        dtpi_steps_retain(s->in->files, s->in->log, s->in->dir, &r, &err) < 0)
        dtpi_logf(s->in->log, DTP_LOG_WARN, "ckpt", "old steps stay: %s", err.text);
}

/*
 * A failed save leaves nothing behind, unless its manifest may have become durable all the same: the
 * last sync failed, or the ranks lost each other after they had acknowledged. Then its files stay; the
 * next save of this step, or retention, removes what no manifest names.
 */
static void tidy(save *s, bool failed)
{
    dtpi_files *files = s->in->files;

    if (!s->made_shard && !s->prepared)
        return;
    const bool unwanted = failed && (s->abandoned || (s->root_failed && !is_published(s)));
    if (unwanted && s->made_shard)
        files->ops->remove(files, s->shard, NULL);
    if (unwanted && s->made_part)
        files->ops->remove(files, s->part, NULL);
    if (!s->prepared)
        return;
    if (unwanted && !is_published(s))
        files->ops->remove_dir(files, s->step_dir, NULL);
    if (!failed)
        retain(s);
}

/* The ranks can still talk, though this one may not have understood. */
static bool can_go_on(save *s, dtp_status st, const dtp_error *err)
{
    note(s, st, err);
    return st >= 0 || st == DTP_ERR_NOMEM;
}

static dtp_status run(save *s, dtp_error *err)
{
    begin(s);
    look_canceled(s);
    dtp_status st = declare(s, err);
    if (!can_go_on(s, st, err))
        return st;
    plan_and_write(s);
    look_canceled(s);
    st = acknowledge(s, err);
    if (!can_go_on(s, st, err))
        return st;
    s->abandoned = s->agreed.status < 0;
    publish(s);
    st = verdict(s, err);
    if (st < 0)
        return st;
    if (s->agreed.status < 0)
        *err = s->agreed;
    return s->agreed.status < 0 ? s->agreed.status : DTP_OK;
}

const char *dtpi_save_files_name(const dtp_ckpt_save_opts *opts)
{
    return opts->files ? opts->files : dtpi_files_name_from_env();
}

dtp_status dtpi_save(const dtpi_save_in *in, dtp_error *err)
{
    /* Not allocated: a rank without memory still takes part, so that nobody waits for it. */
    save state = { .in = in }, *const s = &state;
    dtp_error own = { 0 };

    dtpi_plan_init(&s->plan, in->a);
    const dtp_status st = run(s, &own);
    tidy(s, st < 0);
    dtpi_file_drop(s->lock);
    dtpi_pieces_free(in->a, &s->declared);
    dtpi_pieces_free(in->a, &s->acks);
    dtpi_plan_free(&s->plan);
    if (st < 0 && err)
        *err = own;
    return st;
}
