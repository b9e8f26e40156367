/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_cpuset.c - any text as a list of processors; what is accepted survives a round trip. */
#include "fuzz.h"

#include "base/cpuset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    dtpi_cpuset s, again;
    dtp_error err;

    if (dtpi_cpuset_parse(text, &s, &err) == DTP_OK) {
        char *list = dtpi_cpuset_format(&s, &dtpi_malloc_allocator);
        FUZZ_CHECK(list);
        FUZZ_CHECK(dtpi_cpuset_parse(list, &again, &err) == DTP_OK);
        FUZZ_CHECK(memcmp(&s, &again, sizeof(s)) == 0);
        FUZZ_CHECK((dtpi_cpuset_next(&s, 0) < 0) == (dtpi_cpuset_count(&s) == 0));
        dtpi_text_free(&dtpi_malloc_allocator, list);
    } else {
        FUZZ_CHECK(err.status == DTP_ERR_FORMAT && err.text[0]);
    }
    free(text);
    return 0;
}
