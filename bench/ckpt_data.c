/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_data.c - numbers like those of training, from a seed: weights, moments of an optimizer, and for
 * comparison bits without any order.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "ckpt.h"
#include "coll/kernel_f16.h"

static uint64_t random_of(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static double gauss(uint64_t *seed)
{
    const double u = ((double)(random_of(seed) >> 11) + 1) * 0x1p-53;
    const double v = (double)(random_of(seed) >> 11) * 0x1p-53;

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static void put_f32(void *out, size_t i, double v)
{
    ((float *)out)[i] = (float)v;
}

static void put_bf16(void *out, size_t i, double v)
{
    const float f = (float)v;
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    ((uint16_t *)out)[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static void put_f16(void *out, size_t i, double v)
{
    ((uint16_t *)out)[i] = dtpi_f16_of_float((float)v);
}

static double weight(uint64_t *seed)
{
    return 0.02 * gauss(seed);
}

/* First moments: a mean of gradients, whose scale differs from weight to weight. */
static double moment(uint64_t *seed)
{
    return 1e-4 * gauss(seed) * exp(0.25 * gauss(seed));
}

/* Second moments: never negative, a mean of many squares. */
static double moment2(uint64_t *seed)
{
    return 1e-8 * exp(0.7 * gauss(seed));
}

static const ckpt_type data_types[] = {
    { "bf16", DTP_BF16, put_bf16, weight },  { "f32", DTP_F32, put_f32, weight },
    { "f16", DTP_F16, put_f16, weight },     { "adam-m", DTP_F32, put_f32, moment },
    { "adam-v", DTP_F32, put_f32, moment2 }, { "random", DTP_F32, put_f32, NULL },
};

const ckpt_type *ckpt_type_at(size_t i)
{
    return i < DTPI_ARRAY_LEN(data_types) ? &data_types[i] : NULL;
}

const ckpt_type *ckpt_type_of(const char *name)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(data_types); i++)
        if (strcmp(data_types[i].name, name) == 0)
            return &data_types[i];
    return NULL;
}

void ckpt_fill(const ckpt_type *t, uint8_t *out, size_t bytes, uint64_t seed)
{
    const size_t width = dtp_dtype_bytes(t->dtype);

    for (size_t i = 0; !t->value && i < bytes / 8; i++) {
        const uint64_t v = random_of(&seed);
        memcpy(out + 8 * i, &v, sizeof(v));
    }
    for (size_t i = 0; t->value && i < bytes / width; i++)
        t->put(out, i, t->value(&seed));
}
