/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_hostlist.c - any text as a host list: bounded names, and a plain list expands to itself. */
#include "fuzz.h"

#include "base/hostlist.h"

typedef struct seen {
    uint32_t n;
    char last[256];
} seen;

static dtp_status each(void *user, const char *name)
{
    seen *s = user;

    FUZZ_CHECK(name[0] && strlen(name) < sizeof(s->last));
    strcpy(s->last, name);
    /* Large products are bounded by the library; here time matters. */
    return ++s->n == 2000 ? DTP_ERR_LIMIT : DTP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    seen s = { 0 }, again = { 0 };
    dtp_error err;

    if (dtpi_hostlist_expand(text, each, &s, &err) == DTP_OK) {
        FUZZ_CHECK(s.n > 0);
        FUZZ_CHECK(dtpi_hostlist_expand(s.last, each, &again, &err) == DTP_OK);
        FUZZ_CHECK(again.n == 1 && strcmp(again.last, s.last) == 0);
    }
    free(text);
    return 0;
}
