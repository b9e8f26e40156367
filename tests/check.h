/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - cmocka with what every test needs: expected statuses that print the error text. */
#ifndef DTP_TESTS_CHECK_H
#define DTP_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtp/base.h>

/* The error that expressions in assert_ok and assert_status fill; one per test file. */
static dtp_error check_err __attribute__((unused));
#define ERR (&check_err)

#define assert_status(want, expr)                                                                   \
    do {                                                                                            \
        memset(&check_err, 0, sizeof(check_err));                                                   \
        const dtp_status got_ = (expr);                                                             \
        if (got_ != (want))                                                                         \
            fail_msg("%s: expected %s, got %s: %s", #expr, dtp_status_name(want),                   \
                     dtp_status_name(got_), check_err.text);                                        \
    } while (0)

#define assert_ok(expr) assert_status(DTP_OK, expr)

/* The last error's text holds `part`. */
#define assert_text(part)                                                                           \
    do {                                                                                            \
        if (!strstr(check_err.text, (part)))                                                        \
            fail_msg("error text '%s' does not say '%s'", check_err.text, (part));                  \
    } while (0)

/* Seed of a randomised test: DTP_TEST_SEED or fresh; printed, so that a failure replays. */
static inline uint64_t check_seed(void)
{
    const char *text = getenv("DTP_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 0;

    if (!text) {
        FILE *f = fopen("/dev/urandom", "r");
        if (f) {
            if (fread(&seed, sizeof(seed), 1, f) != 1)
                seed = 1;
            fclose(f);
        }
    }
    print_message("seed: DTP_TEST_SEED=0x%llx\n", (unsigned long long)seed);
    return seed;
}

/* A small generator for tests: splitmix64. */
static inline uint64_t check_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Ends a test as skipped where ThreadSanitizer is at work (gcc's, clang's), with the reason. */
#if defined(__SANITIZE_THREAD__)
#define CHECK_IS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHECK_IS_TSAN 1
#endif
#endif
#ifdef CHECK_IS_TSAN
#define CHECK_SKIP_UNDER_TSAN(why)                                                                  \
    do {                                                                                            \
        print_message("skipped under ThreadSanitizer: %s\n", why);                                  \
        skip();                                                                                     \
    } while (0)
#else
#define CHECK_SKIP_UNDER_TSAN(why) ((void)0)
#endif

/* Folder of driver modules in the build tree. */
static inline const char *check_module_dir(void)
{
    static char dir[1024];
    const char *build = getenv("DTP_TEST_BUILD");

    snprintf(dir, sizeof(dir), "%s/lib/modules", build ? build : ".");
    return dir;
}

static inline int check_is_long(void)
{
    return getenv("DTP_TEST_LONG") != NULL;
}

#endif /* DTP_TESTS_CHECK_H */
