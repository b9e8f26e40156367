/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_frame.c - one message of a group, read by everything that reads messages without keeping state.
 * Small and quick: for hundreds of millions of inputs.
 */
#include "fuzz.h"

#include "group/frame.h"
#include "group/handshake.h"
#include "group/keys.h"

enum { WORLD = 64 };

static void read_down(const dtpi_frame *f)
{
    dtpi_split_item items[WORLD];
    dtpi_down down;
    uint32_t first, n;

    if (!dtpi_down_read(f, &down))
        return;
    FUZZ_CHECK(down.status <= 0 && memchr(down.text, 0, sizeof(down.text)));
    if (down.kind == DTPI_KIND_SPLIT && dtpi_split_read(&down.rest, WORLD, items) &&
        dtpi_split_find(items, WORLD, items[0].color, items[0].index, &first, &n))
        FUZZ_CHECK(n >= 1 && n <= WORLD && first + n <= WORLD);
}

static void read_verdict(const dtpi_frame *f)
{
    int32_t failed[WORLD];
    dtpi_verdict v;

    if (!dtpi_verdict_read(f, WORLD, &v, failed))
        return;
    FUZZ_CHECK(v.status < 0 && v.n_failed <= WORLD && memchr(v.text, 0, sizeof(v.text)));
    for (uint32_t i = 0; i < v.n_failed; i++)
        FUZZ_CHECK(failed[i] >= 0 && failed[i] < WORLD && (i == 0 || failed[i] > failed[i - 1]));
}

static void read_formed(const dtpi_frame *f)
{
    dtpi_buf list = dtpi_buf_init(&dtpi_malloc_allocator);
    char text[DTP_ERROR_TEXT];
    dtpi_newcomer newcomer;
    dtp_status status;
    dtpi_rd rest;

    if (dtpi_formed_read(f, WORLD, &status, text, sizeof(text), &list, &rest)) {
        const uint32_t n_new = dtpi_rd_u32(&rest);
        FUZZ_CHECK(status <= 0 && memchr(text, 0, sizeof(text)));
        FUZZ_CHECK(list.len <= (WORLD + n_new) * sizeof(int32_t));
        for (uint32_t i = 0; i < n_new; i++)
            FUZZ_CHECK(dtpi_newcomer_read(&rest, &newcomer));
    }
    dtpi_buf_free(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    dtpi_newcomer newcomer;
    dtpi_change change;
    const uint8_t *gift;
    size_t n_gift;
    uint8_t kind;
    dtpi_frame f;

    if (dtpi_hs_read_gift(data, bytes, &kind, &gift, &n_gift))
        FUZZ_CHECK(n_gift <= bytes);
    dtpi_hs_may_be_hello(data, bytes);
    if (!dtpi_frame_read(data, bytes, &f))
        return 0;
    FUZZ_CHECK(f.bytes == bytes - DTPI_FRAME_BYTES);
    read_down(&f);
    read_verdict(&f);
    read_formed(&f);
    dtpi_rd r = dtpi_rd_init(f.body, f.bytes);
    dtpi_newcomer_read(&r, &newcomer);
    r = dtpi_rd_init(f.body, f.bytes);
    dtpi_change_read(&r, &change);
    return 0;
}
