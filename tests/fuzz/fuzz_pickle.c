/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_pickle.c - a pickle: indexes stay inside, memory stays linear in the bytes. */
#include "fuzz.h"

#include "ckpt/pickle.h"

static size_t now, most;

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    now += bytes;
    most = now > most ? now : most;
    return dtpi_malloc_allocator.alloc(user, bytes, align);
}

static void count_free(void *user, void *p, size_t bytes)
{
    now -= bytes;
    dtpi_malloc_allocator.free(user, p, bytes);
}

/* Every node once; kids and texts lie inside. */
static void check_nodes(const dtpi_pickle *p)
{
    const size_t n = p->nodes.len / sizeof(dtpi_pk_node);
    int64_t ints[8];
    uint32_t count;

    FUZZ_CHECK(p->root < n);
    for (size_t i = 0; i < n; i++) {
        const dtpi_pk_node *node = dtpi_pk_at(p, (uint32_t)i);
        if (node->kind == DTPI_PK_TEXT || node->kind == DTPI_PK_BYTES || node->kind == DTPI_PK_BIG)
            FUZZ_CHECK(node->at + node->n <= p->bytes);
        for (uint32_t k = 0; dtpi_pk_kid(p, node, k); k++)
            FUZZ_CHECK((size_t)(dtpi_pk_kid(p, node, k) - dtpi_pk_at(p, 0)) < n);
        dtpi_pk_ints(p, node, 8, ints, &count);
        dtpi_pk_field(p, node, "size");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const dtp_allocator counting = { count_alloc, count_free, NULL };
    dtpi_pickle p;
    dtp_error err;

    now = most = 0;
    if (dtpi_pickle_read(&counting, data, bytes, "x", &p, &err) >= 0) {
        check_nodes(&p);
        dtpi_pickle_free(&p);
    }
    FUZZ_CHECK(now == 0);
    FUZZ_CHECK(most <= 160 * bytes + 8192);
    return 0;
}
