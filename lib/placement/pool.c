/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - what may be dealt: cores that are allowed and held by nobody, GPUs that are free.
 *
 * Cores are dealt whole. A core of which another job holds one PU is not free; one of which the cgroup
 * allows only some PUs is dealt with those.
 */
#include <stdlib.h>

#include "placement/placement.h"

static uint32_t node_index(const dtpi_place_pool *pool, int64_t numa)
{
    for (uint32_t k = 0; numa != DTP_UNKNOWN && k < pool->n_nodes; k++)
        if (pool->node_ids[k] == numa)
            return k;
    return pool->n_nodes;
}

/* NUMA nodes that have processors, in order of their OS index. */
static dtp_status find_nodes(dtpi_place_pool *pool, const dtp_topo *topo, dtp_error *err)
{
    const uint32_t n = dtp_topo_count(topo, DTP_TOPO_NUMA);
    const size_t entries = pool->n_entries = n + 2;

    pool->node_ids = dtpi_alloc_array(pool->a, entries, sizeof(*pool->node_ids));
    pool->core_first = dtpi_alloc_array(pool->a, entries, sizeof(*pool->core_first));
    pool->gpu_first = dtpi_alloc_array(pool->a, entries, sizeof(*pool->gpu_first));
    pool->room = dtpi_alloc_array(pool->a, entries, sizeof(*pool->room));
    if (!pool->node_ids || !pool->core_first || !pool->gpu_first || !pool->room)
        return dtpi_fail_nomem(err, entries * sizeof(*pool->node_ids));
    for (uint32_t i = 0; i < n; i++) {
        const dtp_topo_obj *numa = &topo->objs[topo->sorted[topo->first[DTP_TOPO_NUMA] + i]];
        if (numa->numa == numa->os_index)
            pool->node_ids[pool->n_nodes++] = numa->os_index;
    }
    return DTP_OK;
}

static dtp_status parse_cpus(const char *text, dtpi_cpuset *out, const char *what, dtp_error *err)
{
    if (dtpi_cpuset_parse(text, out, NULL) < 0)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s '%.64s' is no list such as 0-3,8", what, text);
    return DTP_OK;
}

/* A core, or a PU whose parent is no core. */
static bool is_unit(const dtp_topo *topo, const dtp_topo_obj *obj)
{
    return obj->type == DTP_TOPO_CORE ||
           (obj->type == DTP_TOPO_PU && topo->objs[obj->parent].type != DTP_TOPO_CORE);
}

static dtp_status add_core(dtpi_place_pool *pool, const dtp_topo_obj *obj,
                           const dtpi_cpuset *allowed, const dtpi_cpuset *busy, dtp_error *err)
{
    dtpi_place_core *core = &pool->cores[pool->n_cores];

    /* A recorded machine may have a core of which no processor is there. */
    if (!obj->cpus)
        return DTP_OK;
    const dtp_status st = parse_cpus(obj->cpus, &core->pus, "processors", err);

    if (st < 0)
        return st;
    const bool held = dtpi_cpuset_intersects(&core->pus, busy);
    dtpi_cpuset_and(&core->pus, allowed);
    if (!dtpi_cpuset_count(&core->pus))
        return DTP_OK;
    pool->n_allowed_cores++;
    if (held)
        return DTP_OK;
    core->node = node_index(pool, obj->numa);
    pool->n_cores++;
    return DTP_OK;
}

static int compare_cores(const void *pa, const void *pb)
{
    const dtpi_place_core *x = pa, *y = pb;

    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return dtpi_cpuset_next(&x->pus, 0) < dtpi_cpuset_next(&y->pus, 0) ? -1 : 1;
}

static dtp_status find_cores(dtpi_place_pool *pool, const dtp_topo *topo, const char *busy_cpus,
                             dtp_error *err)
{
    const char *view = dtp_topo_cpus(topo, DTP_CPUS_ALLOWED);
    dtpi_cpuset allowed, busy = { 0 };
    dtp_status st = parse_cpus(view ? view : dtp_topo_cpus(topo, DTP_CPUS_MACHINE), &allowed,
                               "processors", err);

    if (st >= 0 && busy_cpus)
        st = parse_cpus(busy_cpus, &busy, "busy_cpus", err);
    if (st < 0)
        return st;
    for (uint32_t i = 0; i < topo->n_objs; i++)
        pool->cap_cores += is_unit(topo, &topo->objs[i]);
    pool->cores = dtpi_alloc_array(pool->a, pool->cap_cores, sizeof(*pool->cores));
    if (!pool->cores)
        return dtpi_fail_nomem(err, pool->cap_cores * sizeof(*pool->cores));
    for (uint32_t i = 0; i < topo->n_objs; i++) {
        if (!is_unit(topo, &topo->objs[i]))
            continue;
        st = add_core(pool, &topo->objs[i], &allowed, &busy, err);
        if (st < 0)
            return st;
    }
    qsort(pool->cores, pool->n_cores, sizeof(*pool->cores), compare_cores);
    for (uint32_t k = 0, i = 0; k < pool->n_nodes + 2; k++) {
        while (i < pool->n_cores && pool->cores[i].node < k)
            i++;
        pool->core_first[k] = i;
    }
    return DTP_OK;
}

static dtp_status find_gpus(dtpi_place_pool *pool, const dtp_topo *topo, const char *busy_gpus,
                            dtp_error *err)
{
    const uint32_t n = dtp_topo_count(topo, DTP_TOPO_GPU);
    dtpi_cpuset busy = { 0 };
    dtp_status st = DTP_OK;

    if (busy_gpus)
        st = parse_cpus(busy_gpus, &busy, "busy_gpus", err);
    if (st < 0)
        return st;
    if (dtpi_cpuset_next(&busy, n) >= 0)
        return dtpi_fail(err, DTP_ERR_INVAL, "busy_gpus names GPU %d, there are %u",
                         (int)dtpi_cpuset_next(&busy, n), n);
    pool->n_all_gpus = pool->cap_gpus = n;
    pool->gpus = dtpi_alloc_array(pool->a, n ? n : 1, sizeof(*pool->gpus));
    if (!pool->gpus)
        return dtpi_fail_nomem(err, n * sizeof(*pool->gpus));
    for (uint32_t k = 0; k <= pool->n_nodes; k++) {
        pool->gpu_first[k] = pool->n_gpus;
        for (uint32_t i = 0; i < n; i++) {
            const dtp_topo_obj *gpu = &topo->objs[topo->sorted[topo->first[DTP_TOPO_GPU] + i]];
            if (node_index(pool, gpu->numa) == k && !dtpi_cpuset_has(&busy, i))
                pool->gpus[pool->n_gpus++] = (dtpi_place_gpu){ .node = k, .ordinal = i };
        }
    }
    pool->gpu_first[pool->n_nodes + 1] = pool->n_gpus;
    return DTP_OK;
}

dtp_status dtpi_place_pool_fill(dtpi_place_pool *pool, const dtp_topo *topo,
                                const dtp_placement_req *req, dtp_error *err)
{
    dtp_status st;

    pool->a = &topo->a;
    st = find_nodes(pool, topo, err);
    if (st >= 0)
        st = find_cores(pool, topo, req->busy_cpus, err);
    return st < 0 ? st : find_gpus(pool, topo, req->busy_gpus, err);
}

void dtpi_place_pool_free(dtpi_place_pool *pool)
{
    const dtp_allocator *a = pool->a;

    if (!a)
        return;
    dtpi_free(a, pool->node_ids, pool->n_entries * sizeof(*pool->node_ids));
    dtpi_free(a, pool->core_first, pool->n_entries * sizeof(*pool->core_first));
    dtpi_free(a, pool->gpu_first, pool->n_entries * sizeof(*pool->gpu_first));
    dtpi_free(a, pool->room, pool->n_entries * sizeof(*pool->room));
    dtpi_free(a, pool->cores, pool->cap_cores * sizeof(*pool->cores));
    dtpi_free(a, pool->gpus, DTPI_MAX(pool->cap_gpus, 1u) * sizeof(*pool->gpus));
}
