/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ckpt_msg.c - what a rank is told during a save: boxes that are planned, notes, failures. */
#include "fuzz.h"

#include "ckpt/msg.h"

static void read_boxes(dtpi_rd r, size_t bytes)
{
    size_t n_boxes, n_numbers;
    dtpi_layout layout;
    dtpi_plan plan;
    dtp_error err;

    dtpi_plan_init(&plan, &dtpi_malloc_allocator);
    dtpi_msg_measure(r, &n_boxes, &n_numbers);
    FUZZ_CHECK(8 * n_numbers <= bytes && n_boxes <= bytes);
    if (dtpi_msg_get_boxes(&r, 0, &plan, &err) >= 0 && dtpi_plan_finish(&plan, &err) >= 0 &&
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

static void read_note(const uint8_t *data, size_t bytes, uint8_t kind)
{
    uint8_t again[DTPI_NOTE_BYTES];
    dtpi_written w;
    dtpi_note n;
    dtp_error err;

    if (dtpi_note_read(data, bytes, kind, 0, &n, &err) < 0)
        return;
    dtpi_note_write(&n, again);
    FUZZ_CHECK(memcmp(again, data, bytes) == 0);
    dtpi_note_get_written(&n, 0, n.words[6], &w, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);
    dtp_error failure, err;

    for (uint8_t kind = DTPI_NOTE_DECLARE; kind <= DTPI_NOTE_VERDICT; kind++)
        read_note(data, bytes, kind);
    dtpi_msg_get_failure(&r, 0, &failure, &err);
    read_boxes(dtpi_rd_init(data, bytes), bytes);
    return 0;
}
