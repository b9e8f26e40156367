/* SPDX-License-Identifier: Apache-2.0 */
/* Job specs in YAML and in the record. */
#include "fuzz.h"

#include "job/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DTPI_AUTO_SPEC dtpi_spec yaml, record;

    dtpi_spec_init(&yaml, &dtpi_malloc_allocator);
    dtpi_spec_init(&record, &dtpi_malloc_allocator);
    if (dtpi_spec_parse(&yaml, (const char *)data, size, NULL) == DTP_OK)
        dtpi_spec_check(&yaml, NULL);
    if (dtpi_spec_decode(&record, data, size, NULL) == DTP_OK) {
        DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
        dtpi_spec_encode(&record, &b);
    }
    return 0;
}
