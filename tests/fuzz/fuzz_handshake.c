/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_handshake.c - bytes of a stranger at an agent's door, and of one who plays an agent to a rank. */
#include "fuzz.h"

#include "group/handshake.h"

static const uint8_t secret[DTP_SECRET_BYTES] = "the secret no fuzzer guesses";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    dtp_error err;
    dtpi_hs hs;

    if (bytes == 0 || bytes > DTPI_HS_MAX_FRAME)
        return 0;
    dtpi_hs_opts o = { .role = data[0] & 1 ? DTPI_HS_RANK : DTPI_HS_AGENT, .job = "default",
                       .generation = 1, .world = 4, .host = "h", .secret = data[0] & 2 ? NULL : secret,
                       .encrypts = data[0] & 4 };
    dtpi_hs_init(&hs, &o);
    data++;
    bytes--;
    /* As a server: a hello may be well-formed, but nothing proves the secret, nor who was refused. */
    const size_t half = bytes / 2;
    const dtp_status st = dtpi_hs_serve(&hs, data, bytes, &b, &err);
    if (st < 0) {
        hs.disagrees |= o.encrypts;
        dtpi_hs_refuse(&hs, &b, &err);
    }
    if (st == DTP_PENDING || hs.disagrees) {
        FUZZ_CHECK(dtpi_hs_serve(&hs, data + half, bytes - half, &b, &err) < 0);
        FUZZ_CHECK(dtpi_hs_serve(&hs, data, bytes, &b, &err) < 0);
    }
    FUZZ_CHECK(!hs.is_heard);
    /* As a client. */
    o.secret = secret;
    dtpi_hs_init(&hs, &o);
    dtpi_hs_hello(&hs, &b);
    FUZZ_CHECK(dtpi_hs_answer(&hs, data, bytes, &b, &err) < 0 && !hs.is_proven);
    FUZZ_CHECK(memchr(err.text, 0, sizeof(err.text)));
    dtpi_buf_free(&b);
    return 0;
}
