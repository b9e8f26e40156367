/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of end points, as a variable, a board or another agent says them: nothing is looked up, all is bounded. */
#include "fuzz.h"

#include "net/sock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[2048], one[DTPI_ADDR_TEXT], again[DTPI_ADDR_TEXT];
    dtpi_endpoint e, back;
    dtp_error err;

    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (dtpi_endpoint_parse(text, &e, &err) < 0)
        return 0;
    FUZZ_CHECK(e.n_hosts > 0 && e.n_hosts <= DTPI_ENDPOINT_HOSTS && e.n_addrs <= DTPI_ENDPOINT_ADDRS);
    dtpi_endpoint_relink(&e);
    const uint32_t n = dtpi_endpoint_n_attempts(&e);
    FUZZ_CHECK(n <= DTPI_ENDPOINT_ADDRS * DTPI_ENDPOINT_PORTS);
    for (uint32_t i = 0; i < n && i < 100; i++) {
        dtpi_sa sa;
        dtpi_endpoint_get(&e, i, &sa);
        FUZZ_CHECK(dtpi_sa_port(&sa) > 0);
        /* What is written is read back. */
        dtpi_sa_text(&sa, one, sizeof(one));
        FUZZ_CHECK(dtpi_endpoint_parse(one, &back, &err) == DTP_OK);
        if (back.n_addrs != 1)
            continue;       /* link-local, on every link */
        dtpi_endpoint_get(&back, 0, &sa);
        dtpi_sa_text(&sa, again, sizeof(again));
        FUZZ_CHECK(strcmp(one, again) == 0);
    }
    return 0;
}
