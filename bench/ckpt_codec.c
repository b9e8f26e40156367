/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_codec.c - what the codecs of checkpoints gain and cost: one chunk after the other on one core,
 * each stored byte with its checksum, as a save and a load do it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/sum.h"
#include "ckpt.h"
#include "codec/codec.h"

enum { CHUNK = 1 << 20, MAX_CHUNKS = 1 << 14 };

/* Of this thread: what else runs on the machine does not count. */
static int64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

typedef struct run {
    const ckpt_options *o;
    const ckpt_type *type;
    dtpi_codec codec;
    uint8_t *in, *stored, *out;
    size_t sizes[MAX_CHUNKS];
    uint64_t sums[MAX_CHUNKS];
    size_t stored_bytes;
    dtp_error err;
} run_state;

static dtp_status encode(run_state *r)
{
    r->stored_bytes = 0;
    for (size_t at = 0; at < r->o->bytes; at += CHUNK) {
        const size_t i = at / CHUNK;
        const void *stored;
        const dtp_status st = dtpi_codec_store(&r->codec, r->in + at, CHUNK, r->type->dtype, r->stored + at,
                                               &stored, &r->sizes[i], &r->err);
        if (st < 0)
            return st;
        r->sums[i] = dtpi_sum64(stored, r->sizes[i]);
        if (stored != r->stored + at)
            memcpy(r->stored + at, stored, r->sizes[i]);
        r->stored_bytes += r->sizes[i];
    }
    return DTP_OK;
}

static dtp_status decode(run_state *r)
{
    for (size_t at = 0; at < r->o->bytes; at += CHUNK) {
        const size_t i = at / CHUNK;
        if (dtpi_sum64(r->stored + at, r->sizes[i]) != r->sums[i])
            return dtpi_fail(&r->err, DTP_ERR_CORRUPT, "chunk %zu: checksum mismatch", i);
        const dtp_status st =
            dtpi_codec_restore(&r->codec, r->stored + at, r->sizes[i], r->out + at, CHUNK, &r->err);
        if (st < 0)
            return st;
    }
    return DTP_OK;
}

typedef struct result {
    double encode_s, decode_s, copy_s;
} result;

static dtp_status measure(run_state *r, result *out)
{
    double in[CKPT_MAX_ROUNDS], back[CKPT_MAX_ROUNDS], copy[CKPT_MAX_ROUNDS];
    dtp_status st = DTP_OK;

    for (int i = -1; i < r->o->rounds && st >= 0; i++) {
        const int64_t t0 = cpu_ns();
        st = encode(r);
        const int64_t t1 = cpu_ns();
        if (st >= 0)
            st = decode(r);
        const int64_t t2 = cpu_ns();
        if (st >= 0 && memcmp(r->in, r->out, r->o->bytes) != 0)
            st = dtpi_fail(&r->err, DTP_ERR_CORRUPT, "%s: other bytes come back", r->o->codec);
        const int64_t t3 = cpu_ns();
        memcpy(r->out, r->in, r->o->bytes);
        if (i < 0)
            continue;           /* touches the memory */
        in[i] = (double)(t1 - t0) * 1e-9;
        back[i] = (double)(t2 - t1) * 1e-9;
        copy[i] = (double)(cpu_ns() - t3) * 1e-9;
    }
    if (st >= 0)
        *out = (result){ bench_summarise(in, r->o->rounds).median,
                         bench_summarise(back, r->o->rounds).median,
                         bench_summarise(copy, r->o->rounds).median };
    return st;
}

static void print_result(const run_state *r, const result *m)
{
    const ckpt_options *o = r->o;
    const double gb = (double)o->bytes * 1e-9, ratio = (double)o->bytes / (double)r->stored_bytes;

    if (o->json) {
        printf("{\"bench\":\"ckpt\",\"op\":\"codec\",\"codec\":\"%s\",\"type\":\"%s\",\"ranks\":1,\"bytes\":%llu,"
               "\"ratio\":%.5f,\"gb_per_s\":%.4f,\"encode_gb_per_s\":%.4f,\"decode_gb_per_s\":%.4f,"
               "\"memcpy_gb_per_s\":%.4f,\"version\":\"%s\"}\n",
               o->codec, r->type->name, (unsigned long long)o->bytes, ratio, gb / m->encode_s,
               gb / m->encode_s, gb / m->decode_s, gb / m->copy_s, dtp_version());
        return;
    }
    printf("%8s %8s %12llu %8.4f %10.2f %10.2f %10.2f\n", o->codec, r->type->name,
           (unsigned long long)o->bytes, ratio, gb / m->encode_s, gb / m->decode_s, gb / m->copy_s);
}

static dtp_status measure_type(run_state *r)
{
    result m;

    r->in = aligned_alloc(CHUNK, r->o->bytes);
    r->stored = aligned_alloc(CHUNK, r->o->bytes);
    r->out = aligned_alloc(CHUNK, r->o->bytes);
    dtp_status st = r->in && r->stored && r->out ? DTP_OK : dtpi_fail_nomem(&r->err, r->o->bytes);
    if (st >= 0)
        st = dtpi_codec_open(&dtpi_malloc_allocator, r->o->codec, &r->codec, &r->err);
    if (st >= 0) {
        ckpt_fill(r->type, r->in, r->o->bytes, r->o->seed);
        st = measure(r, &m);
        dtpi_codec_close(&r->codec);
    }
    if (st >= 0)
        print_result(r, &m);
    free(r->in);
    free(r->stored);
    free(r->out);
    return st;
}

int ckpt_run_codec(const ckpt_options *o)
{
    run_state *r = calloc(1, sizeof(*r));
    dtp_status st = r ? DTP_OK : DTP_ERR_NOMEM;

    if (!r)
        return BENCH_FAILED;
    if (!o->json)
        printf("#  codec     type         size    ratio     encode     decode     memcpy\n"
               "#                        bytes              (GB/s)     (GB/s)     (GB/s)\n");
    for (size_t i = 0; ckpt_type_at(i) && st >= 0; i++) {
        if (o->type && o->type != ckpt_type_at(i))
            continue;
        r->o = o;
        r->type = ckpt_type_at(i);
        st = measure_type(r);
    }
    const int rc = st < 0 ? bench_fail(&bench_ckpt, &r->err) : BENCH_OK;
    free(r);
    return rc;
}
