/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/text.h"

static void test_text_status_and_errno_are_kept(void **state)
{
    dtp_error err;

    errno = ENOENT;
    assert_int_equal(dtpi_fail(&err, DTP_ERR_IO, "cannot open %s: %m", "/x"), DTP_ERR_IO);
    assert_string_equal(err.text, "cannot open /x: No such file or directory");
    assert_int_equal(err.sys_errno, ENOENT);
    assert_int_equal(err.rank, -1);
    assert_int_equal(errno, ENOENT);
    dtpi_fail(&err, DTP_ERR_FORMAT, "malformed");
    assert_int_equal(err.sys_errno, 0);
}

static void test_null_error_is_fine(void **state)
{
    assert_int_equal(dtpi_fail(NULL, DTP_ERR_RANGE, "%d", 1), DTP_ERR_RANGE);
    assert_int_equal(dtpi_fail_rank(NULL, DTP_ERR_PEER, 3, "%d", 1), DTP_ERR_PEER);
    assert_int_equal(dtpi_noun(NULL, "topo", DTP_ERR_IO), DTP_ERR_IO);
}

static void test_rank_is_named(void **state)
{
    dtp_error err;

    dtpi_fail_rank(&err, DTP_ERR_PEER, 17, "rank %d died", 17);
    assert_int_equal(err.rank, 17);
}

static void test_long_text_is_cut_between_words(void **state)
{
    char words[600] = "";
    dtp_error err;

    for (int i = 0; i < 60; i++)
        sprintf(words + strlen(words), "%d, ", 1000000 + i);
    dtpi_fail(&err, DTP_ERR_PEER, "ranks %s never joined", words);
    assert_true(strlen(err.text) < sizeof(err.text));
    assert_string_equal(err.text + strlen(err.text) - 4, " ...");
    /* The number in front of the dots is whole. */
    const char *last = err.text + strlen(err.text) - strlen("1000000 ...");
    assert_int_equal(last[-1], ' ');
    assert_int_equal(strtol(last, NULL, 10) / 1000000, 1);
}

static void test_long_word_is_kept_as_far_as_it_fits(void **state)
{
    char word[600];
    dtp_error err;

    memset(word, 'x', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    dtpi_fail(&err, DTP_ERR_IO, "%s", word);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
}

static void test_long_path_gives_way_to_the_cause(void **state)
{
    static const char end[] = "/shard-00002-of-00004.3f9a0c5512e84b77.safetensors.tmp: "
                              "No space left on device";
    char path[4096] = "/mnt/lustre/projects";
    dtp_error err;

    for (int i = 0; strlen(path) < sizeof(path) - 40; i++) {
        sprintf(path + strlen(path), "/folder-%d", i);
        dtpi_fail(&err, DTP_ERR_NOSPC, "rank 2: cannot create %s%s", path, end);
        assert_true(strlen(err.text) < sizeof(err.text));
        assert_int_equal(strncmp(err.text, "rank 2: cannot create /mnt/lustre/proj", 38), 0);
        assert_string_equal(err.text + strlen(err.text) - strlen(end), end);
    }
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
}

static void test_text_that_just_fits_is_not_cut(void **state)
{
    char word[DTP_ERROR_TEXT];
    dtp_error err;

    memset(word, 'x', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    dtpi_fail(&err, DTP_ERR_IO, "%s", word);
    assert_string_equal(err.text, word);
}

static void test_text_may_hold_the_text_it_replaces(void **state)
{
    dtp_error err;

    dtpi_fail(&err, DTP_ERR_CORRUPT, "checksum mismatch");
    dtpi_fail(&err, DTP_ERR_CORRUPT, "shard %d: %s", 3, err.text);
    assert_string_equal(err.text, "shard 3: checksum mismatch");
}

static void test_text_is_one_line_of_valid_utf8(void **state)
{
    char word[400];
    dtp_error err;

    dtpi_fail(&err, DTP_ERR_FORMAT, "%s", "a\nb\tc\x7f \xff\xc3 gr\xc3\xbcn");
    assert_string_equal(err.text, "a b c  ?? gr\xc3\xbcn");
    /* A cut inside a character leaves no half of it. */
    for (size_t i = 0; i + 1 < sizeof(word); i += 2)
        memcpy(word + i, "\xc3\xbc", 2);
    word[sizeof(word) - 1] = word[sizeof(word) - 2] = '\0';
    for (int shift = 0; shift < 2; shift++) {
        dtpi_fail(&err, DTP_ERR_FORMAT, "%.*s%s", shift, "x", word);
        assert_true(dtpi_utf8_ok(err.text, strlen(err.text)));
    }
}

static void test_noun_is_set_once_and_only_on_failure(void **state)
{
    dtp_error err;

    dtpi_fail(&err, DTP_ERR_IO, "x");
    assert_int_equal(dtpi_noun(&err, "ckpt", DTP_ERR_IO), DTP_ERR_IO);
    dtpi_noun(&err, "group", DTP_ERR_IO);
    assert_string_equal(err.noun, "ckpt");
    memset(&err, 0, sizeof(err));
    dtpi_noun(&err, "topo", DTP_OK);
    assert_string_equal(err.noun, "");
    dtpi_noun(&err, "a-very-long-noun", DTP_ERR_IO);
    assert_int_equal(strlen(err.noun), DTP_ERROR_NOUN - 1);
}

static void test_errnos_have_their_status(void **state)
{
    assert_int_equal(dtpi_status_of_errno(ENOSPC), DTP_ERR_NOSPC);
    assert_int_equal(dtpi_status_of_errno(EACCES), DTP_ERR_PERM);
    assert_int_equal(dtpi_status_of_errno(ENOENT), DTP_ERR_NOT_FOUND);
    assert_int_equal(dtpi_status_of_errno(EMFILE), DTP_ERR_LIMIT);
    assert_int_equal(dtpi_status_of_errno(ENOMEM), DTP_ERR_NOMEM);
    assert_int_equal(dtpi_status_of_errno(EIO), DTP_ERR_IO);
}

static void test_close_keeps_errno(void **state)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int kept = fd;

    errno = EPIPE;
    dtpi_close_fd(&fd);
    assert_int_equal(fd, -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(fcntl(kept, F_GETFD), -1);
    dtpi_close_fd(&fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_status_and_errno_are_kept),
        cmocka_unit_test(test_null_error_is_fine),
        cmocka_unit_test(test_rank_is_named),
        cmocka_unit_test(test_long_text_is_cut_between_words),
        cmocka_unit_test(test_long_word_is_kept_as_far_as_it_fits),
        cmocka_unit_test(test_long_path_gives_way_to_the_cause),
        cmocka_unit_test(test_text_that_just_fits_is_not_cut),
        cmocka_unit_test(test_text_may_hold_the_text_it_replaces),
        cmocka_unit_test(test_text_is_one_line_of_valid_utf8),
        cmocka_unit_test(test_noun_is_set_once_and_only_on_failure),
        cmocka_unit_test(test_errnos_have_their_status),
        cmocka_unit_test(test_close_keeps_errno),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
