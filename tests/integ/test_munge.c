/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_munge.c - a group whose launcher carries no secret gets it by MUNGE. Argument: the socket of a munged, or
 * "/stand-in" where libmunge.so.2 is ours (tests/integ/munge_standin.c).
 */
#include "unit/group/ranks.h"

#include "group/munge.h"

static const char *munged;
static const uint8_t secret[DTP_SECRET_BYTES] = "a secret of thirty-two bytes...";

static bool is_standin(void)
{
    return strcmp(munged, "/stand-in") == 0;
}

static void test_a_credential_gives_the_secret_once(void **state)
{
    char text[DTPI_MUNGE_TEXT];
    uint8_t out[DTP_SECRET_BYTES];

    (void)state;
    assert_ok(dtpi_munge_encode(munged, "a job", 3, secret, text, ERR));
    assert_null(memmem(text, strlen(text), "a secret", 8));
    assert_ok(dtpi_munge_decode(munged, "a job", 3, text, out, ERR));
    assert_memory_equal(out, secret, sizeof(out));
    assert_status(DTP_ERR_BUSY, dtpi_munge_decode(munged, "a job", 3, text, out, ERR));
}

static void test_a_credential_of_another_job_or_attempt_is_refused(void **state)
{
    char text[DTPI_MUNGE_TEXT], longest[64];
    uint8_t out[DTP_SECRET_BYTES];

    (void)state;
    assert_ok(dtpi_munge_encode(munged, "a job", 3, secret, text, ERR));
    assert_status(DTP_ERR_AUTH, dtpi_munge_decode(munged, "another", 3, text, out, ERR));
    assert_text("not of job another");
    assert_ok(dtpi_munge_encode(munged, "a job", 3, secret, text, ERR));
    assert_status(DTP_ERR_AUTH, dtpi_munge_decode(munged, "a job", 4, text, out, ERR));
    assert_ok(dtpi_munge_encode(munged, "a job", 3, secret, text, ERR));
    text[strlen(text) / 2] ^= 1;
    assert_true(dtpi_munge_decode(munged, "a job", 3, text, out, ERR) < 0 || is_standin());
    assert_status(DTP_ERR_AUTH, dtpi_munge_decode(munged, "a job", 3, "MUNGE:nonsense:", out, ERR));
    memset(longest, 'j', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_ok(dtpi_munge_encode(munged, longest, UINT32_MAX, secret, text, ERR));
    assert_ok(dtpi_munge_decode(munged, longest, UINT32_MAX, text, out, ERR));
}

static void test_a_credential_of_another_user_is_refused(void **state)
{
    char text[DTPI_MUNGE_TEXT] = "";
    uint8_t out[DTP_SECRET_BYTES];
    int p[2];

    (void)state;
    if (is_standin()) {
        setenv("MUNGE_STANDIN_UID", "4711", 1);
        assert_ok(dtpi_munge_encode(munged, "a job", 3, secret, text, ERR));
        unsetenv("MUNGE_STANDIN_UID");
        assert_status(DTP_ERR_AUTH, dtpi_munge_decode(munged, "a job", 3, text, out, ERR));
        assert_text("user 4711");
        return;
    }
    if (geteuid() != 0)
        skip();
    /* It restricts its credential to itself, and so munged does not even read it to us. */
    assert_int_equal(pipe(p), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        if (setuid(65534) < 0 || dtpi_munge_encode(munged, "a job", 3, secret, text, ERR) < 0 ||
            write(p[1], text, sizeof(text)) != sizeof(text))
            _exit(1);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(read(p[0], text, sizeof(text)), sizeof(text));
    assert_status(DTP_ERR_AUTH, dtpi_munge_decode(munged, "a job", 3, text, out, ERR));
    close(p[0]);
    close(p[1]);
}

/* ---- a group ---- */

struct world {
    const char *job;
    char root[40];
    const char *socket_of_node_1;
    dtp_status want;
};

/* Two nodes of two ranks, local rank 0 hosts the agent; nobody is told a secret. */
static void member(int rank, int n, void *user)
{
    const struct world *w = user;
    const int node = rank / 2;
    dtp_group_opts o = { .size = sizeof(o), .rank = rank, .world_size = n, .local_rank = rank % 2,
                         .local_size = 2, .job = w->job, .root = w->root, .node = node, .n_nodes = 2,
                         .timeout_ms = w->want < 0 ? 500 : 5000, .munge = node ? w->socket_of_node_1 : munged };
    dtp_group *g;
    dtp_ctx *ctx;

    RANK_OK(dtp_ctx_open(NULL, &ctx, ERR));
    const dtp_status st = dtp_group_join(ctx, &o, &g, ERR);
    if (w->want < 0) {
        RANK_CHECK(st < 0);
        RANK_CHECK(node == 0 || strstr(check_err.text, "MUNGE") || !printf("# %s\n", check_err.text));
    } else {
        if (st < 0)
            fprintf(stderr, "rank %d: %s\n", rank, check_err.text);
        RANK_CHECK(st == DTP_OK);
        for (int i = 0; i < 10; i++)
            RANK_OK(dtp_group_barrier(g, 0, ERR));
        dtp_group_close(g);
    }
    dtp_ctx_close(ctx);
}

static void test_ranks_without_a_secret_meet_by_munge(void **state)
{
    struct world w = { .job = ranks_job(), .socket_of_node_1 = munged };

    (void)state;
    snprintf(w.root, sizeof(w.root), "127.0.0.1:%u", ranks_free_port());
    ranks_run(4, member, &w);
}

static void test_a_node_without_munge_says_so(void **state)
{
    struct world w = { .job = ranks_job(), .socket_of_node_1 = "/nowhere/munge", .want = -1 };
    const int64_t start = ranks_now_ns();

    (void)state;
    snprintf(w.root, sizeof(w.root), "127.0.0.1:%u", ranks_free_port());
    ranks_run(4, member, &w);
    assert_true(ranks_now_ns() - start < 5 * 1000000000ll);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_credential_gives_the_secret_once),
        cmocka_unit_test(test_a_credential_of_another_job_or_attempt_is_refused),
        cmocka_unit_test(test_a_credential_of_another_user_is_refused),
        cmocka_unit_test(test_ranks_without_a_secret_meet_by_munge),
        cmocka_unit_test(test_a_node_without_munge_says_so),
    };

    munged = argc > 1 ? argv[1] : "/stand-in";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
