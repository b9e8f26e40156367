/* SPDX-License-Identifier: Apache-2.0 */
/*
 * missing.c - at the root: who never joined, on which nodes, and how far they came.
 *
 * Nobody knows beforehand where a rank will run. But agents say how many ranks they expect: where all that
 * are missing are expected by agents that came, their nodes can be named.
 */
#include "group/core_internal.h"

#include <stdio.h>

#include "base/text.h"

enum { HOSTS_TEXT = 44 };

/* An agent that came to the root; no rows of its node may be there yet. */
struct seen {
    uint64_t node;
    uint32_t n_local;
    char host[DTPI_HOST_MAX + 1];
};

void dtpi_core_node_came(dtpi_core *c, uint64_t node, const char *host, uint32_t n_local)
{
    struct seen s = { .node = node, .n_local = n_local };

    snprintf(s.host, sizeof(s.host), "%s", host);
    dtpi_buf_append(&c->seen, &s, sizeof(s));       /* without memory it is not named */
}

/* What is gathered of the nodes that are not complete. */
struct report {
    uint32_t n_expected;        /* ranks that their agents still expect */
    uint32_t n_waiting, n_connecting;   /* nodes by how far their agents came */
    uint32_t n_hosts, n_more;
    char last[DTPI_HOST_MAX + 1], hosts[HOSTS_TEXT];
};

/* Names of hosts, each once where it comes again at once. */
static void add_host(struct report *r, const char *host)
{
    const size_t len = strlen(r->hosts);

    if (r->n_hosts > 0 && strcmp(r->last, host) == 0)
        return;
    snprintf(r->last, sizeof(r->last), "%s", host);
    r->n_hosts++;
    if (r->n_more > 0 || len + strlen(host) + 2 >= sizeof(r->hosts))
        r->n_more++;
    else
        snprintf(r->hosts + len, sizeof(r->hosts) - len, "%s%s", len ? ", " : "", host);
}

static void add_nodes(const dtpi_core *c, const uint32_t *n_came, struct report *r)
{
    if (!core_has_rows_of(c, c->o.node_id)) {
        r->n_expected += c->o.n_local;
        r->n_waiting++;
        add_host(r, c->host);
    }
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        if (n_came[i] >= c->nodes[i].n_local)
            continue;
        r->n_expected += c->nodes[i].n_local - n_came[i];
        r->n_waiting++;
        add_host(r, c->nodes[i].host);
    }
    for (size_t i = 0; i < c->seen.len / sizeof(struct seen); i++) {
        const struct seen *s = (const struct seen *)(const void *)c->seen.data + i;
        if (core_has_rows_of(c, s->node))
            continue;
        r->n_expected += s->n_local;
        r->n_connecting++;
        add_host(r, s->host);
    }
}

/* Of one that came back through another agent the row may be lost. */
static void count_node(const dtpi_core *c, int32_t rank, uint32_t *n_came)
{
    const uint32_t node = core_node_of(c, rank);

    if (node != CORE_NO_NODE)
        n_came[node]++;
}

/* The ranks that are missing, and how many came of each node. */
static bool find_missing(dtpi_core *c, dtpi_buf *missing, uint32_t *n_came)
{
    for (int32_t i = 0; i < (int32_t)c->o.world_size; i++) {
        if (core_is_known(c, i))
            count_node(c, i, n_came);
        else
            dtpi_buf_append(missing, &i, sizeof(i));
    }
    return !missing->failed;
}

static void decide(dtpi_core *c, const int32_t *list, uint32_t n, const struct report *r)
{
    char ranks[84], where[HOSTS_TEXT + 32] = "", more[24] = "";
    const char *phase = "";

    dtpi_format_ranks(list, n, ranks, sizeof(ranks));
    if (r->n_more > 0)
        snprintf(more, sizeof(more), " and %u more", r->n_more);
    /* Only where it is sure that they are there. */
    if (r->n_expected == n && r->hosts[0]) {
        snprintf(where, sizeof(where), " (node%s %s%s)", r->n_hosts == 1 ? "" : "s", r->hosts, more);
        if (r->n_waiting == 0)
            phase = "; last seen: connecting to parent";
    }
    core_decide(c, DTP_ERR_PEER, list, n, "rank%s %s of %u%s never joined%s", n == 1 ? "" : "s", ranks,
                c->o.world_size, where, phase);
}

void core_decide_missing(dtpi_core *c)
{
    DTPI_AUTO_BUF dtpi_buf missing = dtpi_buf_init(&c->a);
    uint32_t *n_came = dtpi_alloc_array(&c->a, c->n_nodes + 1, sizeof(*n_came));
    struct report r = { 0 };

    if (n_came && find_missing(c, &missing, n_came)) {
        add_nodes(c, n_came, &r);
        decide(c, (const int32_t *)(const void *)missing.data,
               (uint32_t)(missing.len / sizeof(int32_t)), &r);
    } else {
        core_nomem(c);
    }
    dtpi_free(&c->a, n_came, (c->n_nodes + 1) * sizeof(*n_came));
}
