/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_seal.c - a sealed link whose peer's messages are changed on the way: what comes out is exactly what
 * was sent before the first change. Input: flags, then records {what happens, length, bytes}.
 */
#include "fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/wire.h"
#include "ctx/ctx.h"
#include "net/link.h"

enum { MAX_FRAME = 300 };

struct seen {
    dtpi_buf got;
    bool closed;
};

static void frame(dtpi_link *link, void *user, const uint8_t *data, size_t bytes)
{
    struct seen *s = user;

    (void)link;
    dtpi_buf_append(&s->got, data, bytes);
}

static void closed(dtpi_link *link, void *user, dtp_status why)
{
    struct seen *s = user;

    (void)link;
    (void)why;
    s->closed = true;
}

static const dtpi_link_ops ops = { .frame = frame, .closed = closed };

/* Adds a sealed message. */
static void seal(dtpi_buf *wire, const dtpi_seal *s, uint64_t count, const uint8_t *data, size_t bytes)
{
    uint8_t head[4], body[MAX_FRAME], tag[DTPI_SEAL_TAG_BYTES];

    for (size_t i = 0; i < 4; i++)
        head[i] = (uint8_t)(bytes >> (8 * i));
    memcpy(body, data, bytes);
    dtpi_seal_close(s, count, head, sizeof(head), data, bytes, body, tag);
    dtpi_buf_append(wire, head, sizeof(head));
    dtpi_buf_append(wire, body, bytes);
    dtpi_buf_append(wire, tag, sizeof(tag));
}

static void write_all(dtpi_rd *r, const dtpi_seal *s, dtpi_buf *wire, dtpi_buf *want)
{
    uint64_t count = 0;
    bool is_changed = false;

    while (r->left > 2) {
        const uint8_t what = dtpi_rd_u8(r) % 8, where = dtpi_rd_u8(r);
        const size_t bytes = DTPI_MIN((size_t)where + 1, r->left), at = wire->len;
        const uint8_t *data = dtpi_rd_bytes(r, bytes);
        if (!data)
            return;
        /* 1: one is left out or comes again, 2: of another direction, 3: a bit is turned. */
        seal(wire, s, what == 1 ? count + 1 + where % 3 : count, data, bytes);
        count++;
        if (what == 2)
            for (size_t i = 0; i < DTPI_SEAL_TAG_BYTES; i++)
                wire->data[wire->len - 1 - i] ^= (uint8_t)(i + 1);
        if (what == 3)
            wire->data[at + where % (wire->len - at)] ^= (uint8_t)(1 + where % 255);
        is_changed |= what >= 1 && what <= 3;
        if (!is_changed)
            dtpi_buf_append(want, data, bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    dtpi_seal seals[2] = { { .key = "there" }, { .key = "back" } };
    dtpi_rd r = dtpi_rd_init(data, bytes);
    struct seen s = { .got = dtpi_buf_init(&dtpi_malloc_allocator) };
    dtpi_buf wire = dtpi_buf_init(&dtpi_malloc_allocator), want = dtpi_buf_init(&dtpi_malloc_allocator);
    dtpi_link *link;
    dtp_ctx *ctx;
    int fd[2];

    if (bytes < 4 || bytes > 4096)
        return 0;
    seals[0].encrypts = seals[1].encrypts = dtpi_rd_u8(&r) & 1;
    write_all(&r, &seals[0], &wire, &want);
    FUZZ_CHECK(dtp_ctx_open(NULL, &ctx, NULL) == DTP_OK);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
    FUZZ_CHECK(dtpi_link_open(ctx, fd[0], MAX_FRAME, &ops, &s, &link, NULL) == DTP_OK);
    dtpi_link_seal(link, &seals[1], &seals[0]);
    FUZZ_CHECK(wire.len == 0 || write(fd[1], wire.data, wire.len) == (ssize_t)wire.len);
    close(fd[1]);
    while (!s.closed)
        dtp_ctx_dispatch(ctx, 0, NULL);
    FUZZ_CHECK(s.got.len == want.len && (want.len == 0 || memcmp(s.got.data, want.data, want.len) == 0));
    dtpi_link_close(link);
    dtp_ctx_close(ctx);
    dtpi_buf_free(&wire);
    dtpi_buf_free(&want);
    dtpi_buf_free(&s.got);
    return 0;
}
