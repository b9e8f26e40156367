/* SPDX-License-Identifier: Apache-2.0 */
/*
 * below.c - a sparse map from a rank to what an agent keeps of it: a page for each 128 numbers that occur.
 *
 * An agent keeps its own subtree, in ranges or scattered, and never an array as long as the world.
 */
#include "group/core_internal.h"

/* The index of the first page that is not before `base`. */
static uint32_t lower_bound(const struct core_below *b, uint32_t base)
{
    uint32_t first = 0, end = b->n_pages;

    while (first < end) {
        const uint32_t mid = first + (end - first) / 2;
        if (b->pages[mid]->base < base)
            first = mid + 1;
        else
            end = mid;
    }
    return first;
}

uint32_t core_cell(const struct core_below *b, int32_t rank)
{
    const uint32_t base = (uint32_t)rank / CORE_PAGE_RANKS;
    const uint32_t at = lower_bound(b, base);

    if (at == b->n_pages || b->pages[at]->base != base)
        return 0;
    return b->pages[at]->cells[(uint32_t)rank % CORE_PAGE_RANKS];
}

static bool grow(struct core_below *b)
{
    const uint32_t cap = b->cap ? b->cap * 2 : 2;
    struct core_page **pages = dtpi_alloc_array(b->a, cap, sizeof(struct core_page *));

    if (!pages)
        return false;
    if (b->n_pages)
        memcpy(pages, b->pages, b->n_pages * sizeof(struct core_page *));
    dtpi_free(b->a, b->pages, b->cap * sizeof(struct core_page *));
    b->pages = pages;
    b->cap = cap;
    return true;
}

uint32_t *core_cell_for(struct core_below *b, int32_t rank)
{
    const uint32_t base = (uint32_t)rank / CORE_PAGE_RANKS;
    const uint32_t at = lower_bound(b, base);

    if (at == b->n_pages || b->pages[at]->base != base) {
        struct core_page *p = dtpi_alloc(b->a, sizeof(*p));
        if (!p || (b->n_pages == b->cap && !grow(b))) {
            dtpi_free(b->a, p, sizeof(*p));
            return NULL;
        }
        memmove(b->pages + at + 1, b->pages + at, (b->n_pages - at) * sizeof(struct core_page *));
        b->pages[at] = p;
        b->n_pages++;
        p->base = base;
    }
    return &b->pages[at]->cells[(uint32_t)rank % CORE_PAGE_RANKS];
}

int32_t core_next_cell(const struct core_below *b, int32_t after, uint32_t flag)
{
    const uint32_t first = (uint32_t)(after + 1);
    uint32_t i = first % CORE_PAGE_RANKS;

    for (uint32_t at = lower_bound(b, first / CORE_PAGE_RANKS); at < b->n_pages; at++) {
        const struct core_page *p = b->pages[at];
        if (p->base != first / CORE_PAGE_RANKS)
            i = 0;
        for (; i < CORE_PAGE_RANKS; i++)
            if (p->cells[i] & flag)
                return (int32_t)(p->base * CORE_PAGE_RANKS + i);
    }
    return -1;
}

void core_below_free(struct core_below *b)
{
    for (uint32_t i = 0; i < b->n_pages; i++)
        dtpi_free(b->a, b->pages[i], sizeof(struct core_page));
    dtpi_free(b->a, b->pages, b->cap * sizeof(struct core_page *));
    *b = (struct core_below){ .a = b->a };
}
