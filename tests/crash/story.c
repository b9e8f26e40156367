/* SPDX-License-Identifier: Apache-2.0 */
/* story.c - known contents, and what has to hold of whatever is left of saves. */
#include "crash/story.h"

#include "ckpt/steps.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

/* Small, but for those that a save may refer to: below a page it does not look. */
enum { ROWS = 12, WIDTH = 64, FROZEN = 4500, MOVING = 4200 };

typedef enum content { FRESH, SAME, SOME } content;

typedef struct spec {
    const char *name;
    dtp_dtype dtype;
    content content;
    uint64_t seed;
    int64_t rows, width;        /* of a rank; width 0: one dimension */
} spec;

static const spec specs[STORY_TENSORS] = {
    { "w", DTP_F32, FRESH, 1, ROWS, WIDTH },
    { "frozen", DTP_U8, SAME, 2, FROZEN, 0 },
    { "tied", DTP_U8, SAME, 2, FROZEN, 0 },     /* the same bytes */
    { "moving", DTP_BF16, SOME, 3, MOVING, 0 },
    { "empty", DTP_F32, FRESH, 4, 0, 0 },
    { "small", DTP_I64, FRESH, 5, 1, 0 },
};

/* Byte `i` of a whole tensor at a step: always new, always the same, or new at some places. */
static uint8_t content_byte(const spec *s, uint64_t step, uint64_t i)
{
    const bool changes = s->content == FRESH || (s->content == SOME && i % 16 == step % 16);

    return known_byte(s->seed * 1000 + (changes ? step : 0), i);
}

static uint64_t row_bytes(const spec *s)
{
    return dtp_dtype_bytes(s->dtype) * (uint64_t)(s->width ? s->width : 1);
}

static uint64_t box_size(int t)
{
    return (uint64_t)specs[t].rows * row_bytes(&specs[t]);
}

void story_boxes_init(story_boxes *b, int n, int rank)
{
    *b = (story_boxes){ .n = n, .rank = rank };
    for (int t = 0; t < STORY_TENSORS; t++) {
        const spec *s = &specs[t];
        b->shapes[t][0] = s->rows * n;
        b->offsets[t][0] = s->rows * rank;
        b->extents[t][0] = s->rows;
        b->shapes[t][1] = b->extents[t][1] = s->width;
        b->tensors[t] = (dtp_ckpt_tensor){
            sizeof(dtp_ckpt_tensor), s->name, s->dtype, s->width ? 2 : 1, b->shapes[t],
            b->offsets[t], b->extents[t], malloc(box_size(t) + 1),
        };
    }
}

void story_boxes_fill(story_boxes *b, uint64_t step)
{
    for (int t = 0; t < STORY_TENSORS; t++) {
        const uint64_t bytes = box_size(t);
        uint8_t *p = b->tensors[t].data;
        for (uint64_t k = 0; k < bytes; k++)
            p[k] = content_byte(&specs[t], step, bytes * (uint64_t)b->rank + k);
    }
}

void story_boxes_free(story_boxes *b)
{
    for (int t = 0; t < STORY_TENSORS; t++)
        free(b->tensors[t].data);
}

/* ---- what is left ---- */

/* Whole tensors as they have to be, made once for each step and number of ranks. */
static const uint8_t *wanted(int n, uint64_t step, int t, uint64_t *bytes_out)
{
    static struct { int n; uint64_t step; uint8_t *data; } cache[256];
    static size_t n_cached;
    const uint64_t bytes = (uint64_t)(specs[t].rows * n) * row_bytes(&specs[t]);

    *bytes_out = bytes;
    for (size_t i = 0; i < n_cached; i += STORY_TENSORS)
        if (cache[i].n == n && cache[i].step == step)
            return cache[i + (size_t)t].data;
    assert_true(n_cached + STORY_TENSORS <= DTPI_ARRAY_LEN(cache));
    for (int k = 0; k < STORY_TENSORS; k++) {
        const uint64_t len = (uint64_t)(specs[k].rows * n) * row_bytes(&specs[k]);
        uint8_t *data = malloc(len + 1);
        for (uint64_t i = 0; i < len; i++)
            data[i] = content_byte(&specs[k], step, i);
        cache[n_cached++] = (typeof(cache[0])){ n, step, data };
    }
    return cache[n_cached - STORY_TENSORS + (size_t)t].data;
}

dtp_status story_check_step(dtpi_files *files, int n, uint64_t step, dtp_error *err)
{
    DTPI_AUTO(load) dtpi_load *l = NULL;
    static uint8_t got[MAX_RANKS * 2 * MOVING];

    dtp_status st = dtpi_load_open(A, files, story_dir, step, &l, err);
    for (int t = 0; t < STORY_TENSORS && st >= 0; t++) {
        const spec *s = &specs[t];
        const int64_t shape[2] = { s->rows * n, s->width };
        uint64_t bytes = 0;
        const uint8_t *want = wanted(n, step, t, &bytes);
        assert_true(bytes <= sizeof(got));
        const dtp_ckpt_tensor whole = { sizeof(whole), s->name, s->dtype, s->width ? 2 : 1, shape, NULL, NULL, got };
        st = dtpi_load_read(l, &whole, err);
        if (st >= 0 && bytes && memcmp(got, want, bytes) != 0)
            st = dtpi_fail(err, DTP_ERR_CORRUPT, "tensor %s of step %d differs", s->name, (int)step);
    }
    return st < 0 ? st : dtpi_load_verify(l, NULL, NULL, err);
}

void story_acked(story *s, uint64_t step, size_t done)
{
    assert_true(s->n_acked < STORY_MAX_ACKS);
    s->acked[s->n_acked].step = step;
    s->acked[s->n_acked++].done = done;
}

uint64_t story_promise(void *user, size_t done)
{
    const story *s = user;
    uint64_t step = 0;

    for (size_t i = 0; i < s->n_acked; i++)
        if (s->acked[i].done <= done && s->acked[i].step > step)
            step = s->acked[i].step;
    return step;
}

void story_fail(story *s, size_t done, const crash_state *left, const char *how, const char *why)
{
    char text[300] = "the beginning";

    s->n_lost++;
    if (s->may_lose)
        return;
    for (size_t i = done > 12 ? done - 12 : 0; i < done; i++) {
        crash_op_text(&s->ops[i], text, sizeof(text));
        print_message("  %4zu %s\n", i, text);
    }
    for (size_t i = 0; i < left->n; i++)
        print_message("  left: %s %zu\n", left->entries[i].path, left->entries[i].bytes);
    fail_msg("%s, %d ranks, crash after operation %zu (%s), %s: %s", s->title, s->n, done, text, how, why);
}

int story_check(void *user, size_t done, const crash_state *left, const char *how)
{
    story *s = user;
    DTPI_AUTO(files) dtpi_files *files = crash_state_files(left);
    DTPI_AUTO_BUF dtpi_buf list = dtpi_buf_init(A);
    const uint64_t must = story_promise(user, done);
    uint64_t latest = 0;
    dtp_error err = { 0 };

    const dtp_status st = dtpi_steps_latest(files, &silent, story_dir, &latest, &err);
    if (st >= 0 && latest < must)
        dtpi_step_check(files, story_dir, must, &err);
    if (must > 0 && (st < 0 || latest < must))
        story_fail(s, done, left, how, err.text);
    if (st >= 0 && latest > s->newest)
        story_fail(s, done, left, how, "a step out of nowhere");
    if (st < 0)
        return 0;
    assert_ok(dtpi_steps_list(files, story_dir, &list, ERR));
    for (size_t i = 0; i < list.len / 8; i++) {
        const uint64_t step = ((const uint64_t *)(const void *)list.data)[i];
        if (dtpi_step_check(files, story_dir, step, NULL) >= 0 &&
            story_check_step(files, s->n, step, &err) < 0)
            story_fail(s, done, left, how, err.text);
    }
    return 0;
}

void story_look(story_walk *all, story *s, const crash_op *ops, size_t n, size_t settled, size_t from,
                size_t max_all, size_t n_random)
{
    crash_walk w = { .ops = ops, .n = n, .settled = settled, .from = from, .max_all = max_all,
                     .n_random = n_random, .every = all->every, .seed = check_random(&all->seed), .seen = &all->seen,
                     .promise = story_promise, .check = story_check, .user = s };

    s->ops = ops;
    crash_walk_run(&w);
    all->n_built += w.n_built;
    all->n_distinct += w.n_distinct;
}
