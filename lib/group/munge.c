/* SPDX-License-Identifier: Apache-2.0 */
/* munge.c - libmunge at run time. Source of names and numbers: munge.h and munge(3) of MUNGE 0.5. */
#include "group/munge.h"

#include <dlfcn.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/wire.h"

enum { OPT_CIPHER_TYPE = 0, OPT_TTL = 4, OPT_SOCKET = 8, OPT_UID_RESTRICTION = 9, CIPHER_AES128 = 4 };
enum { E_SUCCESS = 0, E_SNAFU = 1, E_SOCKET = 6, E_TIMEOUT = 7, E_REPLAYED = 17, TTL_S = 60, PAYLOAD_MAX = 160 };

struct lib {
    void *handle, *ctx;
    void *(*ctx_create)(void);
    void (*ctx_destroy)(void *ctx);
    int (*ctx_set)(void *ctx, int opt, ...);
    const char *(*ctx_strerror)(void *ctx);
    const char *(*text_of)(int e);
    int (*encode)(char **text_out, void *ctx, const void *data, int bytes);
    int (*decode)(const char *text, void *ctx, void **data_out, int *bytes_out, uid_t *uid_out,
                  gid_t *gid_out);
};

static void lib_close(struct lib *l)
{
    if (l->ctx)
        l->ctx_destroy(l->ctx);
    if (l->handle)
        dlclose(l->handle);
}

static dtp_status lib_open(const char *socket, struct lib *l, dtp_error *err)
{
    static const char *const names[] = { "munge_ctx_create", "munge_ctx_destroy", "munge_ctx_set",
                                         "munge_ctx_strerror", "munge_strerror", "munge_encode",
                                         "munge_decode" };
    void **const places[] = { (void **)&l->ctx_create, (void **)&l->ctx_destroy, (void **)&l->ctx_set,
                              (void **)&l->ctx_strerror, (void **)&l->text_of, (void **)&l->encode,
                              (void **)&l->decode };

    l->handle = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!l->handle)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "no DTP_SECRET, and MUNGE cannot hand one over: %s",
                         dlerror());
    for (size_t i = 0; i < DTPI_ARRAY_LEN(names); i++) {
        *places[i] = dlsym(l->handle, names[i]);
        if (!*places[i])
            return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "libmunge.so.2 has no %s", names[i]);
    }
    l->ctx = l->ctx_create();
    if (!l->ctx)
        return dtpi_fail_nomem(err, 0);
    if (socket[0] && l->ctx_set(l->ctx, OPT_SOCKET, socket) != E_SUCCESS)
        return dtpi_fail(err, DTP_ERR_INVAL, "MUNGE does not take %s as its socket", socket);
    return DTP_OK;
}

bool dtpi_munge_is_there(void)
{
    void *handle = dlopen("libmunge.so.2", RTLD_LAZY | RTLD_LOCAL);

    if (handle)
        dlclose(handle);
    return handle != NULL;
}

static dtp_status failed(const struct lib *l, int e, dtp_error *err)
{
    const char *text = l->ctx_strerror(l->ctx);

    return dtpi_fail(err,
                     e == E_REPLAYED                                        ? DTP_ERR_BUSY
                     : e == E_SOCKET || e == E_TIMEOUT || e == E_SNAFU ? DTP_ERR_IO
                                                                            : DTP_ERR_AUTH,
                     "MUNGE: %s", text ? text : l->text_of(e));
}

/* {"libdtp secret", job, attempt, the secret}. */
static size_t write_payload(const char *job, uint32_t attempt, const uint8_t *secret,
                            uint8_t out[PAYLOAD_MAX])
{
    const int n = snprintf((char *)out, PAYLOAD_MAX - DTP_SECRET_BYTES, "libdtp secret\n%s\n%u\n", job,
                           attempt);

    memcpy(out + n, secret, DTP_SECRET_BYTES);
    return (size_t)n + DTP_SECRET_BYTES;
}

static dtp_status encode(struct lib *l, const uint8_t *payload, size_t bytes, char *text_out,
                         dtp_error *err)
{
    char *text = NULL;

    /* The payload is a secret, whatever munged does by default. */
    if (l->ctx_set(l->ctx, OPT_CIPHER_TYPE, CIPHER_AES128) != E_SUCCESS ||
        l->ctx_set(l->ctx, OPT_TTL, TTL_S) != E_SUCCESS ||
        l->ctx_set(l->ctx, OPT_UID_RESTRICTION, geteuid()) != E_SUCCESS)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "this MUNGE cannot restrict a credential to a user");
    const int e = l->encode(&text, l->ctx, payload, (int)bytes);
    if (e != E_SUCCESS)
        return failed(l, e, err);
    const size_t n = strlen(text);
    if (n < DTPI_MUNGE_TEXT)
        memcpy(text_out, text, n + 1);
    free(text);
    return n < DTPI_MUNGE_TEXT ? DTP_OK
                               : dtpi_fail(err, DTP_ERR_LIMIT, "MUNGE: a credential of %zu bytes", n);
}

dtp_status dtpi_munge_encode(const char *socket, const char *job, uint32_t attempt,
                             const uint8_t *secret, char text_out[DTPI_MUNGE_TEXT], dtp_error *err)
{
    struct lib l = { 0 };
    uint8_t payload[PAYLOAD_MAX];

    dtp_status st = lib_open(socket, &l, err);
    if (st >= 0) {
        const size_t bytes = write_payload(job, attempt, secret, payload);
        st = encode(&l, payload, bytes, text_out, err);
        sodium_memzero(payload, sizeof(payload));
    }
    lib_close(&l);
    return st;
}

/* The secret is what comes last in both. */
static dtp_status check_payload(const char *job, uint32_t attempt, uid_t uid, const uint8_t *data,
                                int bytes, uint8_t *secret_out, dtp_error *err)
{
    static const uint8_t none[DTP_SECRET_BYTES];
    uint8_t want[PAYLOAD_MAX];
    const size_t n = write_payload(job, attempt, none, want), head = n - DTP_SECRET_BYTES;

    if (uid != geteuid())
        return dtpi_fail(err, DTP_ERR_AUTH, "MUNGE: a credential of user %u, not of %u", (unsigned)uid,
                         (unsigned)geteuid());
    if (bytes < 0 || (size_t)bytes != n || memcmp(data, want, head) != 0)
        return dtpi_fail(err, DTP_ERR_AUTH, "MUNGE: a credential that is not of job %s (attempt %u)", job,
                         attempt);
    memcpy(secret_out, data + head, DTP_SECRET_BYTES);
    return DTP_OK;
}

static dtp_status decode(struct lib *l, const char *job, uint32_t attempt, const char *text,
                         uint8_t *secret_out, dtp_error *err)
{
    void *data = NULL;
    int bytes = 0;
    uid_t uid = (uid_t)-1;
    gid_t gid;

    const int e = l->decode(text, l->ctx, &data, &bytes, &uid, &gid);
    const dtp_status st = e != E_SUCCESS
                              ? failed(l, e, err)
                              : check_payload(job, attempt, uid, data, bytes, secret_out, err);
    if (data && bytes > 0)
        sodium_memzero(data, (size_t)bytes);
    free(data);
    return st;
}

dtp_status dtpi_munge_decode(const char *socket, const char *job, uint32_t attempt, const char *text,
                             uint8_t *secret_out, dtp_error *err)
{
    struct lib l = { 0 };

    dtp_status st = lib_open(socket, &l, err);
    if (st >= 0)
        st = decode(&l, job, attempt, text, secret_out, err);
    lib_close(&l);
    return st;
}
