/* SPDX-License-Identifier: Apache-2.0 */
/* look.c - `dtp ckpt ls` and `dtp ckpt show`. */
#include "ckpt/ckpt.h"
#include "ckpt/steps.h"

/* ---- ls ---- */

/* Manifest and the sizes of files, as dtp_ckpt_latest looks at them. */
static dtp_status check_step(const char *dir, uint64_t step, dtp_error *err)
{
    DTPI_AUTO(files) dtpi_files *files = NULL;
    const dtp_status st = dtpi_files_open(&dtpi_malloc_allocator, "posix", &files, err);

    return st < 0 ? st : dtpi_step_check(files, dir, step, err);
}

static void print_good(const ckpt_args *a, const dtp_ckpt_info *i)
{
    const bool pinned = ckpt_step_has(a->path, i->step, "pin");
    char bytes[32], stored[32];

    if (a->json) {
        printf("{\"step\":%" PRIu64
               ",\"complete\":true,\"pinned\":%s,\"world_size\":%u,\"tensors\":%u,\"shards\":%u,"
               "\"bytes\":%" PRIu64 ",\"stored_bytes\":%" PRIu64 "}\n",
               i->step, pinned ? "true" : "false", i->world_size, i->n_tensors, i->n_shards,
               i->bytes, i->stored_bytes);
        return;
    }
    ckpt_human(i->bytes, bytes, sizeof(bytes));
    ckpt_human(i->stored_bytes, stored, sizeof(stored));
    printf("%12" PRIu64 "  complete  %6u  %8u  %7u  %10s  %10s%s\n", i->step, i->world_size,
           i->n_tensors, i->n_shards, bytes, stored, pinned ? "  pinned" : "");
}

static void print_bad(const ckpt_args *a, uint64_t step, const char *state, const char *why)
{
    if (a->json) {
        printf("{\"step\":%" PRIu64 ",\"complete\":false,\"state\":\"%s\",\"why\":", step, state);
        ckpt_print_json(why);
        printf("}\n");
        return;
    }
    printf("%12" PRIu64 "  %s: %s\n", step, state, why);
}

/*
 * A step without a manifest is a save that did not end, or what retention left of one; one with a wrong
 * manifest or shard is damaged; of one that could not be looked at (no permission, a newer version) nobody knows.
 */
static bool print_step(dtp_ctx *ctx, const ckpt_args *a, uint64_t step)
{
    dtp_ckpt_info info = { .size = sizeof(info) };
    dtp_ckpt *ckpt = NULL;
    dtp_error err = { 0 };

    if (!ckpt_step_has(a->path, step, DTPI_MANIFEST_NAME)) {
        print_bad(a, step, "incomplete",
                  "no manifest (a save that did not end, or shards for newer steps)");
        return true;
    }
    dtp_status st = check_step(a->path, step, &err);
    if (st >= 0)
        st = ckpt_open(ctx, a->path, &step, &ckpt, &info, &err);
    if (st >= 0)
        print_good(a, &info);
    else
        print_bad(a, step, dtpi_step_is_damaged(st) ? "damaged" : "unreadable", err.text);
    dtp_ckpt_close(ckpt);
    return st >= 0;
}

int ckpt_ls(dtp_ctx *ctx, const ckpt_args *a)
{
    uint64_t *steps = NULL;
    dtp_error err = { 0 };
    bool good = true;
    size_t n = 0;

    if (ckpt_list_steps(ctx, a->path, &steps, &n, &err) < 0)
        return cmd_fail(&cmd_ckpt, &err);
    if (!a->json && n > 0)
        printf("%12s  %-8s  %6s  %8s  %7s  %10s  %10s\n", "step", "state", "ranks", "tensors",
               "shards", "bytes", "stored");
    for (size_t i = 0; i < n; i++)
        good &= print_step(ctx, a, steps[i]);
    free(steps);
    const int rc = cmd_finish(&cmd_ckpt);
    return good ? rc : CMD_FAILED;
}

/* ---- show ---- */

static void print_tensor(const ckpt_args *a, const dtp_ckpt_tensor *t)
{
    if (a->json) {
        printf("{\"tensor\":");
        ckpt_print_json(t->name);
        printf(",\"dtype\":\"%s\",\"shape\":", dtp_dtype_name(t->dtype));
        ckpt_print_shape(t);
        printf("}\n");
        return;
    }
    printf("  %-8s ", dtp_dtype_name(t->dtype));
    ckpt_print_shape(t);
    printf("  ");
    ckpt_print_line(t->name);
    putchar('\n');
}

static void print_head(const ckpt_args *a, const dtp_ckpt_info *i)
{
    char bytes[32], stored[32];

    ckpt_human(i->bytes, bytes, sizeof(bytes));
    ckpt_human(i->stored_bytes, stored, sizeof(stored));
    if (a->json)
        printf("{\"step\":%" PRIu64
               ",\"format\":\"%s\",\"checksums\":%s,\"world_size\":%u,\"tensors\":%u,\"shards\":%u,"
               "\"bytes\":%" PRIu64 ",\"stored_bytes\":%" PRIu64 ",\"meta\":",
               i->step, i->format, i->has_checksums ? "true" : "false", i->world_size,
               i->n_tensors, i->n_shards, i->bytes, i->stored_bytes);
    else if (i->has_checksums)
        printf("step %" PRIu64 ": %u tensors, %s (%s in %u shards), saved by %u ranks\nmeta: ",
               i->step, i->n_tensors, bytes, stored, i->n_shards, i->world_size);
    else
        printf("%s: %u tensors, %s (%s in %u files), no checksums\nmeta: ", i->format, i->n_tensors,
               bytes, stored, i->n_shards);
    ckpt_print_line(i->meta_json);
    puts(a->json ? "}" : "");
}

int ckpt_show(dtp_ctx *ctx, const ckpt_args *a)
{
    dtp_ckpt_info info = { 0 };
    dtp_ckpt *ckpt = NULL;
    dtp_error err = { 0 };

    dtp_status st = ckpt_open(ctx, a->path, a->has_step ? &a->step : NULL, &ckpt, &info, &err);
    if (st < 0)
        return cmd_fail(&cmd_ckpt, &err);
    print_head(a, &info);
    for (uint32_t i = 0; i < info.n_tensors && st >= 0; i++) {
        dtp_ckpt_tensor t = { .size = sizeof(t) };
        st = dtp_ckpt_get_tensor(ckpt, i, &t, &err);
        if (st >= 0)
            print_tensor(a, &t);
    }
    dtp_ckpt_close(ckpt);
    return st < 0 ? cmd_fail(&cmd_ckpt, &err) : cmd_finish(&cmd_ckpt);
}
