/* SPDX-License-Identifier: Apache-2.0 */
/* lookup.c - asks for the addresses of a host name without waiting. */
#include "net/lookup.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

/* From malloc: libc may write to it after the context and its allocator are gone. */
struct dtpi_lookup {
    struct gaicb cb;
    struct addrinfo hints;
    char name[256];
};

dtpi_lookup *dtpi_lookup_start(const char *name)
{
    dtpi_lookup *l = calloc(1, sizeof(*l));
    struct sigevent none = { .sigev_notify = SIGEV_NONE };

    if (!l || strlen(name) >= sizeof(l->name)) {
        free(l);
        return NULL;
    }
    strcpy(l->name, name);
    l->hints.ai_socktype = SOCK_STREAM;
    l->cb.ar_name = l->name;
    l->cb.ar_request = &l->hints;
    struct gaicb *list[1] = { &l->cb };
    if (getaddrinfo_a(GAI_NOWAIT, list, 1, &none) != 0) {
        free(l);
        return NULL;
    }
    return l;
}

dtp_status dtpi_lookup_poll(dtpi_lookup *l, int wait_ms, const struct addrinfo **list_out, dtp_error *err)
{
    const struct gaicb *const list[1] = { &l->cb };
    const struct timespec ts = { wait_ms / 1000, wait_ms % 1000 * 1000000L };

    if (wait_ms > 0 && gai_error(&l->cb) == EAI_INPROGRESS)
        gai_suspend(list, 1, &ts);
    const int rc = gai_error(&l->cb);
    if (rc == EAI_INPROGRESS)
        return DTP_PENDING;
    if (rc != 0 || !l->cb.ar_result)
        return dtpi_fail(err, DTP_ERR_NOT_FOUND, "cannot resolve host %s: %s", l->name,
                         rc ? gai_strerror(rc) : "no address");
    *list_out = l->cb.ar_result;
    return DTP_OK;
}

void dtpi_lookup_free(dtpi_lookup *l)
{
    if (!l || (gai_error(&l->cb) == EAI_INPROGRESS && gai_cancel(&l->cb) == EAI_NOTCANCELED))
        return;
    if (gai_error(&l->cb) == 0 && l->cb.ar_result)
        freeaddrinfo(l->cb.ar_result);
    free(l);
}
