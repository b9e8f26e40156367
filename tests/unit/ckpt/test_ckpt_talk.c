/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say during a save: how much, when the plan is known and when not, and that all hear of failures. */
#include "ranks.h"

#include "ckpt/msg.h"
#include "ckpt/talk.h"

enum { N = 5, STEADY = DTPI_NOTE_BYTES + DTPI_NOTE_BYTES + 8 };

static const int64_t shape[] = { N, 64 }, extent[] = { 1, 64 }, other[] = { 7 };
static const int64_t offsets[N][2] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, 0 }, { 4, 0 } };

typedef struct gang {
    rank_run ranks[N];
    dtpi_known_plan known[N];
    dtpi_files *files;
} gang;

static void open_gang(gang *g)
{
    memset(g, 0, sizeof(*g));
    g->files = mem_files();
    ranks_init(g->ranks, N, g->files, "ck");
    for (int i = 0; i < N; i++) {
        give(&g->ranks[i], "w", DTP_F32, 2, shape, offsets[i], extent, 1);
        g->ranks[i].in.known = &g->known[i];
    }
}

static void close_gang(gang *g)
{
    ranks_free(g->ranks, N);
    for (int i = 0; i < N; i++)
        dtpi_known_plan_forget(&g->known[i]);
    dtpi_files_close(g->files);
}

/* Saves; how many bytes the rank that sent most has sent. */
static size_t said(gang *g, uint64_t step)
{
    size_t most = 0;

    for (int i = 0; i < N; i++)
        g->ranks[i].link.n_bytes = 0;
    assert_ok(ranks_save(g->ranks, N, step));
    for (int i = 0; i < N; i++)
        most = most > g->ranks[i].link.n_bytes ? most : g->ranks[i].link.n_bytes;
    return most;
}

static void check_step(gang *g, uint64_t step)
{
    dtpi_load *l = NULL;

    assert_ok(dtpi_load_open(&dtpi_malloc_allocator, g->files, "ck", step, &l, ERR));
    assert_ok(read_known(l, "w", DTP_F32, 2, shape, NULL, NULL, 1));
    dtpi_load_close(l);
}

static void test_a_known_plan_costs_three_notes(void **state)
{
    gang g;

    (void)state;
    open_gang(&g);
    assert_true(said(&g, 1) > STEADY);
    for (uint64_t step = 2; step < 6; step++) {
        assert_int_equal(said(&g, step), STEADY);
        check_step(&g, step);
    }
    close_gang(&g);
}

static void test_lists_go_round_when_one_of_them_changed(void **state)
{
    gang g;

    (void)state;
    open_gang(&g);
    assert_true(said(&g, 1) > STEADY);
    give(&g.ranks[3], "x", DTP_I8, 1, other, NULL, NULL, 2);
    assert_true(said(&g, 2) > STEADY);
    assert_int_equal(said(&g, 3), STEADY);
    g.ranks[3].n--;
    assert_true(said(&g, 4) > STEADY);
    check_step(&g, 4);
    g.ranks[3].n++;
    close_gang(&g);
}

static void test_lists_go_round_when_one_rank_forgot_the_plan(void **state)
{
    gang g;

    (void)state;
    open_gang(&g);
    assert_true(said(&g, 1) > STEADY);
    dtpi_known_plan_forget(&g.known[2]);
    assert_true(said(&g, 2) > STEADY);
    assert_int_equal(said(&g, 3), STEADY);
    g.ranks[4].in.known = NULL;
    assert_true(said(&g, 4) > STEADY);
    assert_true(said(&g, 5) > STEADY);
    check_step(&g, 5);
    close_gang(&g);
}

static void test_a_refused_plan_is_not_remembered(void **state)
{
    gang g;

    (void)state;
    open_gang(&g);
    g.ranks[1].tensors[0].name = "v";
    assert_status(DTP_ERR_CORRUPT, ranks_save(g.ranks, N, 1));
    for (int i = 0; i < N; i++)
        assert_true(g.known[i].hash == 0);
    g.ranks[1].tensors[0].name = "w";
    assert_true(said(&g, 1) > STEADY);
    check_step(&g, 1);
    close_gang(&g);
}

static void test_a_failure_before_the_start_reaches_all_with_its_text(void **state)
{
    dtp_error failure;
    gang g;

    (void)state;
    open_gang(&g);
    dtpi_fail(&failure, DTP_ERR_NOSPC, "no room for the copy");
    for (int i = 0; i < N; i++) {
        g.ranks[i].in.failure = &failure;
        assert_status(DTP_ERR_NOSPC, ranks_save(g.ranks, N, 1));
        assert_text("no room for the copy");
        assert_int_equal(check_err.rank, i);
        g.ranks[i].in.failure = NULL;
    }
    assert_true(said(&g, 1) > STEADY);
    check_step(&g, 1);
    close_gang(&g);
}

/* ---- notes ---- */

static void test_a_note_reads_back(void **state)
{
    dtpi_note n = { .kind = DTPI_NOTE_ACK, .bits = 0x8001, .status = 0,
                    .words = { 1, 2, 3, UINT64_MAX, 5, 6, 7 } };
    uint8_t raw[DTPI_NOTE_BYTES];
    dtpi_note back;
    dtpi_written w;

    (void)state;
    dtpi_note_write(&n, raw);
    assert_ok(dtpi_note_read(raw, sizeof(raw), DTPI_NOTE_ACK, 1, &back, ERR));
    assert_memory_equal(back.words, n.words, sizeof(n.words));
    assert_int_equal(back.bits, 0x8001);
    assert_ok(dtpi_note_get_written(&back, 1, 7, &w, ERR));
    assert_true(w.digest == UINT64_MAX && w.lineage == 0x8001);
    assert_status(DTP_ERR_PROTO, dtpi_note_get_written(&back, 1, 8, &w, ERR));
    assert_text("rank 1 acknowledged another plan");
    assert_status(DTP_ERR_PROTO, dtpi_note_read(raw, sizeof(raw), DTPI_NOTE_DECLARE, 1, &back, ERR));
    assert_status(DTP_ERR_PROTO, dtpi_note_read(raw, 63, DTPI_NOTE_ACK, 1, &back, ERR));
    assert_status(DTP_ERR_VERSION, dtpi_note_read(raw, 0, DTPI_NOTE_ACK, 1, &back, ERR));
    raw[7] = 1;         /* a status above 0 */
    assert_status(DTP_ERR_PROTO, dtpi_note_read(raw, sizeof(raw), DTPI_NOTE_ACK, 1, &back, ERR));
    raw[0]++;
    assert_status(DTP_ERR_VERSION, dtpi_note_read(raw, sizeof(raw), DTPI_NOTE_ACK, 1, &back, ERR));
    assert_text("rank 1 speaks version 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_known_plan_costs_three_notes),
        cmocka_unit_test(test_lists_go_round_when_one_of_them_changed),
        cmocka_unit_test(test_lists_go_round_when_one_rank_forgot_the_plan),
        cmocka_unit_test(test_a_refused_plan_is_not_remembered),
        cmocka_unit_test(test_a_failure_before_the_start_reaches_all_with_its_text),
        cmocka_unit_test(test_a_note_reads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
