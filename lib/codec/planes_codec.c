/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planes_codec.c - byte planes: of numbers the exponents repeat and the mantissas do not, so each byte of
 * a number goes to a plane of its own, and each plane is kept as it is, as one value, or as Huffman codes.
 *
 * A coded plane is a zstd frame (RFC 8878) of literals alone: zstd's match finder costs time and loses
 * bytes on such data. The level and the literal mode below make libzstd write just that; where a libzstd
 * does not know the mode, level 1 takes its place, and any zstd reads either. docs/formats/ckpt.md has
 * the layout.
 */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include <math.h>

#include "codec/codec.h"
#include "codec/huf.h"
#include "codec/planes.h"
#include "codec/sparse.h"

extern const struct dtpi_codec_ops dtpi_codec_planes;

enum {
    BLOCK_UNITS = 128 << 10,    /* one zstd block */
    LITERALS_ONLY = -100000,    /* level: matches are not looked for */
    PLAIN_LEVEL = 1,
    SAMPLE_RUNS = 16,
    SAMPLE_RUN = 256,           /* units */
    SAMPLE = SAMPLE_RUNS * SAMPLE_RUN,
    TAG_RAW = 0,
    TAG_SAME = 1,
    TAG_CODED = 2,
    HEAD_BYTES = 4,             /* tag, and 24 bits: bytes of the plane, or its one value */
    KIND_MASK = 7,
    KIND_SPARSE = 8,            /* zero units left out: bits, then the others */
    SPARSE_HEAD = 1 + 4,        /* kind, stored bytes of the bits */
    SPARSE_DEPTH = 3,           /* the bits may be sparse themselves, and theirs */
    SPARSE_MIN = 512            /* units; fewer are not worth it */
};

/* Bits a byte from which coding costs more time than it saves room. */
#define CODED_BELOW 7.85

/* Memory that grows when it is asked for. */
typedef struct grown {
    uint8_t *bytes;
    size_t size;
} grown;

typedef struct planes_state {
    ZSTD_CCtx *in;
    ZSTD_DCtx *out;
    const dtpi_planes *fn;
    const dtpi_huf_kernels *huf;
    dtpi_huf_table tables[DTPI_PLANES_MAX];
    dtpi_huf_codes codes[DTPI_PLANES_MAX];      /* of the chunk at work */
    uint8_t *scratch;           /* DTPI_PLANES_MAX planes of BLOCK_UNITS */
    grown bits[SPARSE_DEPTH], values[SPARSE_DEPTH];
    bool no_memory;             /* in the middle of encoding */
    float clog[SAMPLE + 1];     /* c log2 c */
} planes_state;

/* A plane of the block at work. */
typedef struct plane {
    uint8_t tag, number;
    uint8_t *bytes;             /* where it was split to */
} plane;

/* ---- life ---- */

static void planes_close(dtpi_codec *codec)
{
    planes_state *s = codec->state;

    ZSTD_freeCCtx(s->in);
    ZSTD_freeDCtx(s->out);
    dtpi_free(codec->a, s->scratch, DTPI_PLANES_MAX * BLOCK_UNITS);
    for (int i = 0; i < SPARSE_DEPTH; i++) {
        dtpi_free(codec->a, s->bits[i].bytes, s->bits[i].size);
        dtpi_free(codec->a, s->values[i].bytes, s->values[i].size);
    }
    dtpi_free(codec->a, s, sizeof(*s));
}

/* Whether this libzstd codes literals without a match: two values in no order shrink eightfold. */
static bool codes_literals(ZSTD_CCtx *c)
{
    uint8_t in[2048], out[2048];
    uint32_t x = 1;

    for (size_t i = 0; i < sizeof(in); i++) {
        x = x * 1664525 + 1013904223;
        in[i] = (uint8_t)(x >> 31);
    }
    const size_t n = ZSTD_compress2(c, out, sizeof(out), in, sizeof(in));
    return !ZSTD_isError(n) && n < sizeof(in) / 4;
}

static void set_up_coder(ZSTD_CCtx *c)
{
    ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, LITERALS_ONLY);
    const size_t r = ZSTD_CCtx_setParameter(c, ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman);
    if (!ZSTD_isError(r) && codes_literals(c))
        return;
    ZSTD_CCtx_reset(c, ZSTD_reset_session_and_parameters);
    ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, PLAIN_LEVEL);
}

static dtp_status planes_open(dtpi_codec *codec, dtp_error *err)
{
    planes_state *s = dtpi_alloc(codec->a, sizeof(*s));

    if (!s)
        return dtpi_fail_nomem(err, sizeof(*s));
    codec->state = s;
    s->in = ZSTD_createCCtx();
    s->out = ZSTD_createDCtx();
    s->fn = dtpi_planes_best();
    s->huf = dtpi_huf_best();
    s->scratch = dtpi_alloc_aligned(codec->a, DTPI_PLANES_MAX * BLOCK_UNITS, 64);
    if (!s->in || !s->out || !s->scratch) {
        planes_close(codec);
        return dtpi_fail_nomem(err, DTPI_PLANES_MAX * BLOCK_UNITS);
    }
    set_up_coder(s->in);
    for (int c = 1; c <= SAMPLE; c++)
        s->clog[c] = (float)c * log2f((float)c);
    return DTP_OK;
}

/* At least `size` bytes; NULL without memory. What was in them is lost. */
static uint8_t *get_room(const dtp_allocator *a, grown *r, size_t size)
{
    if (r->size < size) {
        dtpi_free(a, r->bytes, r->size);
        r->bytes = dtpi_alloc(a, size);
        r->size = r->bytes ? size : 0;
    }
    return r->bytes;
}

/* How numbers of a type are split: log2 of the unit's width, plus 4 where the sign goes to the bottom. */
static unsigned kind_of(dtp_dtype dtype)
{
    static const uint8_t kinds[DTP_DTYPE_END] = {
        [DTP_F64] = 4 + 3, [DTP_F32] = 4 + 2, [DTP_F16] = 4 + 1, [DTP_BF16] = 4 + 1, [DTP_C64] = 4 + 2,
        [DTP_I64] = 3, [DTP_I32] = 2, [DTP_I16] = 1, [DTP_U64] = 3, [DTP_U32] = 2, [DTP_U16] = 1,
    };

    return (unsigned)dtype < DTP_DTYPE_END ? kinds[dtype] : 0;
}

/* ---- encoding ---- */

/* Bits that a byte of the sample carries. */
static float entropy(const planes_state *s, const uint8_t *bytes, size_t n, bool *same)
{
    uint32_t count[4][256] = { 0 };
    float sum = 0;

    for (size_t i = 0; i < n; i++)
        count[i & 3][bytes[i]]++;
    for (int v = 0; v < 256; v++)
        sum += s->clog[count[0][v] + count[1][v] + count[2][v] + count[3][v]];
    const uint32_t first = count[0][bytes[0]] + count[1][bytes[0]] + count[2][bytes[0]] +
                           count[3][bytes[0]];
    *same = first == n;
    return (s->clog[n] - sum) / (float)n;
}

/* Tags of a block's planes as a sample suggests; a plane that seems to be one value is looked at later. */
static void judge(const planes_state *s, unsigned kind, const uint8_t *in, size_t n, plane *planes)
{
    const size_t width = (size_t)1 << (kind & 3);
    uint8_t sample[DTPI_PLANES_MAX][SAMPLE];
    size_t at = 0;

    for (size_t r = 0; r < SAMPLE_RUNS && at < n; r++) {
        uint8_t *to[DTPI_PLANES_MAX];
        const size_t from = n <= SAMPLE ? at : r * ((n - SAMPLE_RUN) / (SAMPLE_RUNS - 1));
        const size_t run = DTPI_MIN(n <= SAMPLE ? n - at : n - from, (size_t)SAMPLE_RUN);
        for (size_t k = 0; k < width; k++)
            to[k] = sample[k] + at;
        s->fn->split[kind](in + from * width, run, to);
        at += run;
    }
    for (size_t k = 0; k < width; k++) {
        bool same;
        const float bits = entropy(s, sample[k], at, &same);
        planes[k].number = (uint8_t)k;
        planes[k].tag = same ? TAG_SAME : bits < CODED_BELOW ? TAG_CODED : TAG_RAW;
    }
}

/* A plane whose sample was one value: whether it is one everywhere. */
static void settle_same(plane *p, size_t n)
{
    if (memcmp(p->bytes, p->bytes + 1, n - 1) != 0)
        p->tag = TAG_CODED;
}

/* Codes a plane to `out`; 0 where that does not save anything. */
static size_t code_plane(planes_state *s, const plane *p, size_t n, uint8_t *out, size_t room)
{
    const size_t limit = DTPI_MIN(room, n - n / 256);

    const size_t own = dtpi_huf_encode(s->huf, &s->codes[p->number], p->bytes, n, out, limit);
    if (own)
        return own;
    const size_t r = ZSTD_compress2(s->in, out, limit, p->bytes, n);
    return ZSTD_isError(r) ? 0 : r;
}

/* Puts a plane at `out` and fills its head; SIZE_MAX where there is no room. */
static size_t put_plane(planes_state *s, plane *p, size_t n, uint8_t *head, uint8_t *out, size_t room)
{
    size_t bytes = 0;

    if (p->tag == TAG_SAME)
        settle_same(p, n);
    if (p->tag == TAG_CODED) {
        bytes = code_plane(s, p, n, out, room);
        p->tag = bytes ? TAG_CODED : TAG_RAW;
    }
    if (p->tag == TAG_RAW) {
        bytes = n;
        if (bytes > room)
            return SIZE_MAX;
        if (p->bytes != out)
            memcpy(out, p->bytes, n);
    }
    const uint32_t value = p->tag == TAG_SAME ? p->bytes[0] : (uint32_t)bytes;
    head[0] = p->tag;
    head[1] = (uint8_t)value;
    head[2] = (uint8_t)(value >> 8);
    head[3] = (uint8_t)(value >> 16);
    return bytes;
}

/*
 * One block: heads of all planes, lowest first, then their bytes in the same order. Planes that stay as
 * they are and come first are split straight to their place. 0 where there is no room.
 */
static size_t encode_block(planes_state *s, unsigned kind, const uint8_t *in, size_t n, uint8_t *out,
                           size_t room)
{
    const size_t width = (size_t)1 << (kind & 3);
    size_t at = width * HEAD_BYTES, straight = at;
    plane planes[DTPI_PLANES_MAX];
    uint8_t *to[DTPI_PLANES_MAX];
    bool is_known = true;

    if (at > room)
        return 0;
    judge(s, kind, in, n, planes);
    for (size_t k = 0; k < width; k++) {
        is_known = is_known && planes[k].tag == TAG_RAW && straight + n <= room;
        to[k] = planes[k].bytes = is_known ? out + straight : s->scratch + k * BLOCK_UNITS;
        straight += n;
    }
    s->fn->split[kind](in, n, to);
    for (size_t k = 0; k < width; k++) {
        const size_t bytes = put_plane(s, &planes[k], n, out + k * HEAD_BYTES, out + at, room - at);
        if (bytes == SIZE_MAX)
            return 0;
        at += bytes;
    }
    return at;
}

/* Whether any block looks as if it would shrink: noise is not worth splitting. */
static bool is_worth_it(const planes_state *s, unsigned kind, const uint8_t *in, size_t n_units)
{
    const size_t width = (size_t)1 << (kind & 3);
    plane planes[DTPI_PLANES_MAX];

    for (size_t at = 0; at < n_units; at += BLOCK_UNITS) {
        judge(s, kind, in + at * width, DTPI_MIN(n_units - at, (size_t)BLOCK_UNITS), planes);
        for (size_t k = 0; k < width; k++)
            if (planes[k].tag != TAG_RAW)
                return true;
    }
    return false;
}

/* All blocks behind the kind's byte. 0 where there is no room or nothing is gained. */
static size_t encode_dense(planes_state *s, unsigned kind, const uint8_t *in, size_t n, uint8_t *out,
                           size_t room)
{
    const size_t width = (size_t)1 << (kind & 3);
    size_t at = 1;

    if (room < 1 || !is_worth_it(s, kind, in, n))
        return 0;
    out[0] = (uint8_t)kind;
    memset(s->codes, 0, sizeof(s->codes));
    for (size_t i = 0; i < n; i += BLOCK_UNITS) {
        const size_t got = encode_block(s, kind, in + i * width, DTPI_MIN(n - i, (size_t)BLOCK_UNITS),
                                        out + at, room - at);
        if (got == 0)
            return 0;
        at += got;
    }
    return at;
}

/* Whether at least half of the units of a sample are zero. */
static bool seems_sparse(const uint8_t *in, size_t n, size_t width)
{
    static const uint8_t zero[8];
    const size_t step = n <= SAMPLE ? 1 : n / SAMPLE;
    size_t count = 0, seen = 0;

    for (size_t i = 0; i < n; i += step, seen++)
        count += memcmp(in + i * width, zero, width) == 0;
    return n >= SPARSE_MIN && count * 2 >= seen;
}

static size_t encode_units(planes_state *s, const dtp_allocator *a, unsigned kind, int depth,
                           const uint8_t *in, size_t n, uint8_t *out, size_t room);

/* Encodes, or copies where that is not smaller; SIZE_MAX where there is no room. */
static size_t put_units(planes_state *s, const dtp_allocator *a, unsigned kind, int depth,
                        const uint8_t *in, size_t n, uint8_t *out, size_t room)
{
    const size_t plain = n << (kind & 3);
    size_t got = 0;

    if (plain > 1)
        got = encode_units(s, a, kind, depth, in, n, out, DTPI_MIN(room, plain - 1));
    if (got)
        return got;
    if (plain > room)
        return SIZE_MAX;
    if (plain)
        memcpy(out, in, plain);
    return plain;
}

/* Bits and values. 0 where there is no room, or more than half of the units are there after all. */
static size_t encode_sparse(planes_state *s, const dtp_allocator *a, unsigned kind, int depth,
                            const uint8_t *in, size_t n, uint8_t *out, size_t room)
{
    const size_t width = (size_t)1 << (kind & 3), n_bits = (n + 7) / 8;
    uint8_t *bits = get_room(a, &s->bits[depth], n_bits);
    uint8_t *values = get_room(a, &s->values[depth], (n / 2 + 8) * width);

    s->no_memory |= !bits || !values;
    if (s->no_memory || room < SPARSE_HEAD)
        return 0;
    const size_t n_values = dtpi_sparse_pack(kind & 3, in, n, bits, values, n / 2);
    if (n_values == SIZE_MAX)
        return 0;
    const size_t stored = put_units(s, a, 0, depth + 1, bits, n_bits, out + SPARSE_HEAD,
                                    room - SPARSE_HEAD);
    if (stored == SIZE_MAX)
        return 0;
    const size_t at = SPARSE_HEAD + stored;
    const size_t rest = put_units(s, a, kind, SPARSE_DEPTH, values, n_values, out + at, room - at);
    if (rest == SIZE_MAX)
        return 0;
    out[0] = (uint8_t)(kind | KIND_SPARSE);
    for (int i = 0; i < 4; i++)
        out[1 + i] = (uint8_t)(stored >> 8 * i);
    return at + rest;
}

/* 0 where nothing is gained. */
static size_t encode_units(planes_state *s, const dtp_allocator *a, unsigned kind, int depth,
                           const uint8_t *in, size_t n, uint8_t *out, size_t room)
{
    size_t got = 0;

    if (depth < SPARSE_DEPTH && seems_sparse(in, n, (size_t)1 << (kind & 3)))
        got = encode_sparse(s, a, kind, depth, in, n, out, room);
    return got ? got : encode_dense(s, kind, in, n, out, room);
}

static dtp_status planes_encode(dtpi_codec *codec, const void *in, size_t bytes, dtp_dtype dtype,
                                void *out, size_t room, size_t *bytes_out, dtp_error *err)
{
    planes_state *s = codec->state;
    const unsigned kind = kind_of(dtype);
    const size_t width = (size_t)1 << (kind & 3);

    *bytes_out = 0;
    s->no_memory = false;
    if (bytes % width == 0)
        *bytes_out = encode_units(s, codec->a, kind, 0, in, bytes / width, out, room);
    return s->no_memory ? dtpi_fail_nomem(err, bytes) : DTP_OK;
}

/* ---- decoding ---- */

/* Finds or makes the bytes of one plane; its stored bytes in `*used_out`. */
static dtp_status get_plane(planes_state *s, size_t number, const uint8_t *head, const uint8_t *in,
                            size_t left, size_t n, const uint8_t **plane_out, size_t *used_out,
                            dtp_error *err)
{
    uint8_t *room = s->scratch + number * BLOCK_UNITS;
    const size_t value = head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16;

    *plane_out = room;
    *used_out = head[0] == TAG_SAME ? 0 : value;
    if (head[0] == TAG_SAME && value < 256) {
        memset(room, (int)value, n);
        return DTP_OK;
    }
    if (*used_out > left)
        return dtpi_fail(err, DTP_ERR_FORMAT, "a plane of %zu bytes where %zu are left", value, left);
    if (head[0] == TAG_RAW && value == n) {
        *plane_out = in;
        return DTP_OK;
    }
    if (head[0] != TAG_CODED)
        return dtpi_fail(err, DTP_ERR_FORMAT, "a plane of kind %u with %zu bytes for %zu units", head[0],
                         value, n);
    if (dtpi_huf_decode(in, value, room, n, &s->tables[number]))
        return DTP_OK;
    const size_t r = ZSTD_decompressDCtx(s->out, room, n, in, value);
    if (ZSTD_isError(r))
        return dtpi_fail(err, DTP_ERR_FORMAT, "bad zstd frame of a plane: %s", ZSTD_getErrorName(r));
    if (r != n)
        return dtpi_fail(err, DTP_ERR_FORMAT, "a plane of %zu bytes instead of %zu", r, n);
    return DTP_OK;
}

static dtp_status decode_block(planes_state *s, unsigned kind, const uint8_t *in, size_t left,
                               size_t n, uint8_t *out, size_t *used_out, dtp_error *err)
{
    const size_t width = (size_t)1 << (kind & 3);
    const uint8_t *planes[DTPI_PLANES_MAX];
    size_t at = width * HEAD_BYTES;

    if (at > left)
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: a block is cut off");
    for (size_t k = 0; k < width; k++) {
        size_t used = 0;
        const dtp_status st = get_plane(s, k, in + k * HEAD_BYTES, in + at, left - at, n, &planes[k],
                                        &used, err);
        if (st < 0)
            return st;
        at += used;
    }
    s->fn->merge[kind](planes, n, out);
    *used_out = at;
    return DTP_OK;
}

static dtp_status decode_dense(planes_state *s, unsigned kind, const uint8_t *in, size_t bytes,
                               uint8_t *out, size_t n, dtp_error *err)
{
    const size_t width = (size_t)1 << (kind & 3);
    size_t at = 1;

    for (size_t i = 0; i < n; i += BLOCK_UNITS) {
        size_t used = 0;
        const dtp_status st = decode_block(s, kind, in + at, bytes - at,
                                           DTPI_MIN(n - i, (size_t)BLOCK_UNITS), out + i * width,
                                           &used, err);
        if (st < 0)
            return st;
        at += used;
    }
    if (at != bytes)
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: %zu bytes behind the last block", bytes - at);
    return DTP_OK;
}

static dtp_status decode_units(dtpi_codec *codec, int depth, const uint8_t *in, size_t bytes,
                               uint8_t *out, size_t plain, dtp_error *err);

/* The reverse of put_units. */
static dtp_status get_units(dtpi_codec *codec, int depth, const uint8_t *in, size_t bytes, uint8_t *out,
                            size_t plain, dtp_error *err)
{
    if (bytes > plain)
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: %zu bytes for %zu", bytes, plain);
    if (bytes < plain)
        return decode_units(codec, depth, in, bytes, out, plain, err);
    if (plain)
        memcpy(out, in, plain);
    return DTP_OK;
}

/* The values are decoded to the end of `out`, and spread from there. */
static dtp_status decode_sparse(dtpi_codec *codec, int depth, const uint8_t *in, size_t bytes,
                                uint8_t *out, size_t n, dtp_error *err)
{
    planes_state *s = codec->state;
    const unsigned kind = in[0] & KIND_MASK;
    const size_t width = (size_t)1 << (kind & 3), n_bits = (n + 7) / 8;

    if (depth >= SPARSE_DEPTH || bytes < SPARSE_HEAD)
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: a sparse part is cut off or too deep");
    const size_t stored = in[1] | (size_t)in[2] << 8 | (size_t)in[3] << 16 | (size_t)in[4] << 24;
    if (stored > bytes - SPARSE_HEAD)
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: %zu bytes of bits where %zu are left", stored,
                         bytes - SPARSE_HEAD);
    uint8_t *bits = get_room(codec->a, &s->bits[depth], n_bits);
    if (!bits)
        return dtpi_fail_nomem(err, n_bits);
    dtp_status st = get_units(codec, depth + 1, in + SPARSE_HEAD, stored, bits, n_bits, err);
    if (st < 0)
        return st;
    const size_t n_values = dtpi_sparse_count(bits, n);
    if (n_values == SIZE_MAX)
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: a bit stands behind the last of %zu units", n);
    uint8_t *values = out + (n - n_values) * width;
    st = get_units(codec, SPARSE_DEPTH, in + SPARSE_HEAD + stored, bytes - SPARSE_HEAD - stored, values,
                   n_values * width, err);
    if (st >= 0)
        dtpi_sparse_unpack(kind & 3, bits, values, n_values, n, out);
    return st;
}

static dtp_status decode_units(dtpi_codec *codec, int depth, const uint8_t *in, size_t bytes,
                               uint8_t *out, size_t plain, dtp_error *err)
{
    if (bytes < 1 || in[0] > (KIND_MASK | KIND_SPARSE))
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: an unknown kind of unit, %u", bytes ? in[0] : 0);
    const unsigned kind = in[0] & KIND_MASK;
    const size_t width = (size_t)1 << (kind & 3), n = plain / width;
    if (plain % width != 0)
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: %zu bytes are no units of %zu", plain, width);
    if (in[0] & KIND_SPARSE)
        return decode_sparse(codec, depth, in, bytes, out, n, err);
    return decode_dense(codec->state, kind, in, bytes, out, n, err);
}

static dtp_status planes_decode(dtpi_codec *codec, const void *in, size_t bytes, void *out,
                                size_t plain_bytes, dtp_error *err)
{
    return decode_units(codec, 0, in, bytes, out, plain_bytes, err);
}

const struct dtpi_codec_ops dtpi_codec_planes = {
    .name = "planes",
    .open = planes_open,
    .close = planes_close,
    .encode = planes_encode,
    .decode = planes_decode,
};
