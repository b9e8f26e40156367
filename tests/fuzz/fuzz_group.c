/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_group.c - messages of members that have gone mad: ranks, a child and a parent send what they
 * like to the agents' core, and its answers are read as a rank reads them.
 *
 * Input: records {who, type, lane, group, seq, rank, length, body}; other header bytes are right, so that
 * the bodies are reached.
 */
#include "fuzz.h"

#include "group/core.h"

enum { WORLD = 5 };

static void to_rank(void *user, uint32_t slot, dtpi_msg *m)
{
    dtpi_split_item items[WORLD];
    int32_t failed[WORLD];
    dtpi_verdict v;
    dtpi_down down;
    dtpi_frame f;

    (void)user;
    (void)slot;
    FUZZ_CHECK(dtpi_frame_read(m->buf.data, m->buf.len, &f));
    if (f.type == DTPI_F_DOWN && dtpi_down_read(&f, &down) && down.kind == DTPI_KIND_SPLIT)
        dtpi_split_read(&down.rest, WORLD, items);
    if (f.type == DTPI_F_VERDICT)
        FUZZ_CHECK(dtpi_verdict_read(&f, WORLD, &v, failed));
}

static void to_parent(void *user, dtpi_msg *m)
{
    to_rank(user, 0, m);
}

static void on_table(void *user)
{
    (void)user;
}

static void on_verdict(void *user, const dtpi_verdict *v)
{
    (void)user;
    FUZZ_CHECK(v->status < 0 && v->n_failed <= WORLD && memchr(v->text, 0, sizeof(v->text)));
}

static void on_drop(void *user, uint32_t slot)
{
    (void)user;
    (void)slot;
}

static const dtpi_core_ops ops = { to_rank, to_rank, to_parent, on_table, on_verdict, on_drop, on_drop };

static dtpi_core *core_open(bool is_root)
{
    const dtpi_core_opts o = { .a = &dtpi_malloc_allocator, .world_size = WORLD, .n_local = 2,
                               .is_root = is_root, .host = "h", .node_id = 7, .host_rank = -1 };
    dtpi_core *c;

    FUZZ_CHECK(dtpi_core_new(&o, &ops, NULL, &c, NULL) == DTP_OK);
    dtpi_core_local_open(c, 0, 0, 10, 0);
    dtpi_core_local_open(c, 1, 1, 11, 0);
    dtpi_core_child_open(c, 0, 0);
    if (!is_root)
        dtpi_core_parent_open(c, 0);
    return c;
}

static void one(dtpi_core *c, dtpi_rd *r, int64_t now)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    const uint8_t who = dtpi_rd_u8(r), type = dtpi_rd_u8(r), lane = dtpi_rd_u8(r),
                  group = dtpi_rd_u8(r), seq = dtpi_rd_u8(r);
    const int8_t rank = (int8_t)dtpi_rd_u8(r);
    const size_t want = dtpi_rd_u8(r), n = DTPI_MIN(want, r->left);
    const uint8_t *body = dtpi_rd_bytes(r, n);
    const dtpi_frame f = { .type = type, .lane = lane, .generation = 1, .seq = seq,
                           .group = group == 255 ? dtpi_split_id(1, 0, 1, 0) : group, .rank = rank };

    if (!body)
        return;
    dtpi_frame_begin(&b, &f);
    dtpi_buf_append(&b, body, n);
    switch (who % 6) {
    case 0:
    case 1:
        dtpi_core_local_msg(c, who % 6, &(dtpi_in){ .data = b.data, .bytes = b.len }, now);
        break;
    case 2:
        dtpi_core_child_msg(c, 0, &(dtpi_in){ .data = b.data, .bytes = b.len }, now);
        break;
    case 3:
        dtpi_core_parent_msg(c, &(dtpi_in){ .data = b.data, .bytes = b.len }, now);
        break;
    case 4:
        dtpi_core_tick(c, now);
        break;
    default:
        if (who == 251)
            dtpi_core_parent_end(c, DTP_OK, NULL, now);
        else
            dtpi_core_local_end(c, who / 6 % 2, NULL, now);
        break;
    }
    dtpi_buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    dtpi_rd r = dtpi_rd_init(data, bytes);

    if (bytes < 8 || bytes > 4096)
        return 0;
    dtpi_core *c = core_open(dtpi_rd_u8(&r) & 1);
    for (int64_t now = 1; r.left > 0 && !r.failed; now++)
        one(c, &r, now * DTPI_NS_PER_MS);
    dtpi_core_bye(c);
    dtpi_core_free(c);
    return 0;
}
