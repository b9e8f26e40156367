/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_text.c - numbers, hex, UTF-8, names and error texts from any bytes. */
#include "fuzz.h"

#include "base/text.h"

static void check_error_text(const char *text)
{
    dtp_error err;

    dtpi_fail(&err, DTP_ERR_FORMAT, "'%s'", text);
    FUZZ_CHECK(memchr(err.text, 0, sizeof(err.text)));
    FUZZ_CHECK(dtpi_utf8_ok(err.text, strlen(err.text)));
    for (const char *p = err.text; *p; p++)
        FUZZ_CHECK((unsigned char)*p >= 0x20);
}

static void check_ranks(const uint8_t *data, size_t bytes)
{
    int32_t ranks[256];
    char text[128];
    size_t n = 0;
    int32_t rank = -1;

    for (size_t i = 0; i < bytes && n < 256; i++)
        ranks[n++] = rank += 1 + data[i] / 64 * data[i];
    dtpi_format_ranks(ranks, n, text, 33 + bytes % 90);
    FUZZ_CHECK(strlen(text) < 33 + bytes % 90);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes), number[32], hex[65];
    uint8_t raw[32];
    uint64_t n_bytes;
    int64_t v;

    if (dtpi_parse_i64(text, -1000, INT64_MAX, &v)) {
        FUZZ_CHECK(v >= -1000);
        snprintf(number, sizeof(number), "%lld", (long long)v);
        FUZZ_CHECK(dtpi_parse_i64(number, v, v, &v));
    }
    dtpi_parse_bytes(text, &n_bytes);
    if (strlen(text) == 64 && dtpi_parse_hex(text, raw, 32)) {
        dtpi_format_hex(raw, 32, hex);
        FUZZ_CHECK(strcasecmp(hex, text) == 0);
    }
    dtpi_utf8_ok((const char *)data, bytes);
    if (dtpi_name_ok(text, 20))
        FUZZ_CHECK(strlen(text) <= 20 && dtpi_utf8_ok(text, strlen(text)));
    check_error_text(text);
    check_ranks(data, bytes);
    free(text);
    return 0;
}
