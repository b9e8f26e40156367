/* SPDX-License-Identifier: Apache-2.0 */
/* util.c - printing, and which checkpoint a name on the command line means. */
#include <errno.h>

#include "ckpt/ckpt.h"
#include "ckpt/json.h"
#include "ckpt/steps.h"

void ckpt_human(uint64_t bytes, char *text_out, size_t room)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    double v = (double)bytes;
    size_t u = 0;

    for (; v >= 1024 && u + 1 < DTPI_ARRAY_LEN(units); u++)
        v /= 1024;
    snprintf(text_out, room, u ? "%.1f %s" : "%.0f %s", v, units[u]);
}

void ckpt_print_json(const char *text)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);

    dtpi_json_put(&b, text, strlen(text));
    fwrite(b.data, 1, b.len, stdout);
    dtpi_buf_free(&b);
}

void ckpt_print_line(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text);
}

void ckpt_print_shape(const dtp_ckpt_tensor *t)
{
    putchar('[');
    for (uint32_t i = 0; i < t->n_dims; i++)
        printf("%s%" PRId64, i ? ", " : "", t->shape[i]);
    putchar(']');
}

dtp_status ckpt_list_steps(dtp_ctx *ctx, const char *dir, uint64_t **steps_out, size_t *n_out,
                           dtp_error *err)
{
    size_t n = 0, room = 0;
    uint64_t *steps = NULL;

    do {
        room = n;
        free(steps);
        steps = calloc(room + 1, sizeof(*steps));
        if (!steps)
            return dtpi_fail_nomem(err, room * sizeof(*steps));
        const dtp_status st = dtp_ckpt_list(ctx, dir, steps, room, &n, err);
        if (st < 0) {
            free(steps);
            return st;
        }
    } while (n > room);
    *steps_out = steps;
    *n_out = n;
    return DTP_OK;
}

bool ckpt_step_has(const char *dir, uint64_t step, const char *name)
{
    char step_dir[DTPI_PATH_MAX], path[DTPI_PATH_MAX];

    return dtpi_step_path(step_dir, dir, step, NULL) >= 0 &&
           dtpi_path_join(path, step_dir, name, NULL) >= 0 &&
           (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR));
}

/* DIR:STEP, where there is no file of that name. */
static bool split_step(const char *path, char dir_out[DTPI_PATH_MAX], uint64_t *step_out)
{
    const char *colon = strrchr(path, ':');
    char *end = NULL;

    if (!colon || colon[1] < '0' || colon[1] > '9' || access(path, F_OK) == 0 ||
        (size_t)(colon - path) >= DTPI_PATH_MAX)
        return false;
    errno = 0;
    *step_out = strtoull(colon + 1, &end, 10);
    memcpy(dir_out, path, (size_t)(colon - path));
    dir_out[colon - path] = '\0';
    return errno == 0 && !*end;
}

static dtp_status open_named(dtp_ctx *ctx, const char *path, dtp_ckpt **ckpt_out, dtp_error *err)
{
    char dir[DTPI_PATH_MAX];
    uint64_t step = 0, one = 0;
    size_t n = 0;

    if (split_step(path, dir, &step))
        return dtp_ckpt_open(ctx, dir, step, ckpt_out, err);
    if (dtp_ckpt_list(ctx, path, &one, 1, &n, NULL) < 0 || n == 0)
        return dtp_ckpt_open_path(ctx, path, ckpt_out, err);
    const dtp_status st = dtp_ckpt_latest(ctx, path, &step, err);
    return st < 0 ? st : dtp_ckpt_open(ctx, path, step, ckpt_out, err);
}

dtp_status ckpt_open(dtp_ctx *ctx, const char *path, const uint64_t *step, dtp_ckpt **ckpt_out,
                     dtp_ckpt_info *info_out, dtp_error *err)
{
    dtp_ckpt *ckpt = NULL;

    dtp_status st = step ? dtp_ckpt_open(ctx, path, *step, &ckpt, err)
                         : open_named(ctx, path, &ckpt, err);
    info_out->size = sizeof(*info_out);
    if (st >= 0)
        st = dtp_ckpt_get_info(ckpt, info_out, err);
    if (st < 0) {
        dtp_ckpt_close(ckpt);
        return st;
    }
    *ckpt_out = ckpt;
    return DTP_OK;
}

void ckpt_label(const char *path, const dtp_ckpt_info *info, char *text_out, size_t room)
{
    if (info->has_checksums)
        snprintf(text_out, room, "step %" PRIu64, info->step);
    else
        snprintf(text_out, room, "%s", path);
}
