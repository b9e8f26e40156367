/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.c - which RDMA devices of the live machine can really be opened. In a container
 * /sys/class/infiniband lists devices whose character device is not there.
 */
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctx/ctx.h"
#include "topo/topo.h"

static dtp_status report_device(dtpi_topo_sink *sink, struct ibv_device *dev, dtp_error *err)
{
    dtpi_topo_fact fact = dtpi_topo_fact_of(DTP_TOPO_NIC);
    char path[PATH_MAX], pci[PATH_MAX];
    struct ibv_context *open = ibv_open_device(dev);

    fact.obj.name = ibv_get_device_name(dev);
    fact.obj.usable = open ? 1 : 2;
    if (open)
        ibv_close_device(open);
    if ((size_t)snprintf(path, sizeof(path), "%s/device", dev->ibdev_path) < sizeof(path) &&
        realpath(path, pci)) {
        const char *address = strrchr(pci, '/') + 1;
        if (strchr(address, ':') && strchr(address, '.'))
            fact.obj.pci = address;
    }
    return sink->add(sink, &fact, err);
}

static dtp_status verbs_read(dtpi_topo_sink *sink, const dtpi_topo_where *where, dtp_error *err)
{
    int n = 0;
    struct ibv_device **devs = ibv_get_device_list(&n);
    dtp_status st = DTP_OK;

    (void)where;
    if (!devs)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "libibverbs lists no devices: %m");
    for (int i = 0; i < n && st >= 0; i++)
        st = report_device(sink, devs[i], err);
    ibv_free_device_list(devs);
    return st;
}

static const dtpi_topo_source_ops ops = { .name = "verbs", .read = verbs_read };

DTPI_MODULE(topo_verbs, "topo-verbs", &ops);
