/* SPDX-License-Identifier: Apache-2.0 */
/* spec.c - limits and defaults of a job, and its copy. What is wrong is said once, by field. */
#include "job/spec.h"

#include <ctype.h>
#include <limits.h>

#include "base/text.h"
#include "base/wire.h"

enum {
    MAX_NAME = 63,
    MAX_RESTARTS = 1000000,
    MAX_TEXT = 128 << 10,       /* of one argument or variable: the kernel's MAX_ARG_STRLEN */
    MAX_TEXTS = 16384,
    DEFAULT_GRACE_MS = 5000,
    MAX_MS = 24 * 3600 * 1000,
    RECORD_MAGIC = 0x6a707464   /* "dtpj" */
};

void dtpi_spec_init(dtpi_spec *s, const dtp_allocator *a)
{
    *s = (dtpi_spec){ .a = a };
    s->argv.buf = s->env.buf = s->env_base.buf = dtpi_buf_init(a);
}

void dtpi_spec_free(dtpi_spec *s)
{
    if (!s->a)
        return;
    dtpi_text_free(s->a, s->name);
    dtpi_text_free(s->a, s->cwd);
    dtpi_text_free(s->a, s->ckpt_dir);
    dtpi_buf_free(&s->argv.buf);
    dtpi_buf_free(&s->env.buf);
    dtpi_buf_free(&s->env_base.buf);
    s->a = NULL;
}

bool dtpi_var_ok(const char *var, size_t *len_out)
{
    const char *eq = strchr(var, '=');

    if (!eq || eq == var || isdigit((unsigned char)*var))
        return false;
    for (const char *p = var; p < eq; p++)
        if (isspace((unsigned char)*p) || iscntrl((unsigned char)*p))
            return false;
    *len_out = (size_t)(eq - var);
    return true;
}

/* ---- checks ---- */

/* Variables that say where a rank's group is; the job writes them. */
bool dtpi_var_is_own(const char *var, size_t len)
{
    static const char *const names[] = {
        "DTP_JOB", "DTP_ATTEMPT", "DTP_RANK", "DTP_WORLD_SIZE", "DTP_LOCAL_RANK", "DTP_LOCAL_SIZE",
        "DTP_NODE", "DTP_NODES", "DTP_ROOT", "DTP_PARENT", "DTP_LISTEN", "DTP_BOARD", "DTP_AGENT",
        "DTP_SECRET", "DTP_SECRET_FILE", "DTP_SECRET_FD", "DTP_MUNGE", "DTP_INSECURE",
    };

    for (size_t i = 0; i < DTPI_ARRAY_LEN(names); i++)
        if (strlen(names[i]) == len && memcmp(names[i], var, len) == 0)
            return true;
    return false;
}

static dtp_status check_argv(const dtpi_spec *s, dtp_error *err)
{
    const dtpi_texts argv = dtpi_list_texts(&s->argv);

    if (argv.n == 0 || !*argv.data)
        return dtpi_fail(err, DTP_ERR_INVAL, "no program to run was given");
    if (argv.n > MAX_TEXTS)
        return dtpi_fail(err, DTP_ERR_INVAL, "%u arguments are more than %d", argv.n, MAX_TEXTS);
    uint32_t i = 0;
    for (const char *t = dtpi_texts_next(&argv, NULL); t; t = dtpi_texts_next(&argv, t), i++)
        if (strlen(t) >= MAX_TEXT)
            return dtpi_fail(err, DTP_ERR_INVAL, "argument %u has more than %d bytes", i, MAX_TEXT);
    return DTP_OK;
}

static dtp_status check_env(const dtpi_list *list, bool is_user, dtp_error *err)
{
    const dtpi_texts env = dtpi_list_texts(list);

    if (env.n > MAX_TEXTS)
        return dtpi_fail(err, DTP_ERR_INVAL, "%u variables are more than %d", env.n, MAX_TEXTS);
    for (const char *t = dtpi_texts_next(&env, NULL); t; t = dtpi_texts_next(&env, t)) {
        size_t len;
        if (is_user && !dtpi_var_ok(t, &len))
            return dtpi_fail(err, DTP_ERR_INVAL, "env: '%.60s' is not of the form NAME=VALUE", t);
        if (is_user && dtpi_var_is_own(t, len))
            return dtpi_fail(err, DTP_ERR_INVAL, "env: %.*s is set by the job itself", (int)len, t);
        if (strlen(t) >= MAX_TEXT)
            return dtpi_fail(err, DTP_ERR_INVAL, "env: %.40s... has more than %d bytes", t,
                             MAX_TEXT);
    }
    return DTP_OK;
}

static dtp_status check_number(const char *field, int64_t v, int64_t min, int64_t max,
                               dtp_error *err)
{
    if (v < min || v > max)
        return dtpi_fail(err, DTP_ERR_INVAL, "%s: %lld is not within %lld and %lld", field,
                         (long long)v, (long long)min, (long long)max);
    return DTP_OK;
}

static dtp_status check_numbers(const dtpi_spec *s, dtp_error *err)
{
    const struct {
        const char *field;
        int64_t v, min, max;
    } list[] = {
        { "ranks", s->n_ranks, 1, DTPI_SHIM_MAX_RANKS },
        { "min_ranks", s->min_ranks, 1, s->n_ranks },
        { "max_restarts", s->max_restarts, 0, MAX_RESTARTS },
        { "gpus_per_rank", s->gpus_per_rank, 0, 1024 },
        { "cores_per_rank", s->cores_per_rank, 0, 8192 },
        { "grace", s->grace_ms, 1, MAX_MS },
        { "reform", s->reform_ms, 0, MAX_MS },
    };
    dtp_status st = DTP_OK;

    for (size_t i = 0; i < DTPI_ARRAY_LEN(list) && st >= 0; i++)
        st = check_number(list[i].field, list[i].v, list[i].min, list[i].max, err);
    return st;
}

dtp_status dtpi_spec_check(dtpi_spec *s, dtp_error *err)
{
    if (s->argv.buf.failed || s->env.buf.failed || s->env_base.buf.failed)
        return dtpi_fail_nomem(err, 0);
    if (s->min_ranks == 0)
        s->min_ranks = s->n_ranks;
    if (s->grace_ms == 0)
        s->grace_ms = DEFAULT_GRACE_MS;
    if (s->name && !dtpi_name_ok(s->name, MAX_NAME))
        return dtpi_fail(
            err, DTP_ERR_INVAL,
            "name: '%.70s' is not 1 to %d of [A-Za-z0-9._-], nor may it start with . or -", s->name,
            MAX_NAME);
    if ((s->cwd && strlen(s->cwd) >= PATH_MAX) || (s->ckpt_dir && strlen(s->ckpt_dir) >= PATH_MAX))
        return dtpi_fail(err, DTP_ERR_INVAL, "cwd or ckpt: a path of %d bytes or more", PATH_MAX);
    dtp_status st = check_numbers(s, err);
    if (st >= 0)
        st = check_argv(s, err);
    if (st >= 0)
        st = check_env(&s->env, true, err);
    if (st >= 0)
        st = check_env(&s->env_base, false, err);
    return st;
}

/* ---- copy of the caller's struct ---- */

static void copy_list(dtpi_list *l, const char *const *texts)
{
    for (; texts && *texts && l->n <= MAX_TEXTS; texts++)
        dtpi_texts_add(&l->buf, &l->n, *texts);
}

static bool copy_text(const dtpi_spec *s, const char *text, char **out)
{
    if (!text)
        return true;
    *out = dtpi_text_dup(s->a, text);
    return *out != NULL;
}

dtp_status dtpi_spec_copy(dtpi_spec *s, const dtp_job_spec *user, dtp_error *err)
{
    dtp_job_spec u;

    dtp_status st = DTPI_OPTS_READ(&u, user, err);
    if (st < 0)
        return st;
    s->n_ranks = u.n_ranks;
    s->min_ranks = u.min_ranks;
    s->max_restarts = u.max_restarts;
    s->gpus_per_rank = u.gpus_per_rank;
    s->cores_per_rank = u.cores_per_rank;
    s->no_bind = u.no_bind;
    s->grace_ms = u.grace_ms;
    s->reform_ms = u.reform_ms;
    copy_list(&s->argv, u.argv);
    copy_list(&s->env, u.env);
    copy_list(&s->env_base, u.env_base);
    if (!copy_text(s, u.name, &s->name) || !copy_text(s, u.cwd, &s->cwd) ||
        !copy_text(s, u.ckpt_dir, &s->ckpt_dir))
        return dtpi_fail_nomem(err, 0);
    return dtpi_spec_check(s, err);
}

/* ---- record ---- */

static void put_list(dtpi_buf *b, const dtpi_list *l)
{
    dtpi_wr_u32(b, l->n);
    dtpi_wr_block(b, l->buf.data, l->buf.len);
}

static void put_text(dtpi_buf *b, const char *text)
{
    dtpi_wr_u8(b, text != NULL);
    dtpi_wr_text(b, text ? text : "");
}

void dtpi_spec_encode(const dtpi_spec *s, dtpi_buf *b)
{
    const uint32_t numbers[] = { s->n_ranks, s->min_ranks, s->max_restarts, s->gpus_per_rank,
                                 s->cores_per_rank, s->no_bind, (uint32_t)s->grace_ms,
                                 (uint32_t)s->reform_ms };

    dtpi_wr_u32(b, RECORD_MAGIC);
    dtpi_wr_u32(b, 1);
    for (size_t i = 0; i < DTPI_ARRAY_LEN(numbers); i++)
        dtpi_wr_u32(b, numbers[i]);
    put_text(b, s->name);
    put_text(b, s->cwd);
    put_text(b, s->ckpt_dir);
    put_list(b, &s->argv);
    put_list(b, &s->env);
    put_list(b, &s->env_base);
}

static void get_list(dtpi_rd *r, dtpi_list *l)
{
    const uint32_t n = dtpi_rd_u32(r);
    size_t bytes = 0;
    const uint8_t *p = dtpi_rd_block(r, DTPI_SPEC_MAX_RECORD, &bytes);
    uint32_t found = 0;

    for (size_t i = 0; p && i < bytes; i++)
        found += p[i] == 0;
    if (!p || found != n || (bytes > 0 && p[bytes - 1] != 0)) {
        r->failed = true;
        return;
    }
    dtpi_buf_append(&l->buf, p, bytes);
    l->n = n;
}

static void get_text(dtpi_rd *r, const dtp_allocator *a, char **out)
{
    const bool is_set = dtpi_rd_u8(r);
    size_t bytes = 0;
    const uint8_t *p = dtpi_rd_block(r, PATH_MAX, &bytes);

    if (p && memchr(p, 0, bytes))
        r->failed = true;
    else if (p && is_set)
        *out = dtpi_text_ndup(a, (const char *)p, bytes);
}

dtp_status dtpi_spec_decode(dtpi_spec *s, const void *data, size_t bytes, dtp_error *err)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);
    uint32_t *const numbers[] = { &s->n_ranks, &s->min_ranks, &s->max_restarts, &s->gpus_per_rank,
                                  &s->cores_per_rank, &s->no_bind, (uint32_t *)&s->grace_ms,
                                  (uint32_t *)&s->reform_ms };

    if (dtpi_rd_u32(&r) != RECORD_MAGIC)
        return dtpi_fail(err, DTP_ERR_FORMAT, "this is not the record of a job");
    const uint32_t version = dtpi_rd_u32(&r);
    if (version != 1)
        return dtpi_fail(err, DTP_ERR_VERSION,
                         "the job's record has version %u, this library reads 1", version);
    for (size_t i = 0; i < DTPI_ARRAY_LEN(numbers); i++)
        *numbers[i] = dtpi_rd_u32(&r);
    get_text(&r, s->a, &s->name);
    get_text(&r, s->a, &s->cwd);
    get_text(&r, s->a, &s->ckpt_dir);
    get_list(&r, &s->argv);
    get_list(&r, &s->env);
    get_list(&r, &s->env_base);
    if (!dtpi_rd_done(&r))
        return dtpi_fail(err, DTP_ERR_FORMAT, "the job's record is damaged");
    return dtpi_spec_check(s, err);
}
