/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h - a topology as bytes, for the other processes of a job. */
#ifndef DTPI_TOPO_PACK_H
#define DTPI_TOPO_PACK_H

#include "base/wire.h"
#include "topo/topo.h"

/*
 * Appends the shape, which machines built alike share, and what only this one has. The bound view is a
 * matter of each process and not packed.
 */
void dtpi_topo_pack(const dtp_topo *topo, dtpi_buf *shape, dtpi_buf *own);

/* Names a shape: equal shapes, equal numbers. */
uint64_t dtpi_topo_id(const void *shape, size_t bytes);

/* Errors: FORMAT, NOMEM. */
dtp_status dtpi_topo_unpack(const dtp_allocator *a, const void *shape, size_t shape_bytes,
                            const void *own, size_t own_bytes, dtp_topo **topo_out, dtp_error *err);

#endif /* DTPI_TOPO_PACK_H */
