/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - finished lines to the caller's function; silent without one. */
#include "base/text.h"

#include <errno.h>
#include <stdio.h>

void dtpi_logf(const dtpi_log *log, dtp_log_level level, const char *topic, const char *fmt, ...)
{
    const int saved = errno;
    char text[1024];
    va_list ap;

    if (!log->fn || level > log->level)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    dtpi_text_flatten(text);
    log->fn(log->user, level, topic, text);
    errno = saved;
}
