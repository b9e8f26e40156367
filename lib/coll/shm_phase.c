/* SPDX-License-Identifier: Apache-2.0 */
/* shm_phase.c - the memory of the engine in the hands of one above it: headers, phases, two areas. */
#include "coll/shm.h"

void dtpi_shm_open_call(dtpi_shm *e, const dtpi_coll_call *call)
{
    e->seq++;
    e->plan = (dtpi_shm_plan){ .lag = 1 };
    e->iteration = 1;
    e->n_seen = 0;
    e->busy = true;
    dtpi_coll_header(call, e->header);
    dtpi_shm_line *line = dtpi_shm_announcement(e, e->o.index);
    line->header[0] = e->header[0];
    line->header[1] = e->header[1];
    atomic_store_explicit(&line->seq, e->seq, memory_order_release);
    dtpi_shm_ring(e);
}

bool dtpi_shm_all_opened(dtpi_shm *e)
{
    return dtpi_shm_ready(e);
}

const uint64_t *dtpi_shm_header(const dtpi_shm *e, uint32_t member)
{
    return dtpi_shm_announcement(e, member)->header;
}

void dtpi_shm_phase_done(dtpi_shm *e, uint64_t k)
{
    atomic_store_explicit(&e->own->tick, e->tick + k, memory_order_release);
    dtpi_shm_ring(e);
}

bool dtpi_shm_phase_all(dtpi_shm *e, uint64_t k)
{
    if (e->iteration != k + 1) {
        e->iteration = k + 1;
        e->n_seen = 0;
    }
    return dtpi_shm_ready(e);
}

void dtpi_shm_close_call(dtpi_shm *e, uint64_t n)
{
    e->tick += n;
    e->busy = false;
}

uint8_t *dtpi_shm_input_of(const dtpi_shm *e, uint32_t member)
{
    return e->slots + member * (size_t)(DTPI_SHM_RING_BYTES + DTPI_SHM_RESULT_BYTES);
}

uint8_t *dtpi_shm_result_of(const dtpi_shm *e, uint32_t member)
{
    return dtpi_shm_input_of(e, member) + DTPI_SHM_RING_BYTES;
}
