/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a job's journal: read, written and read again they stay the same, and the state machine
 * that replays them keeps its rules. */
#include "fuzz.h"

#include "job/state.h"

static void replay(dtpi_job_state *s, const dtpi_journal_entry *e)
{
    dtpi_job_apply(s, e);
    if (s->n_ended > s->n || s->attempt > s->max_restarts || s->state < DTP_JOB_STARTING ||
        s->state > DTP_JOB_CANCELED)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data, *end = p + size;
    dtpi_job_state s;

    dtpi_job_state_init(&s, 4, 2, 3, false);
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const size_t len = (size_t)((nl ? nl : end) - p);
        dtpi_journal_entry e, again;
        if (dtpi_journal_parse(p, len, &e, NULL) == DTP_OK) {
            DTPI_AUTO_BUF dtpi_buf b = dtpi_buf_init(&dtpi_malloc_allocator);
            dtpi_journal_format(&b, &e);
            if (dtpi_journal_parse((const char *)b.data, b.len - 1, &again, NULL) != DTP_OK ||
                memcmp(&e, &again, sizeof(e)) != 0)
                abort();
            replay(&s, &e);
        }
        p += len + 1;
    }
    return 0;
}
