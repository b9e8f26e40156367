/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save.c - the protocol of a save:
 *
 *   rank 0 makes the step's folder and takes the lock -> all declare what they have -> each computes the
 *   same plan, or knows it from the save before -> each writes its shard and its part under names of this
 *   save, syncs and renames them -> all acknowledge -> rank 0 publishes the manifest -> all hear the
 *   verdict.
 *
 * A rank that failed says so in the next exchange; then all know, and nobody goes on.
 */
#include "ckpt/save.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/sum.h"
#include "ckpt/claim.h"
#include "ckpt/manifest.h"
#include "ckpt/new_manifest.h"
#include "ckpt/part.h"
#include "ckpt/plan.h"
#include "ckpt/retain.h"
#include "ckpt/shard.h"
#include "ckpt/steps.h"
#include "ckpt/talk.h"

static const char *const codec_names[] = { [DTP_CODEC_NONE] = "none", [DTP_CODEC_ZSTD] = "zstd",
                                           [DTP_CODEC_PLANES] = "planes" };

/* What another rank says may be anything. */
static const char *codec_name(uint64_t codec)
{
    return codec < DTPI_ARRAY_LEN(codec_names) ? codec_names[codec] : "unknown";
}

typedef struct save {
    const dtpi_save_in *in;
    dtpi_talk talk;
    dtpi_file *lock;            /* rank 0's */
    dtpi_buf boxes;             /* what this rank declares */
    dtpi_known_plan own;        /* where no plan is remembered */
    dtpi_known_plan *known;
    const dtpi_plan *plan;
    dtpi_written written;
    dtpi_written *acks;         /* rank 0's, by rank */
    uint32_t chunk_bytes;
    uint64_t id;                /* of this save; rank 0's */
    uint64_t parent, parent_id; /* rank 0's; id 0: there is no parent */
    uint64_t plan_hash;         /* of what all declare */
    bool all_know;              /* the same plan */
    dtpi_note first;            /* rank 0's declaration */
    dtpi_lineage lineage;       /* rank 0's: the parent, then what it refers to */
    dtpi_claim claim;           /* rank 0's */
    bool is_locked;             /* nobody else writes to the folder */
    bool prepared;              /* rank 0 holds the step's folder */
    bool made_shard, made_part;
    bool abandoned;             /* known by all before rank 0 could publish */
    char step_dir[DTPI_PATH_MAX], shard[DTPI_PATH_MAX], part[DTPI_PATH_MAX];
} save;

static bool is_well(const save *s)
{
    return dtpi_talk_is_well(&s->talk);
}

static void note(save *s, dtp_status st, const dtp_error *err)
{
    dtpi_talk_fail(&s->talk, st, err);
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
static dtp_status clear_step(save *s, const dtpi_buf *names, dtp_error *err)
{
    dtpi_files *files = s->in->files;
    char claim[DTPI_CLAIM_NAME];
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
    dtpi_claim_name(&s->claim, claim);
    return dtpi_step_clean(files, s->step_dir, names, claim, is_needed, s->in->opts->no_sync, err);
}

/* The newest complete step before this one; where there is none, or none can be looked at, all is new. */
static dtp_status find_parent(save *s, dtp_error *err)
{
    dtpi_manifest m;

    const dtp_status st =
        dtpi_steps_before(s->in->files, s->in->log, s->in->dir, s->in->step, &m, err);
    if (st < 0)
        return st == DTP_ERR_NOMEM ? st : DTP_OK;
    s->parent = m.step;
    s->parent_id = m.id;
    dtpi_lineage_after(&m, &s->lineage);
    dtpi_manifest_free(&m);
    return DTP_OK;
}

/*
 * Rank 0 is the step's writer now. A newer claim beside a lock that is held is a dead writer's; without
 * locks it is a living one's. The claim comes before the look at the step, so that a writer who
 * publishes after that look sees it; and what is cleared was there before, so that it is none of a
 * writer who came later and was quicker.
 */
static dtp_status claim_step(save *s, dtp_error *err)
{
    DTPI_AUTO_BUF dtpi_buf names = dtpi_buf_init(s->in->a);
    const dtpi_link *link = s->in->link;

    s->claim = (dtpi_claim){ link->job, link->attempt, link->generation, s->in->id };
    dtp_status st = dtpi_claim_put(s->in->files, s->step_dir, &s->claim, err);
    if (st >= 0)
        st = dtpi_step_names(s->in->files, s->step_dir, &names, err);
    if (st >= 0 && !s->is_locked)
        st = dtpi_claim_check(s->in->files, s->step_dir, &s->claim, err);
    return st < 0 ? st : clear_step(s, &names, err);
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
    s->is_locked = s->lock && st == DTP_OK;
    s->prepared = true;
    st = dtpi_files_make_dirs(files, s->step_dir, no_sync, err);
    if (st >= 0)
        st = claim_step(s, err);
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

/* ---- what is declared ---- */

static uint64_t coding_of(const save *s)
{
    return s->chunk_bytes | (uint64_t)s->in->opts->codec << 32;
}

/* Rank 0 comes first, and the others are compared with it. */
static dtp_status compare(const save *s, const dtpi_note *n, int32_t rank, dtp_error *err)
{
    const uint64_t *w = n->words;

    if (w[DTPI_SAYS_STEP] != s->first.words[DTPI_SAYS_STEP])
        return dtpi_fail_rank(err, DTP_ERR_INVAL, rank,
                              "rank 0 saves step %" PRIu64 ", rank %d step %" PRIu64,
                              s->first.words[DTPI_SAYS_STEP], rank, w[DTPI_SAYS_STEP]);
    const uint64_t a = s->first.words[DTPI_SAYS_CODING], b = w[DTPI_SAYS_CODING];
    if (a != b)
        return dtpi_fail_rank(
            err, DTP_ERR_INVAL, rank,
            "rank 0 saves with codec %s and chunks of %u bytes, rank %d with %s and %u",
            codec_name(a >> 32), (unsigned)a, rank, codec_name(b >> 32), (unsigned)b);
    return DTP_OK;
}

static void hear_declaration(void *user, int32_t rank, const dtpi_note *n)
{
    save *s = user;
    dtp_error err = { 0 };

    if (rank > 0 && !s->first.kind)
        return;     /* rank 0 failed */
    if (rank == 0) {
        s->first = *n;
        s->all_know = n->words[DTPI_SAYS_PLAN] != 0;
    }
    const uint64_t chain[] = { s->plan_hash, n->words[DTPI_SAYS_BOXES] };
    s->plan_hash = dtpi_sum64(chain, sizeof(chain));
    s->all_know &= n->words[DTPI_SAYS_PLAN] == s->first.words[DTPI_SAYS_PLAN];
    note(s, compare(s, n, rank, &err), &err);
}

static dtp_status declare(save *s, dtp_error *err)
{
    const dtpi_save_in *in = s->in;
    dtpi_note mine = { .kind = DTPI_NOTE_DECLARE };
    dtp_error own = { 0 };

    if (is_well(s)) {
        dtpi_msg_put_boxes(&s->boxes, in->tensors, in->n_tensors);
        if (s->boxes.failed)
            note(s, dtpi_fail_nomem(&own, s->boxes.len), &own);
    }
    mine.words[DTPI_SAYS_STEP] = in->step;
    mine.words[DTPI_SAYS_CODING] = coding_of(s);
    mine.words[DTPI_SAYS_BOXES] = dtpi_sum64(s->boxes.data, s->boxes.len);
    mine.words[DTPI_SAYS_PLAN] = s->known->hash;
    mine.words[DTPI_SAYS_ID] = in->id;
    mine.words[DTPI_SAYS_PARENT] = s->parent;
    mine.words[DTPI_SAYS_PARENT_ID] = s->parent_id;
    const dtp_status st = dtpi_talk_note(&s->talk, &mine, hear_declaration, s, err);
    s->id = s->first.words[DTPI_SAYS_ID];
    s->parent = s->first.words[DTPI_SAYS_PARENT];
    s->parent_id = s->first.words[DTPI_SAYS_PARENT_ID];
    return st;
}

/* ---- the plan ---- */

static dtpi_rd boxes_of(const dtpi_pieces *all, int32_t rank)
{
    return dtpi_rd_init(all->data.data + all->at[rank], all->at[rank + 1] - all->at[rank]);
}

static dtp_status make_plan(save *s, const dtpi_pieces *all, dtp_error *err)
{
    size_t n_boxes = 0, n_numbers = 0, boxes, numbers;
    dtpi_plan *plan = &s->known->plan;

    for (int32_t i = 0; i < s->in->link->size; i++) {
        dtpi_msg_measure(boxes_of(all, i), &boxes, &numbers);
        n_boxes += boxes;
        n_numbers += numbers;
    }
    dtp_status st = dtpi_plan_reserve(plan, n_boxes, n_numbers, err);
    for (int32_t i = 0; i < s->in->link->size && st >= 0; i++) {
        dtpi_rd r = boxes_of(all, i);
        st = dtpi_msg_get_boxes(&r, i, plan, err);
    }
    return st < 0 ? st : dtpi_plan_finish(plan, err);
}

/* Lists go round only where somebody's changed, or somebody does not remember the plan. */
static dtp_status plan(save *s, dtp_error *err)
{
    dtpi_pieces all = { 0 };
    dtp_error own = { 0 };

    s->plan = &s->known->plan;
    if (s->all_know && s->known->hash == s->plan_hash)
        return DTP_OK;
    dtpi_known_plan_forget(s->known);
    dtpi_plan_init(&s->known->plan, s->in->a);
    s->known->is_made = true;
    dtp_status st = dtpi_talk_all(&s->talk, &s->boxes, &all, err);
    if (st < 0)
        return st;
    if (all.at) {
        st = make_plan(s, &all, &own);
        note(s, st, &own);
        s->known->hash = st < 0 ? 0 : s->plan_hash;
    }
    dtpi_pieces_free(s->in->a, &all);
    return DTP_OK;
}

/* ---- the shard ---- */

static dtp_status write_shard(save *s, dtpi_delta *delta, dtpi_part *part, dtp_error *err)
{
    dtpi_files *files = s->in->files;
    char name[DTPI_FILE_NAME_MAX], temp[DTPI_PATH_MAX + 8];

    dtpi_shard_name(s->in->link->rank, s->in->link->size, s->id, name);
    dtp_status st = dtpi_path_join(s->shard, s->step_dir, name, err);
    if (st < 0)
        return st;
    snprintf(temp, sizeof(temp), "%s.tmp", s->shard);
    const dtpi_shard_in in = {
        .ctx = s->in->ctx,
        .files = files,
        .path = temp,
        .plan = s->plan,
        .delta = delta,
        .layout = &delta->stored,
        .tensors = s->in->tensors,
        .codec = codec_names[s->in->opts->codec],
        .chunk_bytes = s->chunk_bytes,
        .step = s->in->step,
        .id = s->id,
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
    char name[DTPI_FILE_NAME_MAX], temp[DTPI_PATH_MAX + 8];

    dtpi_part_name(s->in->link->rank, s->in->link->size, s->id, name);
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
        .plan = s->plan,
        .layout = layout,
        .tensors = s->in->tensors,
        .codec = codec_names[s->in->opts->codec],
        .chunk_bytes = s->chunk_bytes,
        .dir = s->in->dir,
        .parent = s->parent,
        .parent_id = s->parent_id,
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

static void write_all(save *s)
{
    dtpi_layout layout = { 0 };
    dtp_error err = { 0 };

    if (!is_well(s))
        return;
    dtp_status st = dtpi_layout_make(s->plan, s->in->link->rank, &layout, &err);
    if (st >= 0 && layout.n > 0)
        st = write_files(s, &layout, &err);
    dtpi_layout_free(&layout);
    note(s, st, &err);
}

static void hear_ack(void *user, int32_t rank, const dtpi_note *n)
{
    save *s = user;
    dtpi_written w;
    dtp_error err = { 0 };

    const dtp_status st = dtpi_note_get_written(n, rank, s->plan_hash, &w, &err);
    note(s, st, &err);
    if (st >= 0 && s->acks)
        s->acks[rank] = w;
}

static dtp_status acknowledge(save *s, dtp_error *err)
{
    const size_t n = (size_t)s->in->link->size;
    dtpi_note mine = { .kind = DTPI_NOTE_ACK };
    dtp_error own = { 0 };

    if (s->in->link->rank == 0) {
        s->acks = dtpi_alloc_array(s->in->a, n, sizeof(*s->acks));
        if (!s->acks)
            note(s, dtpi_fail_nomem(&own, n * sizeof(*s->acks)), &own);
    }
    dtpi_note_put_written(&mine, &s->written, s->plan_hash);
    return dtpi_talk_note(&s->talk, &mine, hear_ack, s, err);
}

/* ---- the manifest ---- */

static dtp_status publish_text(save *s, const dtpi_buf *text, dtp_error *err)
{
    char temp[DTPI_PATH_MAX], path[DTPI_PATH_MAX], name[64];

    snprintf(name, sizeof(name), "manifest.%016" PRIx64 ".tmp", s->id);
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
    const dtpi_save_in *in = s->in;
    const dtpi_new_manifest what = {
        .a = in->a,
        .plan = s->plan,
        .acks = s->acks,
        .n_ranks = in->link->size,
        .step = in->step,
        .id = s->id,
        .attempt = in->link->attempt,
        .generation = in->link->generation,
        .chunk_bytes = s->chunk_bytes,
        .codec = codec_names[in->opts->codec],
        .meta = in->opts->meta_json ? in->opts->meta_json : "{}",
        .has_parent = s->parent_id != 0,
        .lineage = &s->lineage,
    };
    DTPI_AUTO_BUF dtpi_buf text = dtpi_buf_init(in->a);
    dtp_error err = { 0 };

    if (in->link->rank != 0 || !is_well(s))
        return;
    dtp_status st = dtpi_new_manifest_write(&what, &text, &err);
    if (st >= 0)
        st = dtpi_claim_holds(in->files, s->step_dir, &s->claim, &err);
    if (st >= 0)
        st = publish_text(s, &text, &err);
    /* Who took the claim away meanwhile may have removed files that the manifest names. */
    if (st >= 0 && !s->is_locked)
        st = dtpi_claim_holds(in->files, s->step_dir, &s->claim, &err);
    note(s, st, &err);
}

static dtp_status verdict(save *s, dtp_error *err)
{
    dtpi_note mine = { .kind = DTPI_NOTE_VERDICT };

    return dtpi_talk_note(&s->talk, &mine, NULL, NULL, err);
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
    const bool unwanted = failed && (s->abandoned || (s->talk.root_failed && !is_published(s)));
    if (unwanted && s->made_shard)
        files->ops->remove(files, s->shard, NULL);
    if (unwanted && s->made_part)
        files->ops->remove(files, s->part, NULL);
    if (!s->prepared)
        return;
    dtpi_claim_drop(files, s->step_dir, &s->claim);
    if (unwanted && !is_published(s))
        files->ops->remove_dir(files, s->step_dir, NULL);
    if (!failed)
        retain(s);
}

/* All know of a failure: true, and `*st` is what all return. */
static bool is_over(save *s, dtp_status *st, dtp_error *err)
{
    if (*st >= 0 && s->talk.agreed.status < 0) {
        *err = s->talk.agreed;
        *st = s->talk.agreed.status;
    }
    return *st < 0;
}

static dtp_status run(save *s, dtp_error *err)
{
    begin(s);
    look_canceled(s);
    dtp_status st = declare(s, err);
    s->abandoned = st >= 0 && s->talk.agreed.status < 0;
    if (is_over(s, &st, err))
        return st;
    /* What is wrong now is the same on all ranks. */
    if (is_well(s))
        st = plan(s, err);
    if (st < 0)
        return st;
    write_all(s);
    look_canceled(s);
    st = acknowledge(s, err);
    s->abandoned = st >= 0 && s->talk.agreed.status < 0;
    if (is_over(s, &st, err))
        return st;
    publish(s);
    st = verdict(s, err);
    is_over(s, &st, err);
    return st;
}

const char *dtpi_save_files_name(const dtp_ckpt_save_opts *opts)
{
    return opts->files ? opts->files : dtpi_files_name_from_env();
}

void dtpi_known_plan_forget(dtpi_known_plan *k)
{
    if (k->is_made)
        dtpi_plan_free(&k->plan);
    *k = (dtpi_known_plan){ .hash = 0 };
}

dtp_status dtpi_save(const dtpi_save_in *in, dtp_error *err)
{
    /* Not allocated: a rank without memory still takes part, so that nobody waits for it. */
    save state = { .in = in, .talk = { .a = in->a, .link = in->link } }, *const s = &state;
    dtp_error own = { 0 };

    s->boxes = dtpi_buf_init(in->a);
    s->known = in->known ? in->known : &s->own;
    const dtp_status st = run(s, &own);
    tidy(s, st < 0);
    dtpi_file_drop(s->lock);
    dtpi_buf_free(&s->boxes);
    if (s->known == &s->own || s->known->hash == 0)
        dtpi_known_plan_forget(s->known);
    dtpi_free(in->a, s->acks, (size_t)in->link->size * sizeof(*s->acks));
    if (st < 0 && err)
        *err = own;
    return st;
}
