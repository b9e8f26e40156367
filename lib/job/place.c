/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.c - processors and GPUs for the ranks of an attempt, and the locks that make them this
 * job's.
 *
 * The first attempt takes from what is free; later ones stay within what the job holds, which its
 * shim keeps locked. A race with another job is settled by the locks: who loses looks again.
 */
#include "job/job.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "launch/locks.h"

enum { TRIES = 4, DYING_MS = 500 };

void dtpi_place_free(dtp_job *job)
{
    dtpi_place *p = &job->place;

    for (uint32_t i = 0; i < p->n; i++) {
        dtpi_text_free(job->a, p->ranks[i].cpus);
        dtpi_text_free(job->a, p->ranks[i].gpus);
    }
    dtpi_free(job->a, p->ranks, p->n * sizeof(*p->ranks));
    p->ranks = NULL;
    p->n = 0;
    dtpi_close_fd(&p->locks_fd);
}

static dtp_status new_ranks(dtp_job *job, uint32_t n, dtp_error *err)
{
    dtpi_place *p = &job->place;

    dtpi_place_free(job);
    p->ranks = dtpi_alloc_array(job->a, n, sizeof(*p->ranks));
    if (!p->ranks)
        return dtpi_fail_nomem(err, 0);
    p->n = n;
    return DTP_OK;
}

static dtp_status set_rank(dtp_job *job, uint32_t i, const char *cpus, const char *gpus,
                           uint32_t n_cores, dtp_error *err)
{
    dtpi_place_rank *r = &job->place.ranks[i];

    r->cpus = dtpi_text_dup(job->a, cpus);
    r->gpus = dtpi_text_dup(job->a, gpus);
    r->n_cores = n_cores;
    return r->cpus && r->gpus ? DTP_OK : dtpi_fail_nomem(err, 0);
}

/* ---- not bound ---- */

/* An equal share of the processors that this process may use, for thread pools. */
static uint32_t share(uint32_t n)
{
    dtpi_cpuset s = { { 0 } };

    if (sched_getaffinity(0, sizeof(s.bits), (cpu_set_t *)(void *)s.bits) < 0)
        return 1;
    return DTPI_MAX(dtpi_cpuset_count(&s) / n, 1u);
}

static dtp_status leave_unbound(dtp_job *job, uint32_t n, dtp_error *err)
{
    dtp_status st = new_ranks(job, n, err);

    for (uint32_t i = 0; i < n && st >= 0; i++)
        st = set_rank(job, i, "", "", share(n), err);
    return st;
}

/* ---- placed ---- */

static dtp_status need_topo(dtp_job *job, dtp_error *err)
{
    const dtp_topo_opts opts = { .size = sizeof(opts), .no_devices = job->spec.gpus_per_rank == 0 };

    if (job->topo)
        return DTP_OK;
    const dtp_status st = dtp_topo_load(job->ctx, &opts, &job->own_topo, err);
    if (st >= 0)
        job->topo = job->own_topo;
    return st;
}

static dtp_status solve(dtp_job *job, uint32_t n, const dtpi_cpuset *busy_cpus,
                        const dtpi_cpuset *busy_gpus, dtp_placement **out, dtp_error *err)
{
    char *cpus = dtpi_cpuset_format(busy_cpus, job->a),
         *gpus = dtpi_cpuset_format(busy_gpus, job->a);
    const dtp_placement_req req = {
        .size = sizeof(req), .n_ranks = n, .gpus_per_rank = job->spec.gpus_per_rank,
        .cores_per_rank = job->spec.cores_per_rank, .busy_cpus = job->spec.no_bind ? NULL : cpus,
        .busy_gpus = job->spec.gpus_per_rank > 0 ? gpus : NULL,
        /* An equal share of too few cores means that ranks share some. */
        .oversubscribe = job->spec.cores_per_rank == 0 || job->spec.no_bind,
    };

    const dtp_status st = cpus && gpus ? dtp_placement_solve(job->topo, &req, out, err)
                                       : dtpi_fail_nomem(err, 0);
    dtpi_text_free(job->a, cpus);
    dtpi_text_free(job->a, gpus);
    return st;
}

/* Copies what a placement says; `cpus` and `gpus` get all of it together. */
static dtp_status take_over(dtp_job *job, uint32_t n, const dtp_placement *placement,
                            dtpi_cpuset *cpus, dtpi_cpuset *gpus, dtp_error *err)
{
    dtp_status st = new_ranks(job, n, err);

    for (uint32_t i = 0; i < n && st >= 0; i++) {
        dtp_placement_rank r = { .size = sizeof(r) };
        dtpi_cpuset one, gpu;
        st = dtp_placement_get(placement, i, &r, err);
        if (st >= 0)
            st = dtpi_cpuset_parse(r.cpus, &one, err);
        if (st >= 0)
            st = dtpi_cpuset_parse(r.gpus, &gpu, err);
        if (st < 0)
            break;
        dtpi_cpuset_or(gpus, &gpu);
        if (job->spec.no_bind) {
            st = set_rank(job, i, "", r.gpus, share(n), err);
            continue;
        }
        dtpi_cpuset_or(cpus, &one);
        st = set_rank(job, i, r.cpus, r.gpus, r.shares_cores ? 1 : dtpi_cpuset_count(&one), err);
    }
    return st;
}

/* It does not fit. Where it would on an idle machine, the locks say who is in the way. */
static dtp_status name_holder(dtp_job *job, uint32_t n, int fd, dtp_error *err)
{
    const dtpi_cpuset none = { { 0 } };
    dtpi_cpuset cpus = none, gpus = none;
    dtp_placement *placement = NULL;
    dtp_error why = { 0 };

    if (solve(job, n, &none, &none, &placement, NULL) < 0)
        return DTP_ERR_LIMIT;
    dtp_status st = take_over(job, n, placement, &cpus, &gpus, &why);
    dtp_placement_free(placement);
    if (st >= 0)
        st = dtpi_locks_take(fd, job->spec.name, &cpus, &gpus, &why);
    if (st != DTP_ERR_BUSY)
        return DTP_ERR_LIMIT;
    if (err)
        *err = why;
    return st;
}

static dtp_status write_held(dtp_job *job, dtp_error *err)
{
    char *cpus = dtpi_cpuset_format(&job->place.cpus, job->a);
    char *gpus = dtpi_cpuset_format(&job->place.gpus, job->a);

    const dtp_status st = cpus && gpus ? dtpi_record_put_held(&job->record, cpus, gpus, err)
                                       : dtpi_fail_nomem(err, 0);
    dtpi_text_free(job->a, cpus);
    dtpi_text_free(job->a, gpus);
    return st;
}

/* One try: what is free, a placement in it, its locks. */
static dtp_status try_free(dtp_job *job, uint32_t n, int fd, dtp_error *err)
{
    dtpi_cpuset busy_cpus, busy_gpus, cpus = { { 0 } }, gpus = { { 0 } };
    dtp_placement *placement = NULL;

    dtp_status st = dtpi_locks_busy(fd, &busy_cpus, &busy_gpus, err);
    if (st >= 0)
        st = solve(job, n, &busy_cpus, &busy_gpus, &placement, err);
    if (st == DTP_ERR_LIMIT)
        return name_holder(job, n, fd, err);
    if (st >= 0)
        st = take_over(job, n, placement, &cpus, &gpus, err);
    dtp_placement_free(placement);
    if (st >= 0)
        st = dtpi_locks_take(fd, job->spec.name, &cpus, &gpus, err);
    if (st < 0)
        return st;
    job->place.cpus = cpus;
    job->place.gpus = gpus;
    return DTP_OK;
}

/*
 * After the death of a shim: what it held stays locked until the kernel has closed the descriptors of
 * the processes that were killed, some milliseconds. A job that has held nothing returns at once.
 */
static void await_own_locks(const dtp_job *job, int fd)
{
    dtpi_cpuset cpus, gpus;

    for (int ms = 0; ms < DYING_MS && dtpi_locks_busy(fd, &cpus, &gpus, NULL) >= 0; ms++) {
        if (!dtpi_cpuset_intersects(&cpus, &job->place.cpus) &&
            !dtpi_cpuset_intersects(&gpus, &job->place.gpus))
            return;
        poll(NULL, 0, 1);
    }
}

static dtp_status place_free(dtp_job *job, uint32_t n, dtp_error *err)
{
    DTPI_AUTO_FD int fd = -1;

    dtp_status st = dtpi_locks_open(job->record.run_dir, &fd, err);
    if (st < 0)
        return st;
    await_own_locks(job, fd);
    for (int i = 0; i < TRIES; i++) {
        st = try_free(job, n, fd, err);
        if (st != DTP_ERR_BUSY)
            break;
    }
    if (st >= 0)
        st = write_held(job, err);
    if (st < 0)
        return st;
    job->place.locks_fd = dtpi_take_fd(&fd);
    return DTP_OK;
}

static dtp_status all_of_machine(dtp_job *job, dtpi_cpuset *cpus, dtpi_cpuset *gpus, dtp_error *err)
{
    const char *text = dtp_topo_cpus(job->topo, DTP_CPUS_MACHINE);

    memset(gpus, 0, sizeof(*gpus));
    for (uint32_t i = 0; i < dtp_topo_count(job->topo, DTP_TOPO_GPU); i++)
        dtpi_cpuset_set(gpus, i);
    return dtpi_cpuset_parse(text ? text : "", cpus, err);
}

/* A later attempt while the shim holds the locks. */
static dtp_status place_within(dtp_job *job, uint32_t n, dtp_error *err)
{
    dtpi_cpuset busy_cpus, busy_gpus, cpus = { { 0 } }, gpus = { { 0 } };
    dtp_placement *placement = NULL;

    dtp_status st = all_of_machine(job, &busy_cpus, &busy_gpus, err);
    if (st < 0)
        return st;
    dtpi_cpuset_minus(&busy_cpus, &job->place.cpus);
    dtpi_cpuset_minus(&busy_gpus, &job->place.gpus);
    st = solve(job, n, &busy_cpus, &busy_gpus, &placement, err);
    if (st >= 0)
        st = take_over(job, n, placement, &cpus, &gpus, err);
    dtp_placement_free(placement);
    return st;
}

dtp_status dtpi_job_place(dtp_job *job, uint32_t n, dtp_error *err)
{
    if (job->spec.no_bind && job->spec.gpus_per_rank == 0)
        return leave_unbound(job, n, err);
    const dtp_status st = need_topo(job, err);
    if (st < 0)
        return st;
    return dtpi_conn_is_open(&job->conn) ? place_within(job, n, err) : place_free(job, n, err);
}
