/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - the object model and its accessors.
 *
 * A topology is built once and never changes, so that reading it needs no lock; its texts lie in
 * chunks that are freed together.
 */
#include "topo/topo.h"

#include <stdio.h>

#include "base/text.h"

enum { CHUNK_BYTES = 16 << 10 };

struct dtpi_topo_chunk {
    dtpi_topo_chunk *next;
    size_t bytes;               /* of the block */
    size_t used;
    char data[];
};

dtp_topo *dtpi_topo_new(const dtp_allocator *a)
{
    dtp_topo *topo = dtpi_alloc(a, sizeof(*topo));

    if (topo)
        topo->a = *a;
    return topo;
}

void dtp_topo_close(dtp_topo *topo)
{
    if (!topo)
        return;
    const dtp_allocator a = topo->a;
    for (dtpi_topo_chunk *c = topo->texts, *next; c; c = next) {
        next = c->next;
        dtpi_free(&a, c, c->bytes);
    }
    dtpi_free(&a, topo->objs, topo->cap_objs * sizeof(*topo->objs));
    dtpi_free(&a, topo->sorted, topo->cap_objs * sizeof(*topo->sorted));
    dtpi_free(&a, topo->nvlinks, topo->cap_nvlinks * sizeof(*topo->nvlinks));
    dtpi_free(&a, topo, sizeof(*topo));
}

static char *text_room(dtp_topo *topo, size_t bytes)
{
    dtpi_topo_chunk *c = topo->texts;

    if (!c || c->bytes - sizeof(*c) - c->used < bytes) {
        const size_t total = sizeof(*c) + DTPI_MAX(bytes, (size_t)CHUNK_BYTES);

        c = dtpi_alloc_aligned(&topo->a, total, 16);
        if (!c)
            return NULL;
        *c = (dtpi_topo_chunk){ .next = topo->texts, .bytes = total };
        topo->texts = c;
    }
    c->used += bytes;
    return c->data + c->used - bytes;
}

const char *dtpi_topo_text(dtp_topo *topo, const char *text)
{
    size_t len = strnlen(text, DTPI_TOPO_MAX_TEXT);

    while (len > 1 && text[len - 1] == ' ')
        len--;
    char *copy = text_room(topo, len + 1);
    if (!copy)
        return NULL;
    const bool utf8 = dtpi_utf8_ok(text, len);
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)text[i];
        copy[i] = c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8) ? '?' : text[i];
    }
    copy[len] = '\0';
    return copy;
}

const char *dtpi_topo_copy(dtp_topo *topo, const char *text, size_t bytes)
{
    char *copy = text_room(topo, bytes + 1);

    if (!copy)
        return NULL;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

const char *dtpi_topo_list(dtp_topo *topo, const dtpi_cpuset *set)
{
    char *list = dtpi_cpuset_format(set, &topo->a);

    if (!list)
        return NULL;
    const char *copy = dtpi_topo_copy(topo, list, strlen(list));
    dtpi_text_free(&topo->a, list);
    return copy;
}

bool dtpi_topo_is_device(dtp_topo_type type)
{
    return type >= DTP_TOPO_BRIDGE;
}

uint32_t dtpi_topo_locality(const dtp_topo *topo, uint32_t index)
{
    while (dtpi_topo_is_device(topo->objs[index].type))
        index = (uint32_t)topo->objs[index].parent;
    return index;
}

void dtpi_topo_label(const dtp_topo_obj *obj, char *text_out, size_t room)
{
    static const char *const words[] = {
        [DTP_TOPO_MACHINE] = "machine", [DTP_TOPO_PACKAGE] = "package",
        [DTP_TOPO_NUMA] = "NUMA node",  [DTP_TOPO_CACHE] = "cache",
        [DTP_TOPO_CORE] = "core",       [DTP_TOPO_PU] = "PU",
        [DTP_TOPO_BRIDGE] = "bridge",   [DTP_TOPO_PCI] = "PCI",
        [DTP_TOPO_GPU] = "GPU",         [DTP_TOPO_NIC] = "NIC",
        [DTP_TOPO_NVME] = "NVMe",
    };

    if (obj->name)
        snprintf(text_out, room, "%s", obj->name);
    else if (obj->pci)
        snprintf(text_out, room, "%s %s", words[obj->type], obj->pci);
    else if (obj->os_index != DTP_UNKNOWN)
        snprintf(text_out, room, "%s %lld", words[obj->type], (long long)obj->os_index);
    else
        snprintf(text_out, room, "%s", words[obj->type]);
}

/* ---- public accessors ---- */

uint32_t dtp_topo_n_objs(const dtp_topo *topo)
{
    return topo->n_objs;
}

dtp_status dtp_topo_get(const dtp_topo *topo, uint32_t index, dtp_topo_obj *obj_out, dtp_error *err)
{
    if (index >= topo->n_objs)
        return dtpi_noun(err, "topo",
                         dtpi_fail(err, DTP_ERR_RANGE, "object %u of %u", index, topo->n_objs));
    return dtpi_noun(err, "topo", DTPI_RESULT_WRITE(obj_out, &topo->objs[index], err));
}

uint32_t dtp_topo_count(const dtp_topo *topo, dtp_topo_type type)
{
    if (type < DTP_TOPO_MACHINE || type > DTP_TOPO_NVME)
        return 0;
    return topo->first[type + 1] - topo->first[type];
}

dtp_status dtp_topo_nth(const dtp_topo *topo, dtp_topo_type type, uint32_t n, dtp_topo_obj *obj_out,
                        dtp_error *err)
{
    const uint32_t count = dtp_topo_count(topo, type);

    if (n >= count)
        return dtpi_noun(err, "topo",
                         dtpi_fail(err, DTP_ERR_RANGE, "object %u of %u of its type", n, count));
    return dtpi_noun(
        err, "topo",
        DTPI_RESULT_WRITE(obj_out, &topo->objs[topo->sorted[topo->first[type] + n]], err));
}

const char *dtp_topo_cpus(const dtp_topo *topo, dtp_cpus_view view)
{
    return (unsigned)view < DTPI_ARRAY_LEN(topo->cpus) ? topo->cpus[view] : NULL;
}
