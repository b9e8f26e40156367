/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sysfs.c - processors and memory straight from sysfs: the source that needs no library.
 *
 * It serves recorded machines (a folder with sys/ and proc/) and the live one where hwloc is missing.
 * Source: Documentation/ABI/stable/sysfs-devices-node and sysfs-devices-system-cpu of Linux.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "topo/cgroup.h"
#include "topo/fs.h"
#include "topo/parse.h"
#include "topo/topo.h"

#define CPU_DIR "sys/devices/system/cpu"
#define NODE_DIR "sys/devices/system/node"

enum { MAX_CACHES = 16, DOC_BYTES = 16 << 10 };

typedef struct reader {
    dtpi_topo_fs fs;
    dtpi_topo_sink *sink;
    dtpi_cpuset online;
    dtpi_cpuset cores, packages, caches;    /* processors whose object has been reported */
    char model[128];                        /* of the processors; "" unknown */
    dtp_error *err;
} reader;

static dtp_status report(reader *r, const dtpi_topo_fact *fact)
{
    return r->sink->add(r->sink, fact, r->err);
}

/* The number behind a prefix, "cpu12" -> 12; -1 for anything else. */
static int32_t numbered(const char *name, const char *prefix)
{
    const size_t len = strlen(prefix);
    int64_t n;

    if (strncmp(name, prefix, len) != 0 || !dtpi_parse_i64(name + len, 0, DTPI_CPUSET_MAX - 1, &n))
        return -1;
    return (int32_t)n;
}

static void find_online(reader *r, DIR *dir)
{
    const char *name;
    int64_t online;

    while ((name = dtpi_topo_fs_next(dir))) {
        const int32_t cpu = numbered(name, "cpu");
        if (cpu < 0)
            continue;
        if (!dtpi_topo_fs_number(&r->fs, &online, CPU_DIR "/cpu%d/online", cpu) || online)
            dtpi_cpuset_set(&r->online, (uint32_t)cpu);
    }
}

static dtp_status report_once(reader *r, dtpi_cpuset *done, const dtpi_cpuset *set, uint32_t cpu,
                              dtpi_topo_fact *fact)
{
    if (dtpi_cpuset_has(done, cpu))
        return DTP_OK;
    dtpi_cpuset_or(done, set);
    dtpi_cpuset_set(done, cpu);
    fact->cpus = set;
    return report(r, fact);
}

/* AMD's modules of two cores list each other as threads, with core numbers of their own: not SMT. */
static void keep_own_core(reader *r, dtpi_cpuset *set, int64_t core_id)
{
    for (int32_t c = -1; (c = dtpi_cpuset_next(set, (uint32_t)c + 1)) >= 0;) {
        int64_t other;
        if (dtpi_topo_fs_number(&r->fs, &other, CPU_DIR "/cpu%d/topology/core_id", c) &&
            other != core_id)
            dtpi_cpuset_unset(set, (uint32_t)c);
    }
}

static dtp_status read_core(reader *r, uint32_t cpu)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_CORE);
    char dir[64];
    dtpi_cpuset set;

    snprintf(dir, sizeof(dir), CPU_DIR "/cpu%u/topology", cpu);
    if (!dtpi_topo_fs_cpus(&r->fs, &set, dir, "thread_siblings_list", "thread_siblings") &&
        !dtpi_topo_fs_cpus(&r->fs, &set, dir, "core_cpus_list", "core_cpus"))
        return DTP_OK;
    if (dtpi_topo_fs_number(&r->fs, &fact.obj.os_index, "%s/core_id", dir))
        keep_own_core(r, &set, fact.obj.os_index);
    return report_once(r, &r->cores, &set, cpu, &fact);
}

static dtp_status read_package(reader *r, uint32_t cpu)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_PACKAGE);
    char dir[64];
    dtpi_cpuset set;

    snprintf(dir, sizeof(dir), CPU_DIR "/cpu%u/topology", cpu);
    if (!dtpi_topo_fs_cpus(&r->fs, &set, dir, "core_siblings_list", "core_siblings") &&
        !dtpi_topo_fs_cpus(&r->fs, &set, dir, "package_cpus_list", "package_cpus"))
        return DTP_OK;
    if (!dtpi_topo_fs_number(&r->fs, &fact.obj.os_index, "%s/physical_package_id", dir) ||
        fact.obj.os_index < 0)
        fact.obj.os_index = DTP_UNKNOWN;
    fact.obj.model = r->model;
    return report_once(r, &r->packages, &set, cpu, &fact);
}

/* The last level that is shared: level 3, else level 2 where several cores share it. */
static dtp_status read_cache(reader *r, uint32_t cpu)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_CACHE);
    int64_t best = 1;
    dtpi_cpuset best_set;

    for (int i = 0; i < MAX_CACHES; i++) {
        char dir[64], text[32];
        dtpi_cpuset set;
        int64_t level;
        snprintf(dir, sizeof(dir), CPU_DIR "/cpu%u/cache/index%d", cpu, i);
        if (!dtpi_topo_fs_number(&r->fs, &level, "%s/level", dir))
            break;
        if (level <= best || level > 3 ||
            !dtpi_topo_fs_cpus(&r->fs, &set, dir, "shared_cpu_list", "shared_cpu_map"))
            continue;
        best = level;
        best_set = set;
        fact.obj.os_index = DTP_UNKNOWN;
        fact.obj.cache_bytes = DTP_UNKNOWN;
        fact.obj.name = level == 3 ? "L3" : "L2";
        if (dtpi_topo_fs_text(&r->fs, text, sizeof(text), "%s/size", dir))
            dtpi_topo_parse_kib(text, &fact.obj.cache_bytes);
    }
    if (best == 1 || (best == 2 && dtpi_cpuset_count(&best_set) < 2))
        return DTP_OK;
    return report_once(r, &r->caches, &best_set, cpu, &fact);
}

static dtp_status read_cpus(reader *r)
{
    for (int32_t cpu = -1; (cpu = dtpi_cpuset_next(&r->online, (uint32_t)cpu + 1)) >= 0;) {
        dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_PU);
        fact.obj.os_index = cpu;
        dtp_status st = report(r, &fact);
        if (st >= 0)
            st = read_package(r, (uint32_t)cpu);
        if (st >= 0)
            st = read_cache(r, (uint32_t)cpu);
        if (st >= 0)
            st = read_core(r, (uint32_t)cpu);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

/* The nearest node that has processors, by the distances of `node`. */
static int64_t nearest_node(reader *r, int32_t node, const dtpi_cpuset *nodes,
                            const dtpi_cpuset *with_cpus)
{
    char text[4096];
    int64_t best = DTP_UNKNOWN;
    long best_distance = 0;
    char *p = text;

    if (!dtpi_topo_fs_text(&r->fs, text, sizeof(text), NODE_DIR "/node%d/distance", node))
        return DTP_UNKNOWN;
    for (int32_t n = -1; (n = dtpi_cpuset_next(nodes, (uint32_t)n + 1)) >= 0;) {
        char *end;
        const long distance = strtol(p, &end, 10);
        if (end == p)
            break;
        p = end;
        if (dtpi_cpuset_has(with_cpus, (uint32_t)n) &&
            (best == DTP_UNKNOWN || distance < best_distance)) {
            best = n;
            best_distance = distance;
        }
    }
    return best;
}

static bool node_cpus(reader *r, int32_t node, dtpi_cpuset *set)
{
    char dir[64];

    snprintf(dir, sizeof(dir), NODE_DIR "/node%d", node);
    return dtpi_topo_fs_cpus(&r->fs, set, dir, "cpulist", "cpumap");
}

static dtp_status read_node(reader *r, int32_t node, const dtpi_cpuset *nodes,
                            const dtpi_cpuset *with_cpus)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_NUMA);
    char doc[DOC_BYTES];
    dtpi_cpuset set;

    fact.obj.os_index = node;
    if (dtpi_topo_fs_text(&r->fs, doc, sizeof(doc), NODE_DIR "/node%d/meminfo", node))
        dtpi_topo_find_kib(doc, "MemTotal", &fact.obj.mem_bytes);
    if (dtpi_cpuset_has(with_cpus, (uint32_t)node) && node_cpus(r, node, &set))
        fact.cpus = &set;
    else
        fact.obj.numa = nearest_node(r, node, nodes, with_cpus);
    return report(r, &fact);
}

/* A machine that does not know of NUMA nodes has one. */
static dtp_status report_only_node(reader *r)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_NUMA);
    char doc[DOC_BYTES];

    fact.obj.os_index = 0;
    if (dtpi_topo_fs_text(&r->fs, doc, sizeof(doc), "proc/meminfo"))
        dtpi_topo_find_kib(doc, "MemTotal", &fact.obj.mem_bytes);
    fact.cpus = &r->online;
    return report(r, &fact);
}

static dtp_status read_nodes(reader *r)
{
    DTPI_AUTO_DIR DIR *dir = dtpi_topo_fs_dir(&r->fs, NODE_DIR);
    dtpi_cpuset nodes = { 0 }, with_cpus = { 0 }, set;
    const char *name;

    while (dir && (name = dtpi_topo_fs_next(dir))) {
        const int32_t node = numbered(name, "node");
        if (node < 0)
            continue;
        dtpi_cpuset_set(&nodes, (uint32_t)node);
        if (node_cpus(r, node, &set) && dtpi_cpuset_intersects(&set, &r->online))
            dtpi_cpuset_set(&with_cpus, (uint32_t)node);
    }
    if (!dtpi_cpuset_count(&with_cpus))
        return report_only_node(r);
    for (int32_t node = -1; (node = dtpi_cpuset_next(&nodes, (uint32_t)node + 1)) >= 0;) {
        const dtp_status st = read_node(r, node, &nodes, &with_cpus);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

/* "model name : AMD EPYC" of /proc/cpuinfo; other architectures name no model there. */
static void find_model(reader *r)
{
    char doc[4096];
    const char *p;

    if (!dtpi_topo_fs_text(&r->fs, doc, sizeof(doc), "proc/cpuinfo"))
        return;
    p = strstr(doc, "model name");
    p = p ? strchr(p, ':') : NULL;
    if (!p)
        return;
    p += strspn(p, ": \t");
    snprintf(r->model, sizeof(r->model), "%.*s", (int)strcspn(p, "\n"), p);
}

static dtp_status read_allowed(reader *r)
{
    bool governed;
    dtpi_cpuset set;

    if (!dtpi_topo_cgroup_cpus(&r->fs, &set, &governed))
        return DTP_OK;
    return r->sink->view(r->sink, DTP_CPUS_ALLOWED, governed ? &set : &r->online, r->err);
}

static dtp_status sysfs_read(dtpi_topo_sink *sink, const dtpi_topo_where *where, dtp_error *err)
{
    reader r = { .sink = sink, .err = err };
    dtp_status st = dtpi_topo_fs_open(&r.fs, where->fsroot, err);

    if (st < 0)
        return st;
    DTPI_AUTO_DIR DIR *dir = dtpi_topo_fs_dir(&r.fs, CPU_DIR);
    if (dir) {
        find_online(&r, dir);
        find_model(&r);
        st = read_cpus(&r);
        if (st >= 0)
            st = read_nodes(&r);
        if (st >= 0)
            st = read_allowed(&r);
    } else {
        st = dtpi_fail(err, where->fsroot ? DTP_ERR_FORMAT : DTP_ERR_UNSUPPORTED,
                       "%s holds no " CPU_DIR, where->fsroot ? where->fsroot : "/");
    }
    return dtpi_topo_fs_finish(&r.fs, st, err);
}

const dtpi_topo_source_ops dtpi_topo_sysfs_ops = { .name = "sysfs", .read = sysfs_read };
