/* SPDX-License-Identifier: Apache-2.0 */
/* facts.h - builds small machines from facts, for the tests of the model, renderers and placement. */
#ifndef DTP_TESTS_TOPO_FACTS_H
#define DTP_TESTS_TOPO_FACTS_H

#include "check.h"

#include "topo/topo.h"

typedef struct facts {
    dtp_topo *topo;
    dtpi_topo_build *build;
} facts;

static inline facts facts_begin(void)
{
    facts f = { .topo = dtpi_topo_new(&dtpi_malloc_allocator) };

    assert_non_null(f.topo);
    f.build = dtpi_topo_build_new(f.topo);
    assert_non_null(f.build);
    return f;
}

static inline void facts_add(facts *f, const dtpi_topo_fact *fact, const char *cpus)
{
    dtpi_topo_sink *sink = dtpi_topo_build_sink(f->build);
    dtpi_topo_fact own = *fact;
    dtpi_cpuset set;

    if (cpus) {
        assert_ok(dtpi_cpuset_parse(cpus, &set, ERR));
        own.cpus = &set;
    }
    assert_ok(sink->add(sink, &own, ERR));
}

/* A processor object with an OS index. */
static inline void facts_cpu(facts *f, dtp_topo_type type, int64_t os_index, const char *cpus)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(type);

    fact.obj.os_index = os_index;
    facts_add(f, &fact, cpus);
}

/* A device; `above`, `pci` and `cpus` may be NULL. */
static inline void facts_device(facts *f, dtp_topo_type type, const char *name, const char *pci,
                                const char *above, const char *cpus)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(type);

    fact.obj.name = name;
    fact.obj.pci = pci;
    fact.above = above;
    facts_add(f, &fact, cpus);
}

/*
 * `n_numa` NUMA nodes, each a package, of `n_cores` cores with `n_pus` PUs each; the PUs of a core are
 * `n_numa * n_cores` apart, as x86 numbers them.
 */
static inline void facts_processors(facts *f, uint32_t n_numa, uint32_t n_cores, uint32_t n_pus)
{
    const uint32_t stride = n_numa * n_cores;

    for (uint32_t m = 0; m < n_numa; m++) {
        char node[4096] = "";
        for (uint32_t c = 0; c < n_cores; c++) {
            char core[256] = "", pu[16];
            for (uint32_t p = 0; p < n_pus; p++) {
                const uint32_t cpu = m * n_cores + c + p * stride;
                snprintf(pu, sizeof(pu), "%s%u", p ? "," : "", cpu);
                strcat(core, pu);
                facts_cpu(f, DTP_TOPO_PU, cpu, NULL);
            }
            facts_cpu(f, DTP_TOPO_CORE, c, core);
            if (c)
                strcat(node, ",");
            strcat(node, core);
        }
        facts_cpu(f, DTP_TOPO_NUMA, m, node);
        facts_cpu(f, DTP_TOPO_PACKAGE, m, node);
    }
}

static inline void facts_view(facts *f, dtp_cpus_view view, const char *cpus)
{
    dtpi_topo_sink *sink = dtpi_topo_build_sink(f->build);
    dtpi_cpuset set;

    assert_ok(dtpi_cpuset_parse(cpus, &set, ERR));
    assert_ok(sink->view(sink, view, &set, ERR));
}

/* The machine; close it. */
static inline dtp_topo *facts_end(facts *f)
{
    assert_ok(dtpi_topo_build_end(f->build, ERR));
    dtpi_topo_build_free(f->build);
    return f->topo;
}

static inline dtp_topo_obj nth(const dtp_topo *topo, dtp_topo_type type, uint32_t n)
{
    dtp_topo_obj obj = { .size = sizeof(obj) };

    assert_ok(dtp_topo_nth(topo, type, n, &obj, ERR));
    return obj;
}

static inline dtp_topo_obj object(const dtp_topo *topo, int32_t index)
{
    dtp_topo_obj obj = { .size = sizeof(obj) };

    assert_ok(dtp_topo_get(topo, (uint32_t)index, &obj, ERR));
    return obj;
}

/* Two NUMA nodes of 4 cores; a switch with a GPU and a NIC at each, the second pair two switches deep;
 * a GPU at a root port of its own on node 0. */
static inline dtp_topo *facts_gpu_machine(void)
{
    facts f = facts_begin();

    facts_processors(&f, 2, 4, 1);
    facts_device(&f, DTP_TOPO_BRIDGE, "pci0000:00", NULL, NULL, "0-3");
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:00:01.0", "pci0000:00", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:01:00.0", "0000:00:01.0", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:02:00.0", "0000:01:00.0", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:02:01.0", "0000:01:00.0", NULL);
    facts_device(&f, DTP_TOPO_GPU, NULL, "0000:03:00.0", "0000:02:00.0", NULL);
    facts_device(&f, DTP_TOPO_NIC, "mlx5_0", "0000:04:00.0", "0000:02:01.0", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:00:02.0", "pci0000:00", NULL);
    facts_device(&f, DTP_TOPO_GPU, NULL, "0000:05:00.0", "0000:00:02.0", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, "pci0000:80", NULL, NULL, "4-7");
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:80:01.0", "pci0000:80", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:81:00.0", "0000:80:01.0", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:82:00.0", "0000:81:00.0", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:82:01.0", "0000:81:00.0", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:83:00.0", "0000:82:00.0", NULL);
    facts_device(&f, DTP_TOPO_GPU, NULL, "0000:84:00.0", "0000:83:00.0", NULL);
    facts_device(&f, DTP_TOPO_NIC, "mlx5_1", "0000:85:00.0", "0000:82:01.0", NULL);
    facts_device(&f, DTP_TOPO_BRIDGE, NULL, "0000:80:02.0", "pci0000:80", NULL);
    facts_device(&f, DTP_TOPO_NVME, "nvme0n1", "0000:90:00.0", "0000:80:02.0", NULL);
    return facts_end(&f);
}

#endif /* DTP_TESTS_TOPO_FACTS_H */
