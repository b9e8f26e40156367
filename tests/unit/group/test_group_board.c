/* SPDX-License-Identifier: Apache-2.0 */
/* Boards against answers written beforehand, and a folder. */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "group/board.h"
#include "group/board_pmi.h"

/* A board whose other end has already said `answers`. */
struct talk {
    dtp_ctx *ctx;
    dtpi_board *board;
    dtp_error err;
    int fds[2];
    dtp_status opened;
};

static struct talk talk_start(const char *kind, const void *answers, size_t bytes)
{
    struct talk t = { 0 };

    assert_ok(dtp_ctx_open(NULL, &t.ctx, NULL));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, t.fds), 0);
    assert_int_equal(write(t.fds[1], answers, bytes), bytes);
    const dtpi_board_opts o = { .kind = kind, .fd = t.fds[0], .job = "job", .attempt = 7,
                                .rank = 1, .world_size = 4 };
    t.opened = dtpi_board_open(t.ctx, &o, dtp_ctx_now_ns(t.ctx) + 30 * DTPI_NS_PER_MS, &t.board, &t.err);
    return t;
}

static int64_t soon(const struct talk *t)
{
    return dtp_ctx_now_ns(t->ctx) + 30 * DTPI_NS_PER_MS;
}

/* What the board sent, and the end. */
static size_t talk_end(struct talk *t, char *sent_out, size_t room)
{
    dtpi_board_close(t->board);
    const ssize_t n = recv(t->fds[1], sent_out, room - 1, MSG_DONTWAIT);
    sent_out[n > 0 ? n : 0] = '\0';
    close(t->fds[0]);
    close(t->fds[1]);
    dtp_ctx_close(t->ctx);
    return n > 0 ? (size_t)n : 0;
}

static void test_pmi1_puts_waits_for_all_gets_and_finalizes(void **state)
{
    static const char answers[] = "cmd=my_kvsname kvsname=kvs_1_0_2_vm\n"
                                  "cmd=put_result rc=0 msg=success\n"
                                  "cmd=barrier_out\n"
                                  "cmd=get_result rc=0 msg=success value=10.0.0.1:5,[::1]:6-7\n"
                                  "cmd=finalize_ack\n";
    struct talk t = talk_start("pmi1", answers, strlen(answers));
    char key[DTPI_BOARD_KEY], value[DTPI_BOARD_VALUE], sent[4096], want[4096];

    (void)state;
    assert_ok(t.opened);
    assert_ok(dtpi_board_put(t.board, "root", "1.2.3.4:5", soon(&t), &t.err));
    assert_ok(dtpi_board_sync(t.board, soon(&t), &t.err));
    assert_ok(dtpi_board_get(t.board, "root", value, soon(&t), &t.err));
    assert_string_equal(value, "10.0.0.1:5,[::1]:6-7");
    talk_end(&t, sent, sizeof(sent));
    dtpi_board_key("job", 7, "root", key);
    snprintf(want, sizeof(want),
             "cmd=get_my_kvsname\ncmd=put kvsname=kvs_1_0_2_vm key=%s value=1.2.3.4:5\ncmd=barrier_in\n"
             "cmd=get kvsname=kvs_1_0_2_vm key=%s\ncmd=finalize\n", key, key);
    assert_string_equal(sent, want);
}

static void test_pmi2_frames_by_length_and_unescapes(void **state)
{
    static const char answers[] = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n"
                                  "26    cmd=kvs-put-response;rc=0;"
                                  "28    cmd=kvs-fence-response;rc=0;"
                                  "    53cmd=kvs-get-response;rc=0;found=TRUE;value=1.2.3.4:5;";
    struct talk t = talk_start("pmi2", answers, strlen(answers));
    char value[DTPI_BOARD_VALUE], sent[4096];

    (void)state;
    assert_ok(t.opened);
    assert_ok(dtpi_board_put(t.board, "root", "1.2.3.4:5", soon(&t), &t.err));
    assert_ok(dtpi_board_sync(t.board, soon(&t), &t.err));
    assert_ok(dtpi_board_get(t.board, "root", value, soon(&t), &t.err));
    assert_string_equal(value, "1.2.3.4:5");
    talk_end(&t, sent, sizeof(sent));
    assert_non_null(strstr(sent, "pmi_subversion=0\n    60cmd=kvs-put;key=dtp-"));
    assert_non_null(strstr(sent, "    14cmd=kvs-fence;"));
    assert_true(board_pmi2_field("a=1;b=x;;y;c=2;", "b", value, sizeof(value)));
    assert_string_equal(value, "x;y");
    assert_true(board_pmi2_field("a=1;b=x;;y;c=2;", "c", value, sizeof(value)));
    assert_false(board_pmi2_field("a=1;b=x;;y;c=2;", "y", value, sizeof(value)));
    assert_false(board_pmi2_field("a=1;b;c=2;", "c", value, sizeof(value)));
}

static size_t store_answer(uint8_t *out, uint8_t ready, const char *value)
{
    const uint64_t n = strlen(value);

    out[0] = ready;
    memcpy(out + 1, &n, sizeof(n));
    memcpy(out + 1 + sizeof(n), value, n);
    return 1 + sizeof(n) + n;
}

static void test_tcpstore_asks_for_a_key_only_when_it_is_there(void **state)
{
    uint8_t answers[64] = { 1, 1 };     /* not ready, twice */
    const size_t n = 2 + store_answer(answers + 2, 0, "[fe80::1%eth0]:9");
    struct talk t = talk_start("tcpstore", answers, n);
    char value[DTPI_BOARD_VALUE], sent[4096];

    (void)state;
    assert_ok(t.opened);
    assert_ok(dtpi_board_put(t.board, "root", "1.2.3.4:5", soon(&t), &t.err));
    assert_ok(dtpi_board_sync(t.board, soon(&t), &t.err));
    assert_ok(dtpi_board_get(t.board, "root", value, soon(&t), &t.err));
    assert_string_equal(value, "[fe80::1%eth0]:9");
    const size_t sent_bytes = talk_end(&t, sent, sizeof(sent));
    assert_memory_equal(sent, "\0\xCE\xF7\x85\x3C\x01", 6);
    assert_int_equal(sent[sent_bytes - strlen("dtp-0123456789abcdef-7-root") - 9], 3);
}

static void test_key_that_never_comes_ends_at_the_deadline_and_is_named(void **state)
{
    static const char none[] = "cmd=my_kvsname kvsname=k\n"
                               "cmd=get_result rc=-1 msg=key_not_found value=unknown\n"
                               "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
    struct talk t = talk_start("pmi1", none, strlen(none));
    char value[DTPI_BOARD_VALUE], sent[4096];

    (void)state;
    assert_ok(t.opened);
    assert_status(DTP_ERR_TIMEOUT, dtpi_board_get(t.board, "root", value, soon(&t), &t.err));
    assert_non_null(strstr(t.err.text, "PMI-1 did not answer in time"));
    talk_end(&t, sent, sizeof(sent));
}

static void test_answers_that_make_no_sense_are_refused(void **state)
{
    static const struct { const char *kind, *answer; dtp_status want; } rows[] = {
        { "pmi1", "cmd=get_result rc=0\n", DTP_ERR_PROTO },
        { "pmi1", "cmd=my_kvsname\n", DTP_ERR_PROTO },
        { "pmi1", "no end", DTP_ERR_TIMEOUT },
        { "pmi1", "cmd=my_kvsname kvsname=k\ncmd=get_result rc=0 value=\n", DTP_ERR_PROTO },
        { "pmi1", "cmd=my_kvsname kvsname=k\ncmd=get_result rc=0 value=a;rm\n", DTP_ERR_PROTO },
        { "pmi1", "cmd=my_kvsname kvsname=k\ncmd=barrier_out\n", DTP_ERR_PROTO },
        { "pmi2", "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=0\n", DTP_ERR_PROTO },
        { "pmi2", "cmd=response_to_init pmi_version=2\n999999cmd=x;", DTP_ERR_PROTO },
        { "pmi2", "cmd=response_to_init pmi_version=2\n-1    cmd=x;", DTP_ERR_PROTO },
        { "pmi2", "cmd=response_to_init pmi_version=2\n31    cmd=kvs-get-response;rc=1;abc=;", DTP_ERR_PROTO },
        { "tcpstore", "x", DTP_ERR_PROTO },
    };
    char value[DTPI_BOARD_VALUE], sent[4096];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct talk t = talk_start(rows[i].kind, rows[i].answer, strlen(rows[i].answer));
        const dtp_status st = t.opened < 0 ? t.opened
                                           : dtpi_board_get(t.board, "root", value, soon(&t), &t.err);
        talk_end(&t, sent, sizeof(sent));
        if (st != rows[i].want)
            fail_msg("row %zu: %s: %s", i, dtp_status_name(st), t.err.text);
    }
    uint8_t longer[16] = { 0, 0xff, 0xff, 0xff, 0xff, 0xff };
    struct talk t = talk_start("tcpstore", longer, sizeof(longer));
    assert_status(DTP_ERR_PROTO, dtpi_board_get(t.board, "root", value, soon(&t), &t.err));
    talk_end(&t, sent, sizeof(sent));
}

static void test_descriptor_that_is_no_socket_is_named(void **state)
{
    static const char *const kinds[] = { "pmi1", "pmi2", "tcpstore" };
    dtpi_board *board;
    dtp_error err;
    dtp_ctx *ctx;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, NULL));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const dtpi_board_opts o = { .kind = kinds[i], .fd = 1 << 20, .job = "j" };
        assert_status(DTP_ERR_INVAL, dtpi_board_open(ctx, &o, INT64_MAX, &board, &err));
        assert_non_null(strstr(err.text, "is no stream socket"));
    }
    dtp_ctx_close(ctx);
}

/* ---- a folder ---- */

static dtpi_board *folder(dtp_ctx *ctx, const char *path, uint32_t attempt)
{
    const dtpi_board_opts o = { .kind = "file", .place = path, .job = "a job; with=all", .attempt = attempt };
    dtpi_board *board = NULL;
    dtp_error err;

    assert_ok(dtpi_board_open(ctx, &o, INT64_MAX, &board, &err));
    return board;
}

static size_t n_files(const char *path)
{
    DIR *d = opendir(path);
    size_t n = 0;

    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void test_folder_gives_what_was_put_and_drops_earlier_attempts(void **state)
{
    char path[] = "/tmp/dtp-board-XXXXXX", value[DTPI_BOARD_VALUE], name[200], key[DTPI_BOARD_KEY];
    dtp_error err;
    dtp_ctx *ctx;

    (void)state;
    assert_non_null(mkdtemp(path));
    assert_ok(dtp_ctx_open(NULL, &ctx, NULL));
    dtpi_board *first = folder(ctx, path, 9), *second = folder(ctx, path, 10);
    assert_ok(dtpi_board_put(first, "root", "1.1.1.1:1", INT64_MAX, &err));
    assert_ok(dtpi_board_get(first, "root", value, INT64_MAX, &err));
    assert_string_equal(value, "1.1.1.1:1");
    assert_status(DTP_ERR_TIMEOUT, dtpi_board_get(second, "root", value, 0, &err));
    assert_ok(dtpi_board_put(second, "root", "2.2.2.2:2", INT64_MAX, &err));
    assert_ok(dtpi_board_put(second, "root", "3.3.3.3:3", INT64_MAX, &err));
    assert_ok(dtpi_board_get(second, "root", value, INT64_MAX, &err));
    assert_string_equal(value, "3.3.3.3:3");
    assert_int_equal(n_files(path), 1);
    dtpi_board_key("a job; with=all", 10, "root", key);
    snprintf(name, sizeof(name), "%s/%s", path, key);
    if (geteuid() == 0) {
        assert_int_equal(chown(name, 12345, 0), 0);
        assert_status(DTP_ERR_PERM, dtpi_board_get(second, "root", value, INT64_MAX, &err));
    }
    unlink(name);
    assert_int_equal(symlink("/etc/hostname", name), 0);
    assert_true(dtpi_board_get(second, "root", value, INT64_MAX, &err) < 0);
    unlink(name);
    dtpi_board_close(first);
    dtpi_board_close(second);
    dtp_ctx_close(ctx);
    rmdir(path);
}

static void test_board_that_is_not_there_is_named(void **state)
{
    dtpi_board_opts o = { .kind = "file", .place = "/nonexistent/board", .job = "j" };
    dtpi_board *board;
    dtp_error err;
    dtp_ctx *ctx;

    (void)state;
    assert_ok(dtp_ctx_open(NULL, &ctx, NULL));
    assert_status(DTP_ERR_NOT_FOUND, dtpi_board_open(ctx, &o, INT64_MAX, &board, &err));
    assert_non_null(strstr(err.text, "/nonexistent/board"));
    o.kind = "pigeon";
    assert_status(DTP_ERR_UNSUPPORTED, dtpi_board_open(ctx, &o, INT64_MAX, &board, &err));
    o.kind = "file";
    o.place = "/etc/passwd";
    assert_status(DTP_ERR_INVAL, dtpi_board_open(ctx, &o, INT64_MAX, &board, &err));
    dtp_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pmi1_puts_waits_for_all_gets_and_finalizes),
        cmocka_unit_test(test_pmi2_frames_by_length_and_unescapes),
        cmocka_unit_test(test_tcpstore_asks_for_a_key_only_when_it_is_there),
        cmocka_unit_test(test_key_that_never_comes_ends_at_the_deadline_and_is_named),
        cmocka_unit_test(test_answers_that_make_no_sense_are_refused),
        cmocka_unit_test(test_descriptor_that_is_no_socket_is_named),
        cmocka_unit_test(test_folder_gives_what_was_put_and_drops_earlier_attempts),
        cmocka_unit_test(test_board_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
