/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ckpt_msg.c - what a rank is told during a save: a declaration that is planned, an acknowledgement. */
#include "fuzz.h"

#include "ckpt/msg.h"

static void read_declaration(dtpi_rd r, size_t bytes)
{
    size_t n_boxes, n_numbers;
    dtpi_layout layout;
    dtpi_declare d;
    dtpi_plan plan;
    dtp_error err;

    dtpi_plan_init(&plan, &dtpi_malloc_allocator);
    dtpi_msg_measure(r, &n_boxes, &n_numbers);
    FUZZ_CHECK(8 * n_numbers <= bytes && n_boxes <= bytes);
    if (dtpi_msg_get_declare(&r, 0, &d, &plan, &err) >= 0 && dtpi_plan_finish(&plan, &err) >= 0 &&
        dtpi_layout_make(&plan, 0, &layout, &err) >= 0) {
        FUZZ_CHECK(layout.n == plan.n_boxes);
        for (size_t i = 1; i < layout.n; i++)
            for (size_t k = 0; k < i; k++)
                FUZZ_CHECK(strcmp(dtpi_layout_key(&layout, dtpi_layout_get(&layout, i)),
                                  dtpi_layout_key(&layout, dtpi_layout_get(&layout, k))) != 0);
        dtpi_layout_free(&layout);
    }
    dtpi_plan_free(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    dtpi_written w;
    dtp_error failure, err;

    for (uint8_t kind = DTPI_MSG_DECLARE; kind <= DTPI_MSG_VERDICT; kind++) {
        dtpi_rd r = dtpi_rd_init(data, bytes);
        if (dtpi_msg_open(&r, kind, 0, &failure, &err) < 0 || failure.status < 0)
            continue;
        if (kind == DTPI_MSG_DECLARE)
            read_declaration(r, bytes);
        if (kind == DTPI_MSG_ACK)
            dtpi_msg_get_written(&r, 0, &w, &err);
    }
    return 0;
}
