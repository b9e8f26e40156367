/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huf_decode.c - reads a zstd frame of Huffman-coded literals.
 *
 * A look at 11 bits yields up to four symbols at once, in four streams side by side. Near the end of a
 * stream symbols come one by one, with every step checked. Whatever looks odd is left to libzstd.
 */
#include "codec/huf.h"

#include "base/cpu.h"

enum {
    BITS = DTPI_HUF_BITS,
    SIZE = 1 << BITS,
    HEAD_BYTES = 17,            /* of frame, block and literals */
    JUMP_BYTES = 6,
    STREAMS = 4,
    ENTRY_SYMBOLS = 8,          /* first bits of what an entry holds */
    ENTRY_N = 61,
    LOOKS = 5,                  /* between two loads: 5 * 11 bits and 7 left over are less than 63 */
    MARGIN = LOOKS * 4 + 4      /* bytes written by so many looks, at most */
};

/* A stream is read from its end: `window` is the eight bytes at `at`, `used` of its bits are gone. */
struct stream {
    const uint8_t *begin, *at;
    uint64_t window;
    unsigned used;
    uint8_t *out, *end;
};

static uint64_t get_le(const uint8_t *in, size_t bytes)
{
    uint64_t v = 0;

    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)in[i] << 8 * i;
    return v;
}

/* ---- the table ---- */

/* Weights of all values; the last one's makes the sum a power of two. Returns its log2, 0: odd. */
static unsigned read_weights(const uint8_t *in, size_t bytes, uint8_t *weights, unsigned *n_out,
                             size_t *used_out)
{
    const unsigned n = bytes ? (unsigned)in[0] - 127 : 0;
    uint32_t sum = 0, longest = 0;

    if (bytes == 0 || in[0] < 128 || 1 + (n + 1) / 2 > bytes)
        return 0;
    for (unsigned v = 0; v < n; v++) {
        weights[v] = v % 2 ? in[1 + v / 2] & 15 : in[1 + v / 2] >> 4;
        if (weights[v] > BITS)
            return 0;
        sum += (1u << weights[v]) >> 1;
        longest += weights[v] == 1;
    }
    if (sum == 0)
        return 0;
    const unsigned log = 32 - (unsigned)__builtin_clz(sum);     /* the least power of two above the sum */
    const uint32_t rest = (1u << log) - sum;
    if (log > BITS || (rest & (rest - 1)) != 0)
        return 0;
    weights[n] = (uint8_t)(__builtin_ctz(rest) + 1);
    longest += weights[n] == 1;
    if (longest < 2 || longest % 2)
        return 0;               /* the longest codes come in pairs */
    *n_out = n + 1;
    *used_out = 1 + (n + 1) / 2;
    return log;
}

/* One symbol for each number of 11 bits. */
static void fill_singles(const uint8_t *weights, unsigned n, unsigned log, uint16_t *singles)
{
    const unsigned spare = BITS - log;
    uint32_t at = 0;

    for (unsigned w = 1; w <= log; w++)
        for (unsigned v = 0; v < n; v++) {
            if (weights[v] != w)
                continue;
            const uint32_t times = 1u << (w - 1 + spare);
            const uint16_t entry = (uint16_t)(v | (log + 1 - w) << 8);
            for (uint32_t i = 0; i < times; i++)
                singles[at + i] = entry;
            at += times;
        }
}

/*
 * An entry has the number of bits in its low 6, symbols in 32 bits, and their number in the top 3. Further
 * symbols come in as long as their codes lie wholly in what is left of the 11 bits.
 */
static void fill_entries(dtpi_huf_table *t)
{
    for (uint32_t i = 0; i < SIZE; i++) {
        uint64_t symbols = t->singles[i] & 0xff;
        unsigned bits = t->singles[i] >> 8, n = 1;
        while (n < 4) {
            const uint16_t next = t->singles[i << bits & (SIZE - 1)];
            if (bits + (next >> 8) > BITS)
                break;
            symbols |= (uint64_t)(next & 0xff) << 8 * n++;
            bits += next >> 8;
        }
        t->entries[i] = bits | symbols << ENTRY_SYMBOLS | (uint64_t)n << ENTRY_N;
    }
}

/* Fills the table, unless it was filled from the same weights before. Returns their bytes, 0: odd. */
static size_t make_table(const uint8_t *in, size_t bytes, dtpi_huf_table *t)
{
    uint8_t weights[256];
    unsigned n = 0;
    size_t used = 0;

    if (t->n_head > 0 && t->n_head <= bytes && memcmp(t->head, in, t->n_head) == 0)
        return t->n_head;
    const unsigned log = read_weights(in, bytes, weights, &n, &used);
    if (log == 0)
        return 0;
    fill_singles(weights, n, log, t->singles);
    fill_entries(t);
    memcpy(t->head, in, used);
    t->n_head = used;
    return used;
}

/* ---- streams ---- */

static bool open_stream(struct stream *s, const uint8_t *in, size_t bytes, uint8_t *out, size_t n)
{
    if (bytes < 8 || in[bytes - 1] == 0)
        return false;           /* shorter ones are rare, and libzstd's */
    s->begin = in;
    s->at = in + bytes - 8;
    s->used = (unsigned)__builtin_clz(in[bytes - 1]) - 24 + 1;
    s->window = get_le(s->at, 8);
    s->out = out;
    s->end = out + n;
    return true;
}

/* Enough bytes on both sides of all streams for another turn. */
static inline bool has_room(const struct stream *s)
{
    return s->at - s->begin >= 8 && s->end - s->out >= MARGIN;
}

/* One look; the bits used are gone from `w` after it. */
#define LOOK(k)                                                                                     \
    do {                                                                                            \
        const uint64_t e = t->entries[w##k >> (64 - BITS)];                                         \
        const uint32_t symbols = (uint32_t)(e >> ENTRY_SYMBOLS);                                    \
        w##k <<= e & 63;                                                                            \
        memcpy(o##k, &symbols, 4);                                                                  \
        o##k += e >> ENTRY_N;                                                                       \
    } while (0)
#define LOOK_ALL() do { LOOK(0); LOOK(1); LOOK(2); LOOK(3); } while (0)

/* The lowest bit, which no look reaches, is set: below it, zeros count the bits that are gone. */
#define LOAD(k)                                                                                     \
    uint8_t *o##k = s[k].out;                                                                       \
    uint64_t w##k;                                                                                  \
    s[k].at -= s[k].used >> 3;                                                                      \
    s[k].used &= 7;                                                                                 \
    memcpy(&w##k, s[k].at, 8);                                                                      \
    w##k = (w##k | 1) << s[k].used

#define KEEP(k)                                                                                     \
    s[k].used = (unsigned)__builtin_ctzll(w##k);                                                    \
    s[k].out = o##k

/* Until a stream comes near to an end. Written out: the compiler keeps all four in registers. */
#define DEFINE_RUN(name, ATTRIBUTES)                                                                \
    ATTRIBUTES static void name(struct stream *s, const dtpi_huf_table *t)                          \
    {                                                                                               \
        while (has_room(&s[0]) && has_room(&s[1]) && has_room(&s[2]) && has_room(&s[3])) {          \
            LOAD(0);                                                                                \
            LOAD(1);                                                                                \
            LOAD(2);                                                                                \
            LOAD(3);                                                                                \
            LOOK_ALL();                                                                             \
            LOOK_ALL();                                                                             \
            LOOK_ALL();                                                                             \
            LOOK_ALL();                                                                             \
            LOOK_ALL();                                                                             \
            KEEP(0);                                                                                \
            KEEP(1);                                                                                \
            KEEP(2);                                                                                \
            KEEP(3);                                                                                \
        }                                                                                           \
    }

DEFINE_RUN(run_base, )
#ifdef __x86_64__
DEFINE_RUN(run_bmi2, __attribute__((target("bmi2"))))
#endif

static void run_four(struct stream *s, const dtpi_huf_table *t)
{
#ifdef __x86_64__
    if (dtpi_cpu_has(DTPI_CPU_BMI2)) {
        run_bmi2(s, t);
        return;
    }
#endif
    run_base(s, t);
}

/* What is left, symbol by symbol; true where the stream ends with its last one. */
static bool finish(struct stream *s, const uint16_t *singles)
{
    while (s->out < s->end) {
        const size_t back = DTPI_MIN((size_t)(s->used >> 3), (size_t)(s->at - s->begin));
        s->at -= back;
        s->used -= (unsigned)back * 8;
        memcpy(&s->window, s->at, 8);
        if (s->used >= 64)
            return false;
        const uint16_t single = singles[s->window << s->used >> (64 - BITS)];
        s->used += single >> 8;
        if (s->used > 64)
            return false;
        *s->out++ = (uint8_t)single;
    }
    return s->at == s->begin && s->used == 64;
}

/* Sizes of the four streams; false where they do not fill `bytes`. */
static bool open_streams(const uint8_t *in, size_t bytes, uint8_t *out, size_t n, struct stream *s)
{
    const size_t part = (n + STREAMS - 1) / STREAMS;
    size_t at = JUMP_BYTES;

    if (bytes < JUMP_BYTES)
        return false;
    for (size_t i = 0; i < STREAMS; i++) {
        const size_t left = bytes - at;
        const size_t size = i + 1 < STREAMS ? (size_t)get_le(in + 2 * i, 2) : left;
        if (size > left ||
            !open_stream(&s[i], in + at, size, out + i * part, i + 1 < STREAMS ? part : n - i * part))
            return false;
        at += size;
    }
    return true;
}

/* Whether it is a frame of one block of literals in four streams, and nothing else. */
static bool is_ours(const uint8_t *in, size_t bytes, size_t n)
{
    if (bytes <= HEAD_BYTES || n < DTPI_HUF_MIN || n > DTPI_HUF_MAX)
        return false;
    const uint64_t block = get_le(in + 9, 3), literals = get_le(in + 12, 5);
    return get_le(in, 4) == 0xfd2fb528 && in[4] == 0xa0 && get_le(in + 5, 4) == n &&
           (block & 7) == (1 | 2 << 1) && block >> 3 == bytes - 12 && (literals & 15) == (2 | 3 << 2) &&
           (literals >> 4 & 0x3ffff) == n && literals >> 22 == bytes - HEAD_BYTES - 1 &&
           in[bytes - 1] == 0;
}

bool dtpi_huf_decode(const uint8_t *in, size_t bytes, uint8_t *out, size_t n, dtpi_huf_table *table)
{
    struct stream streams[STREAMS];

    if (!is_ours(in, bytes, n))
        return false;
    const uint8_t *body = in + HEAD_BYTES;
    const size_t body_bytes = bytes - HEAD_BYTES - 1;
    const size_t used = make_table(body, body_bytes, table);
    if (used == 0 || !open_streams(body + used, body_bytes - used, out, n, streams))
        return false;
    run_four(streams, table);
    for (int k = 0; k < STREAMS; k++)
        if (!finish(&streams[k], table->singles))
            return false;
    return true;
}
