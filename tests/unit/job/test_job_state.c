/* SPDX-License-Identifier: Apache-2.0 */
/* The job's state machine: tables of events and decisions, and random walks that never break a rule. */
#include "check.h"

#include <errno.h>
#include <signal.h>

#include "job/state.h"

/* Wait statuses. */
#define CODE(n) ((n) << 8)
#define SIGNAL(n) (n)

static bool feed(dtpi_job_state *s, dtpi_journal_type type, uint32_t attempt, int32_t rank,
                 int32_t wstatus)
{
    const dtpi_journal_entry e = { .type = type, .attempt = attempt, .n = s->n, .rank = rank,
                                   .wstatus = wstatus };
    return dtpi_job_apply(s, &e);
}

static bool started(dtpi_job_state *s)
{
    return feed(s, DTPI_JOURNAL_ATTEMPT, s->attempt, -1, 0);
}

static bool ended(dtpi_job_state *s, int32_t rank, int32_t wstatus)
{
    return feed(s, DTPI_JOURNAL_EXIT, s->attempt, rank, wstatus);
}

static bool gone(dtpi_job_state *s)
{
    return feed(s, DTPI_JOURNAL_GONE, s->attempt, -1, 0);
}

/* The gang is ended: every rank that is left dies of `signal`. */
static void end_rest(dtpi_job_state *s, int32_t not_rank, int signal)
{
    assert_true(feed(s, DTPI_JOURNAL_ENDING, s->attempt, -1, 0));
    for (int32_t i = 0; i < (int32_t)s->n; i++)
        if (i != not_rank)
            assert_true(ended(s, i, SIGNAL(signal)));
    assert_true(gone(s));
}

static void test_a_gang_whose_ranks_all_exit_0_is_done(void **state)
{
    dtpi_job_state s;

    (void)state;
    dtpi_job_state_init(&s, 2, 2, 0, false);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_START);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_WAIT);
    assert_true(started(&s));
    assert_int_equal(s.state, DTP_JOB_RUNNING);
    assert_true(ended(&s, 0, 0));
    assert_true(ended(&s, 1, 0));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_WAIT);
    assert_true(gone(&s));
    assert_int_equal(s.state, DTP_JOB_DONE);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_FINISH);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_WAIT);
    assert_int_equal(s.exit_code, 0);
}

static void test_the_first_failure_is_the_cause_and_decides_the_exit_code(void **state)
{
    static const struct {
        int32_t first, second, code;
        const char *text;
    } cases[] = {
        { CODE(3), SIGNAL(SIGTERM), 3, "rank 1 of 3 exited with code 3 (attempt 0)" },
        { SIGNAL(SIGKILL), CODE(1), 137, "rank 1 of 3 killed by signal 9 (attempt 0)" },
        { SIGNAL(SIGSEGV) | 0x80, CODE(7), 139, "rank 1 of 3 killed by signal 11 (attempt 0)" },
        { CODE(255), CODE(0), 255, "rank 1 of 3 exited with code 255 (attempt 0)" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        dtpi_job_state s;
        dtpi_job_state_init(&s, 3, 3, 0, false);
        assert_int_equal(dtpi_job_next(&s), DTPI_JOB_START);
        assert_true(started(&s));
        assert_true(ended(&s, 1, cases[i].first));
        assert_int_equal(s.state, DTP_JOB_STOPPING);
        assert_int_equal(dtpi_job_next(&s), DTPI_JOB_END);
        assert_true(ended(&s, 0, cases[i].second));
        assert_true(ended(&s, 2, cases[i].second));
        assert_false(ended(&s, 2, 0));
        assert_true(gone(&s));
        assert_int_equal(s.state, DTP_JOB_FAILED);
        assert_int_equal(s.exit_code, cases[i].code);
        dtpi_cause_text(&s.cause, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
    }
}

static void test_a_restart_gives_up_the_lost_ranks_down_to_the_least(void **state)
{
    static const struct {
        uint32_t n, min;
        int n_killed;
        uint32_t next;
    } cases[] = {
        { 4, 2, 1, 3 }, { 4, 2, 2, 2 }, { 4, 2, 3, 2 }, { 4, 4, 1, 4 }, { 4, 3, 4, 3 }, { 1, 1, 1, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dtpi_job_state s;
        dtpi_job_state_init(&s, cases[i].n, cases[i].min, 1, false);
        dtpi_job_next(&s);
        assert_true(started(&s));
        int k = 0;
        for (; k < cases[i].n_killed; k++)
            assert_true(ended(&s, k, SIGNAL(SIGKILL)));
        assert_true(feed(&s, DTPI_JOURNAL_ENDING, 0, -1, 0));
        /* What the ending kills is not lost. */
        for (; k < (int)cases[i].n; k++)
            assert_true(ended(&s, k, SIGNAL(SIGKILL)));
        assert_true(gone(&s));
        assert_int_equal(s.state, DTP_JOB_STARTING);
        assert_int_equal(s.attempt, 1);
        assert_int_equal(s.n, cases[i].next);
        assert_int_equal(dtpi_job_next(&s), DTPI_JOB_START);
    }
}

static void test_survivors_that_give_up_are_not_counted_as_lost(void **state)
{
    dtpi_job_state s;

    (void)state;
    dtpi_job_state_init(&s, 4, 1, 1, false);
    dtpi_job_next(&s);
    assert_true(started(&s));
    assert_true(ended(&s, 2, SIGNAL(SIGKILL)));
    for (int i = 0; i < 4; i++)
        if (i != 2)
            assert_true(ended(&s, i, i == 3 ? SIGNAL(SIGABRT) : CODE(1)));
    assert_true(gone(&s));
    assert_int_equal(s.n, 3);
}

static void test_the_last_attempt_decides_the_exit_code(void **state)
{
    dtpi_job_state s;

    (void)state;
    dtpi_job_state_init(&s, 2, 1, 1, false);
    dtpi_job_next(&s);
    assert_true(started(&s));
    assert_true(ended(&s, 0, CODE(9)));
    end_rest(&s, 0, SIGTERM);
    assert_int_equal(s.n, 1);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_START);
    assert_true(started(&s));
    assert_false(feed(&s, DTPI_JOURNAL_EXIT, 0, 0, 0));
    assert_true(ended(&s, 0, CODE(4)));
    assert_true(gone(&s));
    assert_int_equal(s.state, DTP_JOB_FAILED);
    assert_int_equal(s.exit_code, 4);
}

static void test_what_cannot_start_is_not_tried_again(void **state)
{
    static const struct {
        int32_t status, code, exit_code;
    } cases[] = {
        { DTP_ERR_EXEC, ENOENT, 127 }, { DTP_ERR_EXEC, EACCES, 126 }, { DTP_ERR_EXEC, ENOEXEC, 126 },
        { DTP_ERR_EXEC, 0, 125 },      { DTP_ERR_LIMIT, ENOENT, 125 }, { DTP_ERR_BUSY, 0, 125 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dtpi_job_state s;
        dtpi_job_state_init(&s, 2, 1, 5, false);
        dtpi_job_next(&s);
        dtpi_journal_entry e = { .type = DTPI_JOURNAL_FAILED, .status = cases[i].status,
                                 .code = cases[i].code, .rank = -1, .text = "no" };
        assert_true(dtpi_job_apply(&s, &e));
        assert_int_equal(s.state, DTP_JOB_FAILED);
        assert_int_equal(s.exit_code, cases[i].exit_code);
    }
}

static void test_cancel_ends_the_gang_and_a_second_one_kills_it(void **state)
{
    dtpi_job_state s;

    (void)state;
    dtpi_job_state_init(&s, 2, 1, 5, true);
    dtpi_job_next(&s);
    assert_true(started(&s));
    assert_true(feed(&s, DTPI_JOURNAL_CANCEL, 0, -1, 0));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_END);
    assert_true(feed(&s, DTPI_JOURNAL_CANCEL, 0, -1, 0));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_KILL);
    assert_true(ended(&s, 0, 0));
    assert_true(ended(&s, 1, SIGNAL(SIGKILL)));
    assert_true(gone(&s));
    assert_int_equal(s.state, DTP_JOB_CANCELED);
    assert_int_equal(s.exit_code, 130);
    assert_int_equal(s.cause.kind, DTPI_CAUSE_NONE);
}

static void test_cancel_before_anything_was_started_ends_at_once(void **state)
{
    dtpi_job_state s;

    (void)state;
    dtpi_job_state_init(&s, 2, 2, 0, false);
    assert_true(feed(&s, DTPI_JOURNAL_CANCEL, 0, -1, 0));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_FINISH);
    assert_int_equal(s.state, DTP_JOB_CANCELED);
}

static void test_cancel_during_a_start_waits_for_it(void **state)
{
    dtpi_job_state s;

    (void)state;
    dtpi_job_state_init(&s, 2, 2, 0, false);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_START);
    assert_true(feed(&s, DTPI_JOURNAL_CANCEL, 0, -1, 0));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_WAIT);
    assert_true(started(&s));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_END);
    end_rest(&s, -1, SIGTERM);
    assert_int_equal(s.state, DTP_JOB_CANCELED);
}

static void test_survivors_get_time_to_reform_before_the_end(void **state)
{
    dtpi_job_state s;

    (void)state;
    dtpi_job_state_init(&s, 3, 1, 1, true);
    dtpi_job_next(&s);
    assert_true(started(&s));
    assert_true(ended(&s, 0, CODE(1)));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_LET_REFORM);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_WAIT);
    dtpi_job_reform_due(&s);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_END);
}

static bool reformed(dtpi_job_state *s, uint32_t n)
{
    const dtpi_journal_entry e = { .type = DTPI_JOURNAL_REFORMED, .attempt = s->attempt, .rank = -1,
                                   .n = n };

    return dtpi_job_apply(s, &e);
}

static void test_survivors_that_reformed_go_on_and_the_job_is_done(void **state)
{
    dtpi_job_state s;

    (void)state;
    dtpi_job_state_init(&s, 4, 2, 1, true);
    dtpi_job_next(&s);
    assert_true(started(&s));
    assert_true(ended(&s, 2, SIGNAL(9)));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_LET_REFORM);
    assert_true(reformed(&s, 3));
    assert_int_equal(s.state, DTP_JOB_RUNNING);
    dtpi_job_reform_due(&s);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_WAIT);
    /* Told before the end of the rank that is gone: nothing fails. */
    assert_true(reformed(&s, 2));
    assert_true(ended(&s, 1, SIGNAL(9)));
    assert_int_equal(s.state, DTP_JOB_RUNNING);
    assert_true(ended(&s, 0, 0));
    assert_true(ended(&s, 3, 0));
    assert_true(feed(&s, DTPI_JOURNAL_GONE, 0, -1, 0));
    assert_int_equal(s.state, DTP_JOB_DONE);
    assert_int_equal(s.exit_code, 0);
}

static void test_a_reform_below_the_least_or_none_in_time_ends_the_attempt(void **state)
{
    dtpi_job_state s;

    (void)state;
    dtpi_job_state_init(&s, 3, 3, 1, true);
    dtpi_job_next(&s);
    assert_true(started(&s));
    assert_true(ended(&s, 2, SIGNAL(9)));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_LET_REFORM);
    assert_false(reformed(&s, 2));
    dtpi_job_reform_due(&s);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_END);
    /* A member of the new generation that fails has its own time. */
    dtpi_job_state_init(&s, 3, 1, 1, true);
    dtpi_job_next(&s);
    assert_true(started(&s));
    assert_true(ended(&s, 2, SIGNAL(9)));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_LET_REFORM);
    assert_true(reformed(&s, 2));
    assert_true(ended(&s, 0, CODE(3)));
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_LET_REFORM);
    dtpi_job_reform_due(&s);
    assert_int_equal(dtpi_job_next(&s), DTPI_JOB_END);
    assert_true(ended(&s, 1, SIGNAL(15)));
    assert_true(feed(&s, DTPI_JOURNAL_GONE, 0, -1, 0));
    assert_int_equal(s.attempt, 1);
}

static void test_a_dead_shim_costs_an_attempt(void **state)
{
    dtpi_job_state s;

    (void)state;
    dtpi_job_state_init(&s, 2, 2, 1, false);
    dtpi_job_next(&s);
    assert_true(started(&s));
    assert_true(feed(&s, DTPI_JOURNAL_LOST, 0, -1, 0));
    assert_int_equal(s.state, DTP_JOB_STARTING);
    dtpi_job_next(&s);
    assert_true(started(&s));
    assert_true(feed(&s, DTPI_JOURNAL_LOST, 1, -1, 0));
    assert_int_equal(s.state, DTP_JOB_FAILED);
    assert_int_equal(s.exit_code, 125);
}

/* ---- random walks ---- */

enum { WALKS = 3000, STEPS = 60, MAX_LOG = 64 };

static dtpi_journal_entry random_entry(uint64_t *rng, const dtpi_job_state *s)
{
    static const int32_t statuses[] = { 0, 0, 0, CODE(1), CODE(2), SIGNAL(9), SIGNAL(15), SIGNAL(6) };
    /* END is what a supervisor writes last; left out so that walks go on. */
    const dtpi_journal_type type = (dtpi_journal_type)(1 + check_random(rng) % 10);

    return (dtpi_journal_entry){
        .type = type == DTPI_JOURNAL_END ? DTPI_JOURNAL_EXIT : type,
        .attempt = check_random(rng) % 8 ? s->attempt : (uint32_t)(check_random(rng) % 4),
        .n = check_random(rng) % 8 ? s->n : (uint32_t)(check_random(rng) % 9),
        .rank = (int32_t)(check_random(rng) % 10) - 1,
        .wstatus = statuses[check_random(rng) % 8],
        .status = -(int32_t)(check_random(rng) % 24),
        .code = (int32_t)(check_random(rng) % 30),
    };
}

static void check_rules(const dtpi_job_state *s, const dtpi_job_state *before)
{
    assert_true(s->state >= DTP_JOB_STARTING && s->state <= DTP_JOB_CANCELED);
    assert_true(s->attempt <= s->max_restarts);
    assert_true(s->attempt >= before->attempt && s->attempt <= before->attempt + 1);
    assert_true(s->n_ended <= s->n && s->n_ok <= s->n_ended && s->n_killed <= s->n_ended);
    assert_true(s->exit_code >= 0 && s->exit_code <= 255);
    if (s->state == DTP_JOB_DONE)
        assert_int_equal(s->n_ok, s->n);
    if (s->state == DTP_JOB_FAILED)
        assert_int_not_equal(s->exit_code, 0);
    if (before->canceled)
        assert_true(s->canceled && s->state != DTP_JOB_DONE && s->state != DTP_JOB_FAILED);
    if (dtpi_job_ended(before))
        assert_memory_equal(s, before, sizeof(*s));
}

static void test_random_walks_keep_the_rules_and_replay_to_the_same_state(void **state)
{
    uint64_t rng = check_seed();

    (void)state;
    for (int w = 0; w < WALKS; w++) {
        const uint32_t n = 1 + (uint32_t)(check_random(&rng) % 8);
        const uint32_t min = 1 + (uint32_t)(check_random(&rng) % n);
        const uint32_t restarts = (uint32_t)(check_random(&rng) % 4);
        dtpi_journal_entry log[MAX_LOG];
        size_t n_log = 0;
        dtpi_job_state s, again;
        dtpi_job_state_init(&s, n, min, restarts, check_random(&rng) % 2);
        again = s;
        for (int i = 0; i < STEPS; i++) {
            const dtpi_job_state before = s;
            const dtpi_journal_entry e = random_entry(&rng, &s);
            /* The shim speaks of an attempt only after it was asked to start one. */
            const bool speaks = e.type != DTPI_JOURNAL_ATTEMPT && e.type != DTPI_JOURNAL_FAILED;
            if (!speaks && !(s.asked & 1u << DTPI_JOB_START))
                continue;
            if (dtpi_job_apply(&s, &e))
                log[n_log++] = e;
            else
                assert_memory_equal(&s, &before, sizeof(s));
            check_rules(&s, &before);
            if (dtpi_job_ended(&s))
                break;
            const uint32_t asked = s.asked;
            const dtpi_job_action action = dtpi_job_next(&s);
            assert_true(action == DTPI_JOB_WAIT || !(asked & 1u << action));
        }
        for (size_t i = 0; i < n_log; i++)
            dtpi_job_apply(&again, &log[i]);
        dtpi_job_ask_again(&again);
        dtpi_job_next(&again);
        again.asked = s.asked;
        again.reform_over = s.reform_over;
        if (!(s.state == DTP_JOB_STARTING && s.canceled))
            assert_memory_equal(&s, &again, sizeof(s));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gang_whose_ranks_all_exit_0_is_done),
        cmocka_unit_test(test_the_first_failure_is_the_cause_and_decides_the_exit_code),
        cmocka_unit_test(test_a_restart_gives_up_the_lost_ranks_down_to_the_least),
        cmocka_unit_test(test_survivors_that_give_up_are_not_counted_as_lost),
        cmocka_unit_test(test_the_last_attempt_decides_the_exit_code),
        cmocka_unit_test(test_what_cannot_start_is_not_tried_again),
        cmocka_unit_test(test_cancel_ends_the_gang_and_a_second_one_kills_it),
        cmocka_unit_test(test_cancel_before_anything_was_started_ends_at_once),
        cmocka_unit_test(test_cancel_during_a_start_waits_for_it),
        cmocka_unit_test(test_survivors_get_time_to_reform_before_the_end),
        cmocka_unit_test(test_survivors_that_reformed_go_on_and_the_job_is_done),
        cmocka_unit_test(test_a_reform_below_the_least_or_none_in_time_ends_the_attempt),
        cmocka_unit_test(test_a_dead_shim_costs_an_attempt),
        cmocka_unit_test(test_random_walks_keep_the_rules_and_replay_to_the_same_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
