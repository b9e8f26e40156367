/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.c - `dtp ckpt convert`: a checkpoint of any kind becomes a Hugging Face model (through one buffer)
 * or a step (in memory, as a save takes it).
 */
#include "bar.h"
#include "ckpt/box.h"
#include "ckpt/ckpt.h"

/* ---- to a Hugging Face model ---- */

static dtp_status to_model(dtp_ctx *ctx, const ckpt_args *a, dtp_ckpt *ckpt, dtp_error *err)
{
    bar b = bar_begin(ctx, "convert");
    const dtp_ckpt_export_opts opts = {
        .size = sizeof(opts),
        .max_shard_bytes = a->max_shard_bytes,
        .progress = bar_draw,
        .user = &b,
    };
    const dtp_status st = dtp_ckpt_export(ckpt, a->other, &opts, err);

    bar_end(&b);
    return st;
}

/* ---- to a step ---- */

static void free_tensors(dtp_ckpt_tensor *tensors, uint32_t n)
{
    for (uint32_t i = 0; tensors && i < n; i++)
        free(tensors[i].data);
    free(tensors);
}

/* All tensors, each with its bytes. */
static dtp_status read_tensors(dtp_ckpt *ckpt, const dtp_ckpt_info *info, bar *b,
                               dtp_ckpt_tensor *out, dtp_error *err)
{
    uint64_t done = 0;

    for (uint32_t i = 0; i < info->n_tensors; i++) {
        uint64_t bytes = 0;
        out[i].size = sizeof(out[i]);
        dtp_status st = dtp_ckpt_get_tensor(ckpt, i, &out[i], err);
        if (st < 0)
            return st;
        dtpi_box_bytes(out[i].n_dims, out[i].shape, out[i].dtype, &bytes);
        out[i].data = malloc(bytes + 1);
        if (!out[i].data)
            return dtpi_fail_nomem(err, bytes);
        st = dtp_ckpt_read(ckpt, &out[i], 1, err);
        if (st < 0)
            return st;
        done += bytes;
        bar_draw(b, done, info->bytes);
    }
    return DTP_OK;
}

static dtp_status to_step(dtp_ctx *ctx, const ckpt_args *a, dtp_ckpt *ckpt, dtp_ckpt_info *info,
                          dtp_error *err)
{
    dtp_ckpt_tensor *tensors = calloc((size_t)info->n_tensors + 1, sizeof(*tensors));
    const dtp_ckpt_save_opts opts = {
        .size = sizeof(opts), .codec = a->codec, .meta_json = info->meta_json
    };

    if (!tensors)
        return dtpi_fail_nomem(err, info->n_tensors * sizeof(*tensors));
    if (a->has_step)
        info->step = a->step;
    bar b = bar_begin(ctx, "read");
    dtp_status st = read_tensors(ckpt, info, &b, tensors, err);
    bar_end(&b);
    if (st >= 0)
        st = dtp_ckpt_save(ctx, NULL, a->other, info->step, tensors, info->n_tensors, &opts, err);
    free_tensors(tensors, info->n_tensors);
    return st;
}

/* An option of the other kind would change nothing: who gives it wants something else. */
static const char *wrong_option(const ckpt_args *a, bool model)
{
    if (model && a->has_step)
        return "--step numbers a step that is written; DIR:STEP names one that is read";
    if (model && a->codec != DTP_CODEC_NONE)
        return "--codec is for steps (--to step)";
    return !model && a->max_shard_bytes ? "--max-shard is for models (--to hf)" : NULL;
}

int ckpt_convert(dtp_ctx *ctx, const ckpt_args *a)
{
    dtp_ckpt_info info = { 0 };
    dtp_ckpt *ckpt = NULL;
    dtp_error err = { 0 };
    char bytes[32];

    dtp_status st = ckpt_open(ctx, a->path, NULL, &ckpt, &info, &err);
    if (st < 0)
        return cmd_fail(&cmd_ckpt, &err);
    /* What is not said: a step goes out, everything else comes in. */
    const bool model = a->to ? strcmp(a->to, "hf") == 0 : info.has_checksums;
    const char *wrong = wrong_option(a, model);
    if (wrong) {
        dtp_ckpt_close(ckpt);
        return cmd_usage(&cmd_ckpt, "%s", wrong);
    }
    st = model ? to_model(ctx, a, ckpt, &err) : to_step(ctx, a, ckpt, &info, &err);
    ckpt_human(info.bytes, bytes, sizeof(bytes));
    dtp_ckpt_close(ckpt);
    if (st < 0)
        return cmd_fail(&cmd_ckpt, &err);
    if (a->json)
        printf("{\"to\":\"%s\",\"tensors\":%u,\"bytes\":%" PRIu64 "}\n", model ? "hf" : "step",
               info.n_tensors, info.bytes);
    else if (model)
        printf("%s: %u tensors, %s as a Hugging Face model\n", a->other, info.n_tensors, bytes);
    else
        printf("%s: %u tensors, %s as step %" PRIu64 "\n", a->other, info.n_tensors, bytes,
               info.step);
    return cmd_finish(&cmd_ckpt);
}
