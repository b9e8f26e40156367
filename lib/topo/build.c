/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build.c - keeps the facts that sources report: finds facts about one device and merges them.
 *
 * Nesting is nest.c's. A device is known by its PCI address; a host bridge and a device without PCI by
 * its name. Facts are untrusted: their number is bounded and their texts are cleaned.
 */
#include "topo/build.h"

#include "topo/parse.h"

static uint32_t bucket_of(const char *text)
{
    uint32_t h = 2166136261u;

    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 16777619u;
    return h % BUILD_BUCKETS;
}

static const char *key_of(const dtp_topo_obj *obj)
{
    if (!dtpi_topo_is_device(obj->type))
        return NULL;
    return obj->pci ? obj->pci : obj->name;
}

int32_t dtpi_topo_build_find(const dtpi_topo_build *b, const char *key)
{
    if (!key)
        return -1;
    for (int32_t i = b->buckets[bucket_of(key)]; i >= 0; i = b->items[i].chain)
        if (strcmp(key_of(&b->items[i].obj), key) == 0)
            return i;
    return -1;
}

/* Makes `*text` the topology's own; an empty text is an unknown one. False without memory. */
static bool own_text(dtp_topo *topo, const char **text)
{
    if (!*text)
        return true;
    if (!**text) {
        *text = NULL;
        return true;
    }
    *text = dtpi_topo_text(topo, *text);
    return *text != NULL;
}

static bool own_texts(dtp_topo *topo, dtp_topo_obj *obj)
{
    obj->cpus = NULL;
    return own_text(topo, &obj->name) && own_text(topo, &obj->pci) && own_text(topo, &obj->model) &&
           own_text(topo, &obj->link_layer) && own_text(topo, &obj->gid) &&
           own_text(topo, &obj->netdev);
}

static void take_text(const char **known, const char *text)
{
    if (text)
        *known = text;
}

static void take_number(int64_t *known, int64_t number)
{
    if (number != DTP_UNKNOWN)
        *known = number;
}

/* Vendor and device numbers, "10de:2330", are told apart from a name. */
static bool is_number_pair(const char *model)
{
    return strlen(model) == 9 && strspn(model, "0123456789abcdef") == 4 && model[4] == ':';
}

/* What is known in `fact` wins; a PCI device becomes a GPU, NIC or NVMe, never the other way. */
static void merge(dtp_topo_obj *obj, const dtp_topo_obj *fact)
{
    if (obj->type == DTP_TOPO_PCI)
        obj->type = fact->type;
    take_text(&obj->name, fact->name);
    if (fact->model && !(obj->model && is_number_pair(fact->model)))
        obj->model = fact->model;
    take_text(&obj->link_layer, fact->link_layer);
    take_text(&obj->gid, fact->gid);
    take_text(&obj->netdev, fact->netdev);
    take_number(&obj->os_index, fact->os_index);
    take_number(&obj->numa, fact->numa);
    take_number(&obj->mem_bytes, fact->mem_bytes);
    take_number(&obj->link_mbps, fact->link_mbps);
    take_number(&obj->link_max_mbps, fact->link_max_mbps);
    take_number(&obj->port_mbps, fact->port_mbps);
    if (fact->port_state)
        obj->port_state = fact->port_state;
    if (fact->usable)
        obj->usable = fact->usable;
}

static dtp_status grow(dtpi_topo_build *b, dtp_error *err)
{
    const dtp_allocator *a = &b->topo->a;

    if (b->n < b->cap)
        return DTP_OK;
    if (b->n >= DTPI_TOPO_MAX_OBJS)
        return dtpi_fail(err, DTP_ERR_LIMIT, "more than %d objects", (int)DTPI_TOPO_MAX_OBJS);
    const uint32_t cap = b->cap ? b->cap * 2 : 256;
    dtpi_topo_item *items = dtpi_alloc_array(a, cap, sizeof(*items));
    if (!items)
        return dtpi_fail_nomem(err, cap * sizeof(*items));
    if (b->n)
        memcpy(items, b->items, b->n * sizeof(*items));
    dtpi_free(a, b->items, b->cap * sizeof(*items));
    b->items = items;
    b->cap = cap;
    return DTP_OK;
}

static dtp_status keep_set(dtpi_topo_build *b, dtpi_topo_item *it, const dtpi_cpuset *set,
                           dtp_error *err)
{
    if (!set || it->obj.type == DTP_TOPO_PU)
        return DTP_OK;
    if (!it->set)
        it->set = dtpi_alloc(&b->topo->a, sizeof(*it->set));
    if (!it->set)
        return dtpi_fail_nomem(err, sizeof(*it->set));
    *it->set = *set;
    it->count = dtpi_cpuset_count(set);
    return DTP_OK;
}

static dtp_status sink_add(dtpi_topo_sink *sink, const dtpi_topo_fact *fact, dtp_error *err)
{
    dtpi_topo_build *b = DTPI_CONTAINER(sink, dtpi_topo_build, sink);
    dtpi_topo_fact own = *fact;
    dtpi_topo_item *it;
    dtp_status st;

    if (own.obj.type == DTP_TOPO_PU &&
        (own.obj.os_index < 0 || own.obj.os_index >= DTPI_CPUSET_MAX))
        return dtpi_fail(err, DTP_ERR_LIMIT, "processor %lld: at most %d can be handled",
                         (long long)own.obj.os_index, (int)DTPI_CPUSET_MAX);
    if (!own_texts(b->topo, &own.obj) || !own_text(b->topo, &own.above))
        return dtpi_fail_nomem(err, 0);
    const int32_t known = dtpi_topo_build_find(b, key_of(&own.obj));
    if (known >= 0) {
        it = &b->items[known];
        merge(&it->obj, &own.obj);
    } else {
        st = grow(b, err);
        if (st < 0)
            return st;
        it = &b->items[b->n];
        *it = (dtpi_topo_item){ .obj = own.obj, .chain = -1, .place = UINT64_MAX };
        const char *key = key_of(&it->obj);
        if (key) {
            it->chain = b->buckets[bucket_of(key)];
            b->buckets[bucket_of(key)] = (int32_t)b->n;
            dtpi_topo_parse_pci(key, &it->place);
        }
        b->n++;
    }
    take_text(&it->above, own.above);
    return keep_set(b, it, fact->cpus, err);
}

static dtp_status sink_view(dtpi_topo_sink *sink, dtp_cpus_view view, const dtpi_cpuset *set,
                            dtp_error *err)
{
    dtpi_topo_build *b = DTPI_CONTAINER(sink, dtpi_topo_build, sink);

    (void)err;
    b->views[view] = *set;
    b->has_view[view] = true;
    return DTP_OK;
}

static dtp_status sink_link(dtpi_topo_sink *sink, const char *pci_a, const char *pci_b,
                            uint32_t n_links, dtp_error *err)
{
    dtp_topo *topo = DTPI_CONTAINER(sink, dtpi_topo_build, sink)->topo;

    if (topo->n_nvlinks == topo->cap_nvlinks) {
        const uint32_t cap = topo->cap_nvlinks ? topo->cap_nvlinks * 2 : 64;
        if (cap > DTPI_TOPO_MAX_OBJS)
            return dtpi_fail(err, DTP_ERR_LIMIT, "more than %u NVLink pairs", topo->n_nvlinks);
        dtpi_topo_nvlink *links = dtpi_alloc_array(&topo->a, cap, sizeof(*links));
        if (!links)
            return dtpi_fail_nomem(err, cap * sizeof(*links));
        if (topo->n_nvlinks)
            memcpy(links, topo->nvlinks, topo->n_nvlinks * sizeof(*links));
        dtpi_free(&topo->a, topo->nvlinks, topo->cap_nvlinks * sizeof(*links));
        topo->nvlinks = links;
        topo->cap_nvlinks = cap;
    }
    dtpi_topo_nvlink link = { pci_a, pci_b, n_links };
    if (!own_text(topo, &link.a) || !own_text(topo, &link.b))
        return dtpi_fail_nomem(err, 0);
    topo->nvlinks[topo->n_nvlinks++] = link;
    return DTP_OK;
}

dtpi_topo_build *dtpi_topo_build_new(dtp_topo *topo)
{
    dtpi_topo_build *b = dtpi_alloc(&topo->a, sizeof(*b));

    if (!b)
        return NULL;
    b->sink = (dtpi_topo_sink){ .add = sink_add, .view = sink_view, .link = sink_link };
    b->topo = topo;
    dtpi_topo_build_reset(b);
    return b;
}

static void free_sets(dtpi_topo_build *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        dtpi_free(&b->topo->a, b->items[i].set, sizeof(*b->items[i].set));
    b->n = 0;
}

void dtpi_topo_build_reset(dtpi_topo_build *b)
{
    free_sets(b);
    b->topo->n_nvlinks = 0;
    memset(b->has_view, 0, sizeof(b->has_view));
    memset(b->buckets, 0xff, sizeof(b->buckets));
}

void dtpi_topo_build_free(dtpi_topo_build *b)
{
    const dtp_allocator *a = &b->topo->a;

    free_sets(b);
    dtpi_free(a, b->items, b->cap * sizeof(*b->items));
    dtpi_free(a, b, sizeof(*b));
}

dtpi_topo_sink *dtpi_topo_build_sink(dtpi_topo_build *b)
{
    return &b->sink;
}

dtp_status dtpi_topo_build_end(dtpi_topo_build *b, dtp_error *err)
{
    const dtp_status st = dtpi_topo_nest(b, err);

    return st < 0 ? st : dtpi_topo_emit(b, err);
}
