/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - asks the sources for a machine and builds the topology.
 *
 * Processors come from the first source that works; devices from all of them together. A recorded
 * machine is never mixed with the live one: it has no bound view and no live source is asked.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctx/ctx.h"
#include "topo/topo.h"

/* A file held in memory with a terminator behind it. */
typedef struct document {
    const dtp_allocator *a;
    char *text;
    size_t bytes;               /* without the terminator */
} document;

static void document_free(document *doc)
{
    if (doc->text)
        dtpi_free(doc->a, doc->text, doc->bytes + 1);
}

static dtp_status read_rest(int fd, const char *path, document *doc, dtp_error *err)
{
    for (size_t len = 0; len < doc->bytes;) {
        const ssize_t n = read(fd, doc->text + len, doc->bytes - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return dtpi_fail(err, DTP_ERR_IO, "cannot read %s: %m", path);
        if (n == 0)
            return dtpi_fail(err, DTP_ERR_TRUNCATED, "%s became shorter while it was read", path);
        len += (size_t)n;
    }
    return DTP_OK;
}

static dtp_status read_document(const char *path, document *doc, dtp_error *err)
{
    DTPI_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat info;

    if (fd < 0 || fstat(fd, &info) < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open %s: %m", path);
    if (!S_ISREG(info.st_mode))
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s is not a regular file", path);
    if (info.st_size > DTPI_TOPO_MAX_XML)
        return dtpi_fail(err, DTP_ERR_LIMIT, "%s has %lld bytes, at most %d are read", path,
                         (long long)info.st_size, (int)DTPI_TOPO_MAX_XML);
    doc->bytes = (size_t)info.st_size;
    doc->text = dtpi_alloc_aligned(doc->a, doc->bytes + 1, 16);
    if (!doc->text)
        return dtpi_fail_nomem(err, doc->bytes + 1);
    doc->text[doc->bytes] = '\0';
    return read_rest(fd, path, doc, err);
}

static dtp_status source_ops(dtp_ctx *ctx, const dtpi_topo_source *source,
                             const dtpi_topo_source_ops **ops_out, dtp_error *err)
{
    const void *ops = source->ops;

    if (source->module) {
        const dtp_status st = dtpi_module_load(ctx, source->module, &ops, err);
        if (st < 0)
            return st;
    }
    *ops_out = ops;
    return DTP_OK;
}

/* Asks one source; `name_out` gets its name. */
static dtp_status ask(dtp_ctx *ctx, const dtpi_topo_source *source, dtpi_topo_build *build,
                      const dtpi_topo_where *where, const char **name_out, dtp_error *err)
{
    const dtpi_topo_source_ops *ops = NULL;
    const dtp_status st = source_ops(ctx, source, &ops, err);

    if (st < 0)
        return st;
    *name_out = ops->name;
    return ops->read(dtpi_topo_build_sink(build), where, err);
}

/* Processors from the first source that works; on the live machine a broken one is passed over. */
static dtp_status ask_for_cpus(dtp_ctx *ctx, dtp_topo *topo, dtpi_topo_build *build,
                               const dtpi_topo_where *where, uint32_t kind, dtp_error *err)
{
    dtp_status st = dtpi_fail(err, DTP_ERR_UNSUPPORTED, "no source for topologies was built");

    for (size_t i = 0; i < dtpi_topo_n_sources; i++) {
        const dtpi_topo_source *source = &dtpi_topo_sources[i];
        const char *name = source->module;
        dtp_error why = { 0 };
        if ((source->serves & (DTPI_TOPO_CPUS | kind)) != (DTPI_TOPO_CPUS | kind))
            continue;
        st = ask(ctx, source, build, where, &name, &why);
        if (st >= 0) {
            topo->source = name;
            return DTP_OK;
        }
        if (err)
            *err = why;
        if (kind != DTPI_TOPO_LIVE || st == DTP_ERR_NOMEM)
            return st;
        DTPI_LOG(ctx, DTP_LOG_INFO, "topo", "%s: %s", name, why.text);
        dtpi_topo_build_reset(build);
    }
    return st;
}

/* A source of devices that fails leaves them unknown. */
static dtp_status ask_for_devices(dtp_ctx *ctx, dtpi_topo_build *build,
                                  const dtpi_topo_where *where, uint32_t kind, dtp_error *err)
{
    for (size_t i = 0; i < dtpi_topo_n_sources; i++) {
        const dtpi_topo_source *source = &dtpi_topo_sources[i];
        const char *name = source->module;
        dtp_error why = { 0 };
        if ((source->serves & (DTPI_TOPO_DEVICES | kind)) != (DTPI_TOPO_DEVICES | kind))
            continue;
        if (source->only_with && access(source->only_with, F_OK) < 0)
            continue;
        const dtp_status st = ask(ctx, source, build, where, &name, &why);
        if (st == DTP_ERR_NOMEM || st == DTP_ERR_LIMIT) {
            if (err)
                *err = why;
            return st;
        }
        if (st < 0)
            DTPI_LOG(ctx, DTP_LOG_INFO, "topo", "%s: %s", name ? name : "devices", why.text);
    }
    return DTP_OK;
}

/* Affinity of the calling thread. */
static bool read_bound(dtpi_cpuset *bound)
{
    cpu_set_t set[DTPI_CPUSET_MAX / CPU_SETSIZE];

    if (sched_getaffinity(0, sizeof(set), set) < 0)
        return false;
    for (uint32_t cpu = 0; cpu < DTPI_CPUSET_MAX; cpu++)
        if (CPU_ISSET_S(cpu, sizeof(set), set))
            dtpi_cpuset_set(bound, cpu);
    return true;
}

static dtp_status view_bound(dtpi_topo_sink *sink, dtp_error *err)
{
    dtpi_cpuset bound = { 0 };

    return read_bound(&bound) ? sink->view(sink, DTP_CPUS_BOUND, &bound, err) : DTP_OK;
}

dtp_status dtpi_topo_view_bound(dtp_topo *topo, dtp_error *err)
{
    dtpi_cpuset bound = { 0 };

    if (!read_bound(&bound))
        return DTP_OK;
    topo->cpus[DTP_CPUS_BOUND] = dtpi_topo_list(topo, &bound);
    return topo->cpus[DTP_CPUS_BOUND] ? DTP_OK : dtpi_fail_nomem(err, 0);
}

/* What does not fit together in a recorded machine is named with it. */
static dtp_status end_build(dtpi_topo_build *build, const dtpi_topo_where *where, dtp_error *err)
{
    dtp_error why = { 0 };
    const dtp_status st = dtpi_topo_build_end(build, &why);
    const char *path = where->xml_path ? where->xml_path : where->fsroot;

    if (st >= 0)
        return st;
    return path ? dtpi_fail(err, st, "%s: %s", path, why.text) : dtpi_fail(err, st, "%s", why.text);
}

static dtp_status discover(dtp_ctx *ctx, dtp_topo *topo, const dtpi_topo_where *where,
                           dtp_error *err)
{
    const uint32_t kind = where->xml ? DTPI_TOPO_XML : where->fsroot ? DTPI_TOPO_FSROOT
                                                                     : DTPI_TOPO_LIVE;
    DTPI_AUTO(topo_build) dtpi_topo_build *build = dtpi_topo_build_new(topo);

    if (!build)
        return dtpi_fail_nomem(err, 0);
    dtp_status st = ask_for_cpus(ctx, topo, build, where, kind, err);
    if (st >= 0 && where->devices)
        st = ask_for_devices(ctx, build, where, kind, err);
    if (st >= 0 && kind == DTPI_TOPO_LIVE)
        st = view_bound(dtpi_topo_build_sink(build), err);
    topo->recorded = kind != DTPI_TOPO_LIVE;
    return st < 0 ? st : end_build(build, where, err);
}

static dtp_status load(dtp_ctx *ctx, const dtp_topo_opts *user, dtp_topo **topo_out, dtp_error *err)
{
    __attribute__((cleanup(document_free))) document doc = { .a = dtpi_ctx_alloc(ctx) };
    DTPI_AUTO(topo) dtp_topo *topo = NULL;
    dtp_topo_opts opts;
    dtp_status st;

    st = DTPI_OPTS_READ(&opts, user, err);
    if (st < 0)
        return st;
    if (opts.hwloc_xml && opts.fsroot)
        return dtpi_fail(err, DTP_ERR_INVAL, "hwloc_xml and fsroot exclude each other");
    if (opts.hwloc_xml)
        st = read_document(opts.hwloc_xml, &doc, err);
    if (st < 0)
        return st;
    topo = dtpi_topo_new(dtpi_ctx_alloc(ctx));
    if (!topo)
        return dtpi_fail_nomem(err, sizeof(*topo));
    const dtpi_topo_where where = { .a = dtpi_ctx_alloc(ctx),
                                    .fsroot = opts.fsroot,
                                    .xml = doc.text,
                                    .xml_bytes = doc.bytes,
                                    .xml_path = opts.hwloc_xml,
                                    .devices = !opts.no_devices,
                                    .ctx = ctx };
    st = discover(ctx, topo, &where, err);
    if (st < 0)
        return st;
    *topo_out = DTPI_TAKE(topo);
    return DTP_OK;
}

dtp_status dtp_topo_load(dtp_ctx *ctx, const dtp_topo_opts *user, dtp_topo **topo_out,
                         dtp_error *err)
{
    dtp_status st = dtpi_ctx_enter(ctx, err);

    if (st < 0)
        return dtpi_noun(err, "topo", st);
    st = load(ctx, user, topo_out, err);
    dtpi_ctx_leave(ctx);
    return dtpi_noun(err, "topo", st);
}
