/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_link.c - bytes on a connected socket, cut into messages: never past a limit, always an end. */
#include "fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

#include "ctx/ctx.h"
#include "net/link.h"

struct seen {
    size_t n_frames, n_bytes;
    bool closed;
};

enum { MAX_FRAME = 300 };

static void frame(dtpi_link *link, void *user, const uint8_t *data, size_t bytes)
{
    struct seen *s = user;
    volatile uint8_t last;

    (void)link;
    FUZZ_CHECK(bytes > 0 && bytes <= MAX_FRAME);
    last = data[bytes - 1];
    (void)last;
    s->n_frames++;
    s->n_bytes += bytes;
}

static void closed(dtpi_link *link, void *user, dtp_status why)
{
    struct seen *s = user;

    (void)link;
    FUZZ_CHECK(!s->closed && why != DTP_OK);
    s->closed = true;
}

static const dtpi_link_ops ops = { .frame = frame, .closed = closed };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const dtpi_seal seal = { .encrypts = bytes && data[0] & 2 };
    struct seen s = { 0 };
    dtpi_link *link;
    dtp_ctx *ctx;
    int fd[2];

    if (bytes < 1 || bytes > 8192)
        return 0;
    FUZZ_CHECK(dtp_ctx_open(NULL, &ctx, NULL) == DTP_OK);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
    FUZZ_CHECK(dtpi_link_open(ctx, fd[0], MAX_FRAME, &ops, &s, &link, NULL) == DTP_OK);
    if (data[0] & 1)
        dtpi_link_seal(link, &seal, &seal);
    FUZZ_CHECK(write(fd[1], data + 1, bytes - 1) == (ssize_t)(bytes - 1));
    close(fd[1]);
    while (!s.closed)
        dtp_ctx_dispatch(ctx, 0, NULL);
    FUZZ_CHECK(s.n_bytes + 4 * s.n_frames <= bytes);
    dtpi_link_close(link);
    dtp_ctx_close(ctx);
    return 0;
}
