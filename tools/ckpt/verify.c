/* SPDX-License-Identifier: Apache-2.0 */
/* verify.c - `dtp ckpt verify`: every byte is read, and compared where there is a checksum. */
#include "bar.h"
#include "ckpt/ckpt.h"
#include "ckpt/steps.h"

static void print_ok(const ckpt_args *a, const char *path, const dtp_ckpt_info *i, double seconds)
{
    char label[300], bytes[32];

    ckpt_label(path, i, label, sizeof(label));
    ckpt_human(i->stored_bytes, bytes, sizeof(bytes));
    if (a->json)
        printf("{\"step\":%" PRIu64
               ",\"ok\":true,\"checksums\":%s,\"stored_bytes\":%" PRIu64 ",\"seconds\":%.3f}\n",
               i->step, i->has_checksums ? "true" : "false", i->stored_bytes, seconds);
    else if (i->has_checksums)
        printf("%s: ok (%s, %u tensors, %.2f GB/s)\n", label, bytes, i->n_tensors,
               (double)i->stored_bytes / seconds / 1e9);
    else
        printf("%s: readable (%s, %u tensors, %.2f GB/s); it has no checksums to compare with\n",
               label, bytes, i->n_tensors, (double)i->stored_bytes / seconds / 1e9);
}

/* Files may be those of an earlier step: the line begins with the step that was asked for. */
static bool print_failed(const ckpt_args *a, const char *label, const uint64_t *step, dtp_error *err)
{
    if (a->json) {
        putchar('{');
        if (step)
            printf("\"step\":%" PRIu64 ",", *step);
        printf("\"ok\":false,\"why\":");
        ckpt_print_json(err->text);
        printf("}\n");
    }
    if (label)
        dtpi_fail(err, err->status, "%s: %s", label, err->text);
    cmd_fail(&cmd_ckpt, err);
    return false;
}

static bool verify_one(dtp_ctx *ctx, const ckpt_args *a, const uint64_t *step)
{
    dtp_ckpt_info info = { 0 };
    dtp_ckpt *ckpt = NULL;
    dtp_error err = { 0 };
    char label[300];

    dtp_status st = ckpt_open(ctx, a->path, step, &ckpt, &info, &err);
    if (st < 0)
        return print_failed(a, NULL, step, &err);
    ckpt_label(a->path, &info, label, sizeof(label));
    bar b = bar_begin(ctx, label);
    st = dtp_ckpt_verify(ckpt, bar_draw, &b, &err);
    const double seconds = bar_end(&b);
    if (st < 0)
        print_failed(a, label, info.has_checksums ? &info.step : NULL, &err);
    else
        print_ok(a, a->path, &info, seconds);
    dtp_ckpt_close(ckpt);
    return st >= 0;
}

/* Every step that has a manifest, or only the newest of them: damage is to be found, not passed over. */
static int verify_steps(dtp_ctx *ctx, const ckpt_args *a, const uint64_t *steps, size_t n)
{
    bool good = true, any = false;
    dtp_error err = { 0 };

    for (size_t i = n; i-- > 0 && (a->all || !any);) {
        if (!ckpt_step_has(a->path, steps[i], DTPI_MANIFEST_NAME))
            continue;
        any = true;
        good &= verify_one(ctx, a, &steps[i]);
    }
    if (!any) {
        dtpi_fail(&err, DTP_ERR_NOT_FOUND, "no complete checkpoint under %s", a->path);
        return cmd_fail(&cmd_ckpt, &err);
    }
    const int rc = cmd_finish(&cmd_ckpt);
    return good ? rc : CMD_FAILED;
}

int ckpt_verify(dtp_ctx *ctx, const ckpt_args *a)
{
    uint64_t *steps = NULL;
    dtp_error err = { 0 };
    size_t n = 0;
    int rc;

    if (!a->has_step && ckpt_list_steps(ctx, a->path, &steps, &n, &err) >= 0 && n > 0) {
        rc = verify_steps(ctx, a, steps, n);
        free(steps);
        return rc;
    }
    free(steps);
    const bool good = verify_one(ctx, a, a->has_step ? &a->step : NULL);
    rc = cmd_finish(&cmd_ckpt);
    return good ? rc : CMD_FAILED;
}
