/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt.c - the public calls: they read options, enter the context, and hand over to save and load. */
#include <dtp/ckpt.h>

#include <inttypes.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "ckpt/export.h"
#include "ckpt/link.h"
#include "ckpt/load.h"
#include "ckpt/plan.h"
#include "ckpt/save.h"
#include "ckpt/saver.h"
#include "ckpt/share.h"
#include "ckpt/steps.h"
#include "ctx/ctx.h"
#include "group/group.h"

struct dtp_ckpt {
    dtp_ctx *ctx;
    dtpi_files *files;
    dtpi_load *load;
    void *shared;               /* with other ranks of the node */
    size_t shared_bytes;
};

enum { NODE_MEMORY_TAG = 0x434b5054 };

/* A number unlike any other save's. */
static uint64_t fresh_id(dtp_ctx *ctx)
{
    uint64_t id = 0;

    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) == (ssize_t)sizeof(id))
        return id;
    return (uint64_t)dtp_ctx_now_ns(ctx) * 0x9e3779b97f4a7c15ull ^ (uint64_t)getpid();
}

/* The callers' structs, of whatever size, as ours. Free `*out` with dtpi_free. */
static dtp_status read_tensors(const dtp_allocator *a, const dtp_ckpt_tensor *user, size_t n,
                               dtp_ckpt_tensor **out, dtp_error *err)
{
    const char *at = (const char *)user;

    if ((n && !user) || n > UINT32_MAX)
        return dtpi_fail(err, DTP_ERR_INVAL, "%zu tensors are announced, %s", n,
                         user ? "too many" : "none is given");
    dtp_ckpt_tensor *own = dtpi_alloc_array(a, n + 1, sizeof(*own));
    if (!own)
        return dtpi_fail_nomem(err, n * sizeof(*own));
    for (size_t i = 0; i < n; i++) {
        const dtp_status st = DTPI_OPTS_READ(&own[i], at, err);
        if (st < 0) {
            dtpi_free(a, own, (n + 1) * sizeof(*own));
            return st;
        }
        /* An array's stride is its first element's size. */
        at += user->size;
    }
    *out = own;
    return DTP_OK;
}

/* What a save was called with; `tensors` is of the library's own size once it is read. */
typedef struct save_call {
    dtp_ctx *ctx;
    dtp_group *group;
    const char *dir;
    uint64_t step;
    dtp_ckpt_tensor *tensors;
    size_t n;
    dtp_ckpt_save_opts opts;
} save_call;

/* Runs the protocol here and now; with a failure of this rank, to tell the others. */
static dtp_status save_now(const save_call *c, const dtp_error *failure, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(c->ctx);
    DTPI_AUTO(files) dtpi_files *files = NULL;
    dtp_error own = { 0 };
    dtpi_saver *saver = NULL;
    dtpi_group_link link;

    if (dtpi_saver_get(c->ctx, c->group, &saver, &own) < 0 && !failure)
        failure = &own;
    if (!failure && dtpi_files_open(a, dtpi_save_files_name(&c->opts), &files, &own) < 0)
        failure = &own;
    if (c->group)
        dtpi_link_group(&link, c->group, c->opts.timeout_ms);
    else
        dtpi_link_alone(&link.base);
    const dtpi_save_in in = {
        .a = a,
        .ctx = c->ctx,
        .log = dtpi_ctx_log(c->ctx),
        .files = files,
        .link = &link.base,
        .dir = c->dir,
        .step = c->step,
        .tensors = c->tensors,
        .n_tensors = c->n,
        .opts = &c->opts,
        .id = fresh_id(c->ctx),
        .failure = failure,
        .known = dtpi_saver_known(saver),
    };
    return dtpi_save(&in, err);
}

/* This rank cannot save: the others hear why, and all get the same failure. */
static dtp_status fail_together(const save_call *c, const dtp_error *failure, dtp_error *err)
{
    const dtp_status st = save_now(c, failure, err);

    return st < 0 ? st : failure->status;
}

/* Options, folder and tensors as the caller gave them; the save before is over. */
static dtp_status read_call(save_call *c, const dtp_ckpt_tensor *tensors, size_t n,
                            const dtp_ckpt_save_opts *user, dtp_error *err)
{
    dtp_ckpt_save_opts opts;

    dtp_status st = dtpi_saver_settle(dtpi_saver_find(c->ctx, c->group), err);
    if (st >= 0)
        st = DTPI_OPTS_READ(&opts, user, err);
    if (st < 0)
        return st;
    c->opts = opts;
    st = dtpi_ckpt_check_dir(c->dir, err);
    if (st < 0)
        return st;
    st = read_tensors(dtpi_ctx_alloc(c->ctx), tensors, n, &c->tensors, err);
    if (st >= 0)
        c->n = n;
    return st;
}

static dtp_status start_now(const save_call *c, dtp_op **op_out, dtp_error *err)
{
    dtpi_saver *saver;

    const dtp_status st = dtpi_saver_get(c->ctx, c->group, &saver, err);
    return st < 0 ? st : dtpi_saver_start(saver, c->dir, c->step, fresh_id(c->ctx), c->tensors, c->n,
                                          &c->opts, op_out, err);
}

/* `op_out` NULL: synchronously. */
static dtp_status save_entered(save_call *c, const dtp_ckpt_tensor *tensors, size_t n,
                               const dtp_ckpt_save_opts *user, dtp_op **op_out, dtp_error *err)
{
    dtp_error failure = { 0 };

    if (c->group && dtpi_group_ctx(c->group) != c->ctx)
        return dtpi_fail(err, DTP_ERR_INVAL, "the group belongs to another context");
    dtp_status st = read_call(c, tensors, n, user, &failure);
    if (st >= 0 && op_out)
        st = start_now(c, op_out, &failure);
    /* While a save is under way nothing else can be said on its lane. */
    if (st < 0 && dtpi_saver_is_busy(dtpi_saver_find(c->ctx, c->group))) {
        if (err)
            *err = failure;
        return st;
    }
    if (st < 0)
        st = fail_together(c, &failure, err);
    else if (!op_out)
        st = save_now(c, NULL, err);
    dtpi_free(dtpi_ctx_alloc(c->ctx), c->tensors, (c->n + 1) * sizeof(*c->tensors));
    return st;
}

static dtp_status enter_and_save(save_call *c, const dtp_ckpt_tensor *tensors, size_t n,
                                 const dtp_ckpt_save_opts *user, dtp_op **op_out, dtp_error *err)
{
    dtp_status st = dtpi_ctx_enter(c->ctx, err);

    if (st < 0)
        return dtpi_noun(err, "ckpt", st);
    st = save_entered(c, tensors, n, user, op_out, err);
    dtpi_ctx_leave(c->ctx);
    return dtpi_noun(err, "ckpt", st);
}

dtp_status dtp_ckpt_save(dtp_ctx *ctx, dtp_group *group, const char *dir, uint64_t step,
                         const dtp_ckpt_tensor *tensors, size_t n_tensors,
                         const dtp_ckpt_save_opts *user, dtp_error *err)
{
    save_call c = { .ctx = ctx, .group = group, .dir = dir, .step = step };

    return enter_and_save(&c, tensors, n_tensors, user, NULL, err);
}

dtp_status dtp_ckpt_save_start(dtp_ctx *ctx, dtp_group *group, const char *dir, uint64_t step,
                               const dtp_ckpt_tensor *tensors, size_t n_tensors,
                               const dtp_ckpt_save_opts *user, dtp_op **op_out, dtp_error *err)
{
    save_call c = { .ctx = ctx, .group = group, .dir = dir, .step = step };

    return enter_and_save(&c, tensors, n_tensors, user, op_out, err);
}

/* `step` NULL: whatever lies at `path`. */
static dtp_status open_entered(dtp_ctx *ctx, const char *path, const uint64_t *step,
                               dtp_ckpt **ckpt_out, dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(ctx);
    dtp_ckpt *c = dtpi_alloc(a, sizeof(*c));

    if (!c)
        return dtpi_fail_nomem(err, sizeof(*c));
    c->ctx = ctx;
    dtp_status st = dtpi_files_open(a, dtpi_files_name_from_env(), &c->files, err);
    if (st >= 0)
        st = step ? dtpi_load_open(a, c->files, path, *step, &c->load, err)
                  : dtpi_load_open_path(a, c->files, path, &c->load, err);
    if (st < 0) {
        dtp_ckpt_close(c);
        return st;
    }
    c->load->ctx = ctx;
    *ckpt_out = c;
    return DTP_OK;
}

static dtp_status open_any(dtp_ctx *ctx, const char *path, const uint64_t *step, dtp_ckpt **ckpt_out,
                           dtp_error *err)
{
    dtp_status st = dtpi_ckpt_check_dir(path, err);
    if (st >= 0)
        st = dtpi_ctx_enter(ctx, err);
    if (st < 0)
        return dtpi_noun(err, "ckpt", st);
    st = open_entered(ctx, path, step, ckpt_out, err);
    dtpi_ctx_leave(ctx);
    return dtpi_noun(err, "ckpt", st);
}

dtp_status dtp_ckpt_open(dtp_ctx *ctx, const char *dir, uint64_t step, dtp_ckpt **ckpt_out,
                         dtp_error *err)
{
    return open_any(ctx, dir, &step, ckpt_out, err);
}

dtp_status dtp_ckpt_open_path(dtp_ctx *ctx, const char *path, dtp_ckpt **ckpt_out, dtp_error *err)
{
    return open_any(ctx, path, NULL, ckpt_out, err);
}

static void unshare(dtp_ckpt *c)
{
    if (!c->shared)
        return;
    dtpi_share_free(c->load->share);
    c->load->share = NULL;
    munmap(c->shared, c->shared_bytes);
    c->shared = NULL;
}

void dtp_ckpt_close(dtp_ckpt *c)
{
    if (!c)
        return;
    unshare(c);
    dtpi_load_close(c->load);
    dtpi_files_close(c->files);
    dtpi_free(dtpi_ctx_alloc(c->ctx), c, sizeof(*c));
}

static uint64_t all_bytes(const dtpi_manifest *m)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < dtpi_mf_n_tensors(m); i++) {
        const dtpi_mf_tensor *t = dtpi_mf_tensor_at(m, i);
        for (uint32_t k = 0; k < t->n_boxes; k++)
            bytes += dtpi_mf_box_bytes(m, t, dtpi_mf_box_at(m, t->first_box + k));
    }
    return bytes;
}

dtp_status dtp_ckpt_get_info(const dtp_ckpt *c, dtp_ckpt_info *info_out, dtp_error *err)
{
    const dtpi_manifest *m = &c->load->m;
    dtp_ckpt_info info = {
        .size = sizeof(info),
        .step = m->step,
        .world_size = m->world_size,
        .n_tensors = (uint32_t)dtpi_mf_n_tensors(m),
        .n_shards = (uint32_t)m->n_own_files,
        .bytes = all_bytes(m),
        .stored_bytes = c->load->own_bytes,
        .meta_json = (const char *)m->meta.data,
        .format = m->format ? m->format : "dtp-ckpt",
        .has_checksums = !m->format,
    };

    return dtpi_noun(err, "ckpt", DTPI_RESULT_WRITE(info_out, &info, err));
}

dtp_status dtp_ckpt_get_tensor(const dtp_ckpt *c, uint32_t i, dtp_ckpt_tensor *tensor_out,
                               dtp_error *err)
{
    const dtpi_manifest *m = &c->load->m;

    if (i >= dtpi_mf_n_tensors(m))
        return dtpi_noun(
            err, "ckpt",
            dtpi_fail(err, DTP_ERR_RANGE, "tensor %u of %zu", i, dtpi_mf_n_tensors(m)));
    const dtpi_mf_tensor *t = dtpi_mf_tensor_at(m, i);
    const dtp_ckpt_tensor out = {
        .size = sizeof(out),
        .name = dtpi_mf_text(m, t->name_at),
        .dtype = t->dtype,
        .n_dims = t->n_dims,
        .shape = dtpi_mf_dims(m, t->dims_at),
    };
    return dtpi_noun(err, "ckpt", DTPI_RESULT_WRITE(tensor_out, &out, err));
}

dtp_status dtp_ckpt_find(const dtp_ckpt *c, const char *name, uint32_t *i_out, dtp_error *err)
{
    if (dtpi_mf_find(&c->load->m, name, i_out))
        return DTP_OK;
    return dtpi_noun(err, "ckpt",
                     dtpi_fail(err, DTP_ERR_NOT_FOUND, "tensor %.80s is not in step %" PRIu64, name,
                               c->load->m.step));
}

dtp_status dtp_ckpt_read(dtp_ckpt *c, const dtp_ckpt_tensor *tensors, size_t n_tensors,
                         dtp_error *err)
{
    const dtp_allocator *a = dtpi_ctx_alloc(c->ctx);
    dtp_ckpt_tensor *own = NULL;

    dtp_status st = dtpi_ctx_enter(c->ctx, err);
    if (st < 0)
        return dtpi_noun(err, "ckpt", st);
    st = read_tensors(a, tensors, n_tensors, &own, err);
    if (st >= 0) {
        st = dtpi_load_read_all(c->load, own, n_tensors, err);
        dtpi_free(a, own, (n_tensors + 1) * sizeof(*own));
    }
    dtpi_ctx_leave(c->ctx);
    return dtpi_noun(err, "ckpt", st);
}

dtp_status dtp_ckpt_set_checks(dtp_ckpt *c, dtp_ckpt_checks checks, dtp_error *err)
{
    if ((unsigned)checks > DTP_CKPT_CHECK_WHOLE)
        return dtpi_noun(err, "ckpt",
                         dtpi_fail(err, DTP_ERR_INVAL, "unknown checks %d", (int)checks));
    const dtp_status st = dtpi_ctx_enter(c->ctx, err);
    if (st < 0)
        return dtpi_noun(err, "ckpt", st);
    c->load->checks = checks;
    dtpi_ctx_leave(c->ctx);
    return DTP_OK;
}

static dtp_status map_shared(dtp_ckpt *c, dtp_group *group, uint32_t n, dtp_error *err)
{
    const int64_t deadline_ns =
        dtpi_ctx_deadline(dtpi_group_ctx(group), 0, dtpi_group_timeout_ms(group));
    const size_t bytes = dtpi_share_bytes(&c->load->m, n);
    DTPI_AUTO_FD int fd = -1;

    const dtp_status st = dtpi_group_node_memory(group, NODE_MEMORY_TAG, bytes, deadline_ns, &fd, err);
    if (st < 0)
        return st;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return dtpi_fail(err, DTP_ERR_NOMEM, "cannot map %zu bytes to read together: %m", bytes);
    c->shared = map;
    c->shared_bytes = bytes;
    return DTP_OK;
}

dtp_status dtp_ckpt_share(dtp_ckpt *c, dtp_group *group, dtp_error *err)
{
    if (!group)
        return dtpi_noun(err, "ckpt", dtpi_fail(err, DTP_ERR_INVAL, "no group to read with"));
    const int32_t rank = dtp_group_rank(group);
    const uint32_t n = dtpi_group_n_on_node(group, dtpi_group_node(group, rank));
    dtp_status st = dtpi_ctx_enter(c->ctx, err);
    if (st < 0)
        return dtpi_noun(err, "ckpt", st);
    unshare(c);
    if (n > 1 && dtpi_share_bytes(&c->load->m, n) > 0) {
        st = map_shared(c, group, n, err);
        if (st >= 0)
            st = dtpi_share_new(dtpi_ctx_alloc(c->ctx), &c->load->m, c->shared, n,
                                dtpi_group_index_on_node(group, rank), &c->load->share, err);
        if (st < 0)
            unshare(c);
    }
    dtpi_ctx_leave(c->ctx);
    return dtpi_noun(err, "ckpt", st);
}

dtp_status dtp_ckpt_verify(dtp_ckpt *c, void (*progress)(void *user, uint64_t done, uint64_t total),
                           void *user, dtp_error *err)
{
    dtp_status st = dtpi_ctx_enter(c->ctx, err);

    if (st < 0)
        return dtpi_noun(err, "ckpt", st);
    st = dtpi_load_verify(c->load, progress, user, err);
    dtpi_ctx_leave(c->ctx);
    return dtpi_noun(err, "ckpt", st);
}

dtp_status dtp_ckpt_export(dtp_ckpt *c, const char *dir, const dtp_ckpt_export_opts *user,
                           dtp_error *err)
{
    dtp_ckpt_export_opts opts;

    dtp_status st = DTPI_OPTS_READ(&opts, user, err);
    if (st >= 0)
        st = dtpi_ckpt_check_dir(dir, err);
    if (st >= 0)
        st = dtpi_ctx_enter(c->ctx, err);
    if (st < 0)
        return dtpi_noun(err, "ckpt", st);
    st = dtpi_export(c->load, dir, &opts, err);
    dtpi_ctx_leave(c->ctx);
    return dtpi_noun(err, "ckpt", st);
}
