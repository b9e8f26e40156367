/* SPDX-License-Identifier: Apache-2.0 */
/*
 * munge_standin.c - a libmunge.so.2 for tests: credentials are hex in the clear, but what a caller may get
 * wrong is checked. MUNGE_STANDIN_UID is the user that encodes. Source: munge(3).
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct ctx {
    int cipher, ttl;
    long uid;
    char error[80];
};

#pragma GCC visibility push(default)
void *munge_ctx_create(void);
void munge_ctx_destroy(void *ctx);
int munge_ctx_set(void *ctx, int opt, ...);
const char *munge_ctx_strerror(void *ctx);
const char *munge_strerror(int e);
int munge_encode(char **text_out, void *ctx, const void *data, int bytes);
int munge_decode(const char *text, void *ctx, void **data_out, int *bytes_out, uid_t *uid_out,
                 gid_t *gid_out);
#pragma GCC visibility pop

void *munge_ctx_create(void)
{
    struct ctx *c = calloc(1, sizeof(*c));

    c->uid = -1;
    return c;
}

void munge_ctx_destroy(void *ctx)
{
    free(ctx);
}

int munge_ctx_set(void *ctx, int opt, ...)
{
    struct ctx *c = ctx;
    va_list args;
    int e = 0;

    va_start(args, opt);
    if (opt == 0)
        c->cipher = va_arg(args, int);
    else if (opt == 4)
        c->ttl = va_arg(args, int);
    else if (opt == 8)
        e = strcmp(va_arg(args, const char *), "/stand-in") ? 6 : 0;
    else if (opt == 9)
        c->uid = (long)va_arg(args, uid_t);
    else
        e = 2;
    va_end(args);
    return e;
}

const char *munge_ctx_strerror(void *ctx)
{
    struct ctx *c = ctx;

    return c->error[0] ? c->error : NULL;
}

const char *munge_strerror(int e)
{
    return e == 17 ? "Replayed credential" : e == 18 ? "Unauthorized credential" : "Invalid credential";
}

int munge_encode(char **text_out, void *ctx, const void *data, int bytes)
{
    const struct ctx *c = ctx;
    const char *as = getenv("MUNGE_STANDIN_UID");
    struct timespec now;

    if (c->cipher != 4 || c->ttl < 1 || c->uid != (long)geteuid() || bytes <= 0)
        return 2;
    char *text = malloc((size_t)bytes * 2 + 80);
    clock_gettime(CLOCK_MONOTONIC, &now);
    int at = sprintf(text, "STANDIN:%ld:%ld:%d.%ld:", c->uid, as ? atol(as) : (long)geteuid(), getpid(),
                     now.tv_nsec);
    for (int i = 0; i < bytes; i++)
        at += sprintf(text + at, "%02x", ((const uint8_t *)data)[i]);
    *text_out = text;
    return 0;
}

int munge_decode(const char *text, void *ctx, void **data_out, int *bytes_out, uid_t *uid_out,
                 gid_t *gid_out)
{
    long restricted, uid;
    int at = 0;

    (void)ctx;
    if (sscanf(text, "STANDIN:%ld:%ld:%*d.%*d:%n", &restricted, &uid, &at) != 2 || at == 0)
        return 8;
    if (restricted != (long)geteuid())
        return 18;
    /* The library may be unloaded in between. */
    const char *last = getenv("MUNGE_STANDIN_LAST");
    if (last && strcmp(text, last) == 0)
        return 17;
    setenv("MUNGE_STANDIN_LAST", text, 1);
    uint8_t *data = malloc(strlen(text) / 2 + 1);
    for (*bytes_out = 0; sscanf(text + at, "%2hhx", &data[*bytes_out]) == 1; at += 2)
        ++*bytes_out;
    *data_out = data;
    *uid_out = (uid_t)uid;
    *gid_out = 0;
    return 0;
}
