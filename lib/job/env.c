/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.c - the environment of a rank.
 *
 * Who wins: what the job's `env` sets, then what is computed here, then what was inherited; for
 * mere defaults (threads, UCX, Python) what was inherited wins too. Several clusters set RANK and
 * WORLD_SIZE for a container; such inherited values are replaced. Those of MPI launchers are dropped.
 */
#include "job/env.h"

#include <stdio.h>

#include "group/env.h"

/* ---- reading lists ---- */

static const char *find(const dtpi_list *l, const char *name)
{
    const dtpi_texts texts = dtpi_list_texts(l);
    const size_t len = strlen(name);
    const char *found = NULL;

    for (const char *t = dtpi_texts_next(&texts, NULL); t; t = dtpi_texts_next(&texts, t))
        if (strncmp(t, name, len) == 0 && t[len] == '=')
            found = t + len + 1;
    return found;
}

const char *dtpi_env_lookup(const dtpi_spec *spec, const char *name)
{
    const char *v = find(&spec->env, name);

    return v ? v : find(&spec->env_base, name);
}

/* ---- writing ---- */

typedef struct writer {
    const dtpi_spec *spec;
    dtpi_list *out;
    dtpi_buf value;             /* room for one variable */
} writer;

static void put(writer *w, const char *name, const char *value)
{
    if (find(&w->spec->env, name))
        return;
    dtpi_buf_reset(&w->value);
    dtpi_buf_printf(&w->value, "%s=%s", name, value);
    const char *var = dtpi_buf_text(&w->value);
    if (var)
        dtpi_texts_add(&w->out->buf, &w->out->n, var);
    else
        w->out->buf.failed = true;
}

static void put_u32(writer *w, const char *name, uint32_t v)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", v);
    put(w, name, text);
}

/* Only where nobody has said otherwise. */
static void put_default(writer *w, const char *name, const char *value)
{
    if (!dtpi_env_lookup(w->spec, name))
        put(w, name, value);
}

/* ---- by whom it is read ---- */

static dtp_status put_group_var(void *user, const char *name, const char *value)
{
    put(user, name, value);
    return DTP_OK;
}

/* The secret goes by file: an environment is inherited by every child and shows up in logs. */
static void put_dtp(writer *w, const dtpi_env_attempt *at, const dtpi_env_rank *r)
{
    const dtp_group_opts opts = {
        .size = sizeof(opts), .rank = (int32_t)r->rank, .world_size = (int32_t)at->n,
        .local_rank = (int32_t)r->rank, .local_size = (int32_t)at->n, .job = at->name,
        .attempt = at->attempt, .agent = at->agent,
    };

    dtpi_group_env_write(&opts, put_group_var, w, NULL);
    put(w, "DTP_SECRET_FILE", at->secret_file);
    if (at->spec->ckpt_dir)
        put(w, "DTP_CKPT_DIR", at->spec->ckpt_dir);
}

/* Source: pytorch torch/distributed/elastic/agent/server/local_elastic_agent.py */
static void put_torch(writer *w, const dtpi_env_attempt *at, const dtpi_env_rank *r)
{
    put_u32(w, "RANK", r->rank);
    put_u32(w, "LOCAL_RANK", r->rank);
    put_u32(w, "WORLD_SIZE", at->n);
    put_u32(w, "LOCAL_WORLD_SIZE", at->n);
    put(w, "GROUP_RANK", "0");
    put(w, "GROUP_WORLD_SIZE", "1");
    put_u32(w, "ROLE_RANK", r->rank);
    put_u32(w, "ROLE_WORLD_SIZE", at->n);
    put(w, "ROLE_NAME", "default");
    put(w, "MASTER_ADDR", "127.0.0.1");
    put_u32(w, "MASTER_PORT", at->ports[0]);
    put_u32(w, "TORCHELASTIC_RESTART_COUNT", at->attempt);
    put_u32(w, "TORCHELASTIC_MAX_RESTARTS", at->spec->max_restarts);
    put(w, "TORCHELASTIC_RUN_ID", at->name);
    put(w, "TORCHELASTIC_USE_AGENT_STORE", "False");
    put_default(w, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
}

/* Source: jax jax/_src/distributed.py */
static void put_jax(writer *w, const dtpi_env_attempt *at, const dtpi_env_rank *r)
{
    char address[32];

    snprintf(address, sizeof(address), "127.0.0.1:%u", at->ports[1]);
    put(w, "JAX_COORDINATOR_ADDRESS", address);
    put_u32(w, "JAX_NUM_PROCESSES", at->n);
    put_u32(w, "JAX_PROCESS_ID", r->rank);
}

/* Source: tensorflow.org, "Multi-worker training": TF_CONFIG. */
static void put_tensorflow(writer *w, const dtpi_env_attempt *at, const dtpi_env_rank *r)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(at->spec->a);

    if (at->n > DTPI_ENV_TF_RANKS || at->n_ports < DTPI_ENV_PORTS + at->n)
        return;
    dtpi_buf_printf(&b, "{\"cluster\":{\"worker\":[");
    for (uint32_t i = 0; i < at->n; i++)
        dtpi_buf_printf(&b, "%s\"127.0.0.1:%u\"", i ? "," : "", at->ports[DTPI_ENV_PORTS + i]);
    dtpi_buf_printf(&b, "]},\"task\":{\"type\":\"worker\",\"index\":%u}}", r->rank);
    const char *text = dtpi_buf_text(&b);
    if (text)
        put(w, "TF_CONFIG", text);
    else
        w->out->buf.failed = true;
}

static void put_hardware(writer *w, const dtpi_env_attempt *at, const dtpi_env_rank *r)
{
    static const char *const threads[] = { "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                           "MKL_NUM_THREADS" };
    char n[16];

    snprintf(n, sizeof(n), "%u", r->n_cores);
    for (size_t i = 0; i < DTPI_ARRAY_LEN(threads) && r->n_cores > 0; i++)
        put_default(w, threads[i], n);
    if (*r->gpus) {
        put(w, "CUDA_VISIBLE_DEVICES", r->gpus);
        put(w, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    } else if (at->hide_gpus) {
        put(w, "CUDA_VISIBLE_DEVICES", "");
    }
    put_default(w, "UCX_HANDLE_ERRORS", "none");
    put_default(w, "UCX_MEM_EVENTS", "n");
    /* Output goes to a pipe: without this a killed rank loses what it has printed. */
    put_default(w, "PYTHONUNBUFFERED", "1");
}

uint32_t dtpi_env_n_ports(uint32_t n)
{
    return DTPI_ENV_PORTS + (n <= DTPI_ENV_TF_RANKS ? n : 0);
}

dtp_status dtpi_env_of_rank(const dtpi_env_attempt *at, const dtpi_env_rank *r, dtpi_list *out,
                            dtp_error *err)
{
    writer w = { .spec = at->spec, .out = out, .value = dtpi_buf_init(at->spec->a) };

    put_dtp(&w, at, r);
    put_torch(&w, at, r);
    put_jax(&w, at, r);
    put_tensorflow(&w, at, r);
    put_hardware(&w, at, r);
    const bool failed = out->buf.failed || w.value.failed;
    dtpi_buf_free(&w.value);
    return failed ? dtpi_fail_nomem(err, 0) : DTP_OK;
}

/* A launcher around us (mpirun -n 1 dtp run) gave us a place in its gang, which is not the ranks'. */
static bool is_outer_place(const char *name)
{
    static const char *const names[] = { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS" };
    static const char ompi[] = "OMPI_COMM_WORLD_";

    for (size_t i = 0; i < DTPI_ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, ompi, sizeof(ompi) - 1) == 0;
}

/* Adds what `from` has and `out`, `but` and `later` do not name. */
static void merge(const dtpi_list *from, const dtpi_list *later, const dtpi_list *but,
                  dtpi_list *out)
{
    const dtpi_texts texts = dtpi_list_texts(from);

    for (const char *t = dtpi_texts_next(&texts, NULL); t; t = dtpi_texts_next(&texts, t)) {
        char name[256];
        size_t len;
        /* A job inside a job: what says where the outer group is must not be seen. */
        if (!dtpi_var_ok(t, &len) || len >= sizeof(name) || dtpi_var_is_own(t, len))
            continue;
        memcpy(name, t, len);
        name[len] = '\0';
        if (later && is_outer_place(name))
            continue;
        /* The last of several with one name counts: find() returns that one. */
        if ((later && find(later, name)) || find(but, name) || find(from, name) != t + len + 1)
            continue;
        dtpi_texts_add(&out->buf, &out->n, t);
    }
}

dtp_status dtpi_env_common(const dtpi_spec *spec, const dtpi_list *rank_env, dtpi_list *out,
                           dtp_error *err)
{
    merge(&spec->env_base, &spec->env, rank_env, out);
    merge(&spec->env, NULL, rank_env, out);
    return out->buf.failed ? dtpi_fail_nomem(err, 0) : DTP_OK;
}
