/* SPDX-License-Identifier: Apache-2.0 */
/* new_manifest.c - boxes as the plan has them, files as the ranks acknowledged them. */
#include "ckpt/new_manifest.h"

#include <inttypes.h>
#include <stdio.h>

void dtpi_shard_name(int32_t rank, int32_t n_ranks, uint64_t id, char name_out[DTPI_FILE_NAME_MAX])
{
    snprintf(name_out, DTPI_FILE_NAME_MAX, "shard-%05d-of-%05d.%016" PRIx64 ".safetensors", rank,
             n_ranks, id);
}

void dtpi_part_name(int32_t rank, int32_t n_ranks, uint64_t id, char name_out[DTPI_FILE_NAME_MAX])
{
    snprintf(name_out, DTPI_FILE_NAME_MAX, "part-%05d-of-%05d.%016" PRIx64 ".bin", rank, n_ranks, id);
}

enum { NAME_IS_KEY = 0 };        /* a file's name begins there */

/* A rank's files, and which boxes are in them; the keys by box of the plan, names of tensors left out. */
static void add_files(const dtpi_new_manifest *what, dtpi_manifest *m, uint32_t *keys, int32_t rank,
                      const dtpi_layout *layout)
{
    char name[DTPI_FILE_NAME_MAX], part[DTPI_FILE_NAME_MAX];
    const dtpi_written *w = &what->acks[rank];

    dtpi_shard_name(rank, what->n_ranks, what->id, name);
    dtpi_part_name(rank, what->n_ranks, what->id, part);
    const dtpi_mf_file f = {
        .name_at = (uint32_t)m->text.len,
        .part_at = (uint32_t)(m->text.len + strlen(name) + 1),
        .rank = rank,
        .step = m->step,
        .bytes = w->bytes,
        .header_bytes = w->header_bytes,
        .header_sum = w->header_sum,
        .digest = w->digest,
        .part_bytes = w->part_bytes,
        .part_sum = w->part_sum,
    };
    dtpi_buf_append(&m->text, name, strlen(name) + 1);
    dtpi_buf_append(&m->text, part, strlen(part) + 1);
    dtpi_buf_append(&m->file_buf, &f, sizeof(f));
    for (size_t i = 0; i < layout->n; i++) {
        const dtpi_piece *p = dtpi_layout_get(layout, i);
        const dtpi_plan_box *box = &what->plan->boxes[p->box];
        if (p->key_bytes == what->plan->tensors[box->tensor].name_bytes &&
            strcmp(dtpi_layout_key(layout, p), dtpi_plan_name(what->plan, box)) == 0) {
            keys[p->box] = NAME_IS_KEY;
            continue;
        }
        keys[p->box] = (uint32_t)m->text.len;
        dtpi_buf_append(&m->text, dtpi_layout_key(layout, p), p->key_bytes + 1);
    }
}

/* One rank's acknowledgement into the manifest. */
static dtp_status add_rank(const dtpi_new_manifest *what, dtpi_manifest *m, uint32_t *keys,
                           uint32_t *files, int32_t rank, dtp_error *err)
{
    dtpi_layout layout = { 0 };

    dtp_status st = dtpi_layout_make(what->plan, rank, &layout, err);
    if (st >= 0 && (what->acks[rank].bytes > 0) != (layout.n > 0))
        st = dtpi_fail_rank(err, DTP_ERR_PROTO, rank, "rank %d acknowledged another plan", rank);
    files[rank] = (uint32_t)dtpi_mf_n_files(m);
    if (st >= 0 && layout.n > 0)
        add_files(what, m, keys, rank, &layout);
    dtpi_layout_free(&layout);
    return st;
}

/* Tensors and boxes of the plan, in its order. */
static void add_tensors(const dtpi_plan *p, dtpi_manifest *m, const uint32_t *keys,
                        const uint32_t *files)
{
    for (size_t t = 0; t < p->n_tensors; t++) {
        const dtpi_plan_box *first = &p->boxes[p->tensors[t].first];
        const dtpi_mf_tensor tensor = {
            .name_at = (uint32_t)m->text.len,
            .name_bytes = p->tensors[t].name_bytes,
            .dtype = first->dtype,
            .n_dims = first->n_dims,
            .dims_at = m->dims.len / sizeof(int64_t),
            .first_box = dtpi_mf_n_boxes(m),
            .n_boxes = (uint32_t)p->tensors[t].n,
        };
        dtpi_buf_append(&m->text, dtpi_plan_name(p, first), tensor.name_bytes + 1);
        dtpi_buf_append(&m->dims, dtpi_plan_shape(p, first), first->n_dims * sizeof(int64_t));
        for (size_t i = 0; i < p->tensors[t].n; i++) {
            const dtpi_plan_box *from = &first[i];
            const uint32_t file = files[from->rank], key = keys[p->tensors[t].first + i];
            const dtpi_mf_box b = { .home = file,
                                    .key_at = key == NAME_IS_KEY ? tensor.name_at : key,
                                    .dims_at = m->dims.len / sizeof(int64_t), .file = file,
                                    .base = DTPI_NO_BASE };
            dtpi_buf_append(&m->dims, dtpi_plan_offset(p, from), 2 * first->n_dims * sizeof(int64_t));
            dtpi_buf_append(&m->box_buf, &b, sizeof(b));
        }
        dtpi_buf_append(&m->tensor_buf, &tensor, sizeof(tensor));
    }
}

static void add_lineage(const dtpi_new_manifest *what, dtpi_manifest *m)
{
    const dtpi_lineage *l = what->lineage;
    uint32_t used = 0;

    for (int32_t i = 0; i < what->n_ranks; i++)
        used |= what->acks[i].lineage;
    m->has_parent = what->has_parent;
    m->parent = l->steps[0];
    for (uint32_t i = l->n; i-- > 0;)
        if (used >> i & 1)
            m->lineage[m->n_lineage++] = l->steps[i];
}

static dtp_status build(const dtpi_new_manifest *what, dtpi_manifest *m, dtp_error *err)
{
    const size_t n = what->plan->n_boxes, n_ranks = (size_t)what->n_ranks;
    dtp_status st = DTP_OK;

    m->step = what->step;
    m->id = what->id;
    m->world_size = (uint32_t)what->n_ranks;
    m->attempt = what->attempt;
    m->generation = what->generation;
    m->chunk_bytes = what->chunk_bytes;
    snprintf(m->codec, sizeof(m->codec), "%s", what->codec);
    dtpi_buf_append(&m->meta, what->meta, strlen(what->meta));
    uint32_t *keys = dtpi_alloc_array(what->a, n + n_ranks, sizeof(*keys));
    if (!keys)
        return dtpi_fail_nomem(err, (n + n_ranks) * sizeof(*keys));
    for (int32_t i = 0; i < what->n_ranks && st >= 0; i++)
        st = add_rank(what, m, keys, keys + n, i, err);
    if (st >= 0) {
        add_tensors(what->plan, m, keys, keys + n);
        add_lineage(what, m);
    }
    dtpi_free(what->a, keys, (n + n_ranks) * sizeof(*keys));
    if (st >= 0 && (m->text.failed || m->dims.failed || m->box_buf.failed || m->tensor_buf.failed ||
                    m->file_buf.failed || m->meta.failed))
        return dtpi_fail_nomem(err, 0);
    if (st >= 0 && m->text.len > UINT32_MAX)
        return dtpi_fail(err, DTP_ERR_LIMIT, "the names of one checkpoint are too long");
    /* What we write is what we would accept. */
    return st < 0 ? st : dtpi_manifest_check(m, "manifest.json", err);
}

dtp_status dtpi_new_manifest_write(const dtpi_new_manifest *what, dtpi_buf *text_out, dtp_error *err)
{
    dtpi_manifest m;

    dtp_status st = dtpi_manifest_init(&m, what->a, err);
    if (st >= 0)
        st = build(what, &m, err);
    if (st >= 0)
        st = dtpi_manifest_write(&m, text_out, err);
    dtpi_manifest_free(&m);
    return st;
}
