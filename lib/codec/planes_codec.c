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
    KIND_MASK = 7
};

/* Bits a byte from which coding costs more time than it saves room. */
#define CODED_BELOW 7.85

typedef struct planes_state {
    ZSTD_CCtx *in;
    ZSTD_DCtx *out;
    const dtpi_planes *fn;
    const dtpi_huf_kernels *huf;
    dtpi_huf_table tables[DTPI_PLANES_MAX];
    dtpi_huf_codes codes[DTPI_PLANES_MAX];      /* of the chunk at work */
    uint8_t *scratch;           /* DTPI_PLANES_MAX planes of BLOCK_UNITS */
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

static dtp_status planes_encode(dtpi_codec *codec, const void *in, size_t bytes, dtp_dtype dtype,
                                void *out, size_t room, size_t *bytes_out, dtp_error *err)
{
    planes_state *s = codec->state;
    const unsigned kind = kind_of(dtype);
    const size_t width = (size_t)1 << (kind & 3), n = bytes / width;
    uint8_t *to = out;
    size_t at = 1;

    (void)err;
    *bytes_out = 0;
    if (bytes % width != 0 || room < 1 || !is_worth_it(s, kind, in, n))
        return DTP_OK;
    to[0] = (uint8_t)kind;
    memset(s->codes, 0, sizeof(s->codes));
    for (size_t i = 0; i < n; i += BLOCK_UNITS) {
        const size_t got = encode_block(s, kind, (const uint8_t *)in + i * width,
                                        DTPI_MIN(n - i, (size_t)BLOCK_UNITS), to + at, room - at);
        if (got == 0)
            return DTP_OK;
        at += got;
    }
    *bytes_out = at;
    return DTP_OK;
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

static dtp_status planes_decode(dtpi_codec *codec, const void *in_, size_t bytes, void *out,
                                size_t plain_bytes, dtp_error *err)
{
    planes_state *s = codec->state;
    const uint8_t *in = in_;
    size_t at = 1;

    if (bytes < 1 || in[0] > KIND_MASK)
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: an unknown kind of unit, %u", bytes ? in[0] : 0);
    const unsigned kind = in[0];
    const size_t width = (size_t)1 << (kind & 3), n = plain_bytes / width;
    if (plain_bytes % width != 0)
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: %zu bytes are no units of %zu", plain_bytes, width);
    for (size_t i = 0; i < n; i += BLOCK_UNITS) {
        size_t used = 0;
        const dtp_status st =
            decode_block(s, kind, in + at, bytes - at, DTPI_MIN(n - i, (size_t)BLOCK_UNITS),
                         (uint8_t *)out + i * width, &used, err);
        if (st < 0)
            return st;
        at += used;
    }
    if (at != bytes)
        return dtpi_fail(err, DTP_ERR_FORMAT, "planes: %zu bytes behind the last block", bytes - at);
    return DTP_OK;
}

const struct dtpi_codec_ops dtpi_codec_planes = {
    .name = "planes",
    .open = planes_open,
    .close = planes_close,
    .encode = planes_encode,
    .decode = planes_decode,
};
