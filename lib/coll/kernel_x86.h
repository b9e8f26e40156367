/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_x86.h - conversions and copies of x86 processors with AVX2 and F16C. */
#include <immintrin.h>

#include "coll/kernel_f16.h"

KERNEL static void widen_f16(void *out_, const void *in_, size_t n)
{
    float *out = out_;
    const uint16_t *in = in_;
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + i))));
    for (; i < n; i++)
        out[i] = dtpi_float_of_f16(in[i]);
}

KERNEL static void narrow_f16(void *out_, const void *in_, size_t n)
{
    const __m128i quiet = _mm_set1_epi16(0x7e00), sign = _mm_set1_epi16(0x7fff),
                  infinity = _mm_set1_epi16(0x7c00);
    uint16_t *out = out_;
    const float *in = in_;
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(in + i),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m128i is_nan = _mm_cmpgt_epi16(_mm_and_si128(h, sign), infinity);
        _mm_storeu_si128((__m128i *)(out + i), _mm_blendv_epi8(h, quiet, is_nan));
    }
    for (; i < n; i++)
        out[i] = dtpi_f16_of_float(in[i]);
}

/* Bytes up to a line of the cache and after the last one go the usual way. */
KERNEL static void stream(void *out_, const void *in_, size_t bytes)
{
    uint8_t *out = out_;
    const uint8_t *in = in_;
    const size_t head = DTPI_MIN((64 - ((uintptr_t)out & 63)) & 63, bytes);

    memcpy(out, in, head);
    out += head;
    in += head;
    bytes -= head;
    for (; bytes >= 128; bytes -= 128, out += 128, in += 128) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)in);
        const __m256i b = _mm256_loadu_si256((const __m256i *)(in + 32));
        const __m256i c = _mm256_loadu_si256((const __m256i *)(in + 64));
        const __m256i d = _mm256_loadu_si256((const __m256i *)(in + 96));
        _mm256_stream_si256((__m256i *)out, a);
        _mm256_stream_si256((__m256i *)(out + 32), b);
        _mm256_stream_si256((__m256i *)(out + 64), c);
        _mm256_stream_si256((__m256i *)(out + 96), d);
    }
    memcpy(out, in, bytes);
}

KERNEL static void stream_end(void)
{
    _mm_sfence();
}
