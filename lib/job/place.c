/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - processors and GPUs for the ranks of an attempt. */
#include "job/job.h"

#include <sched.h>

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

/* Not bound: an equal share of the processors that this process may use. */
static uint32_t share(uint32_t n)
{
    dtpi_cpuset s = { { 0 } };

    if (sched_getaffinity(0, sizeof(s.bits), (cpu_set_t *)(void *)s.bits) < 0)
        return 1;
    return DTPI_MAX(dtpi_cpuset_count(&s) / n, 1u);
}

dtp_status dtpi_job_place(dtp_job *job, uint32_t n, dtp_error *err)
{
    dtpi_place *p = &job->place;

    dtpi_place_free(job);
    p->ranks = dtpi_alloc_array(job->a, n, sizeof(*p->ranks));
    if (!p->ranks)
        return dtpi_fail_nomem(err, 0);
    p->n = n;
    for (uint32_t i = 0; i < n; i++) {
        p->ranks[i].cpus = dtpi_text_dup(job->a, "");
        p->ranks[i].gpus = dtpi_text_dup(job->a, "");
        p->ranks[i].n_cores = share(n);
        if (!p->ranks[i].cpus || !p->ranks[i].gpus)
            return dtpi_fail_nomem(err, 0);
    }
    return DTP_OK;
}
