/* SPDX-License-Identifier: Apache-2.0 */
/* Job specs in YAML and in the record: what a supervisor would write, another one reads. */
#include "fuzz.h"

#include "job/spec.h"

static void check_record(const dtpi_spec *s)
{
    DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
    DTPI_AUTO_BUF dtpi_buf c = dtpi_buf_init(&dtpi_malloc_allocator);
    DTPI_AUTO_SPEC dtpi_spec again;

    dtpi_spec_init(&again, &dtpi_malloc_allocator);
    dtpi_spec_encode(s, &b);
    FUZZ_CHECK(dtpi_spec_decode(&again, b.data, b.len, NULL) == DTP_OK);
    dtpi_spec_encode(&again, &c);
    FUZZ_CHECK(b.len == c.len && memcmp(b.data, c.data, b.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DTPI_AUTO_SPEC dtpi_spec yaml, record;

    dtpi_spec_init(&yaml, &dtpi_malloc_allocator);
    dtpi_spec_init(&record, &dtpi_malloc_allocator);
    if (dtpi_spec_parse(&yaml, (const char *)data, size, NULL) == DTP_OK &&
        dtpi_spec_check(&yaml, NULL) == DTP_OK)
        check_record(&yaml);
    if (dtpi_spec_decode(&record, data, size, NULL) == DTP_OK)
        check_record(&record);
    return 0;
}
