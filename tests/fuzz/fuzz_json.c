/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_json.c - the tokenizer beside jansson: both take a text or both refuse it. Known differences:
 * jansson refuses numbers too large for its types, nests deeper, and stops at a NUL between tokens.
 */
#include "fuzz.h"

#include <jansson.h>

#include "ckpt/base64.h"
#include "ckpt/json.h"

/* Strings are decoded and written again: the same text must come back. */
static void check_string(const dtpi_json *j)
{
    DTPI_AUTO_BUF dtpi_buf scratch = dtpi_buf_init(&dtpi_malloc_allocator);
    DTPI_AUTO_BUF dtpi_buf again = dtpi_buf_init(&dtpi_malloc_allocator);
    DTPI_AUTO_BUF dtpi_buf back = dtpi_buf_init(&dtpi_malloc_allocator);
    size_t n = 0, m = 0;
    const char *plain = dtpi_json_plain(j, &scratch, &n);

    dtpi_json_put(&again, plain, n);
    dtpi_json k = dtpi_json_init((const char *)again.data, again.len);
    FUZZ_CHECK(dtpi_json_next(&k) == DTPI_JSON_STRING);
    const char *twice = dtpi_json_plain(&k, &back, &m);
    FUZZ_CHECK(m == n && memcmp(plain, twice, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    DTPI_AUTO_BUF dtpi_buf raw = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_json j = dtpi_json_init((const char *)data, bytes);
    dtpi_json_token t;
    json_error_t error;
    size_t n;

    while ((t = dtpi_json_next(&j)) > DTPI_JSON_END)
        if (t == DTPI_JSON_STRING || t == DTPI_JSON_KEY)
            check_string(&j);
    json_t *tree = json_loadb((const char *)data, bytes, JSON_DECODE_ANY, &error);
    const bool too_deep = j.problem && strstr(j.problem, "deep");
    const bool too_big = !tree && (strstr(error.text, "too big") || strstr(error.text, "real number overflow"));
    const bool has_nul = bytes && memchr(data, 0, bytes);
    if ((t == DTPI_JSON_END) != (tree != NULL) && !too_deep && !too_big && !has_nul) {
        fprintf(stderr, "ours: %s; jansson: %s\n", j.problem ? j.problem : "taken", tree ? "taken" : error.text);
        FUZZ_CHECK(!"both agree");
    }
    json_decref(tree);
    dtpi_base64_get(&raw, (const char *)data, bytes, &n);
    return 0;
}
