/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.c - bits and names of the number types, from one list. */
#include "base/base.h"

#include <strings.h>

#define DTYPE_LIST(X)                                                                               \
    X(DTP_F64, "f64", 64)                                                                           \
    X(DTP_F32, "f32", 32)                                                                           \
    X(DTP_F16, "f16", 16)                                                                           \
    X(DTP_BF16, "bf16", 16)                                                                         \
    X(DTP_I64, "i64", 64)                                                                           \
    X(DTP_I32, "i32", 32)                                                                           \
    X(DTP_I16, "i16", 16)                                                                           \
    X(DTP_I8, "i8", 8)                                                                              \
    X(DTP_U64, "u64", 64)                                                                           \
    X(DTP_U32, "u32", 32)                                                                           \
    X(DTP_U16, "u16", 16)                                                                           \
    X(DTP_U8, "u8", 8)                                                                              \
    X(DTP_BOOL, "bool", 8)                                                                          \
    X(DTP_F8_E4M3, "f8_e4m3", 8)                                                                    \
    X(DTP_F8_E5M2, "f8_e5m2", 8)                                                                    \
    X(DTP_C64, "c64", 64)                                                                           \
    X(DTP_F8_E8M0, "f8_e8m0", 8)                                                                    \
    X(DTP_F8_E4M3FNUZ, "f8_e4m3fnuz", 8)                                                            \
    X(DTP_F8_E5M2FNUZ, "f8_e5m2fnuz", 8)                                                            \
    X(DTP_F4, "f4", 4)                                                                              \
    X(DTP_F6_E2M3, "f6_e2m3", 6)                                                                    \
    X(DTP_F6_E3M2, "f6_e3m2", 6)

static const struct {
    const char *name;
    uint32_t bits;
} dtypes[] = {
#define ROW(code, text, n) [code] = { text, n },
    DTYPE_LIST(ROW)
#undef ROW
};

static_assert(DTPI_ARRAY_LEN(dtypes) == DTP_DTYPE_END, "one row per type");

static bool dtype_known(dtp_dtype dtype)
{
    return (int)dtype > 0 && (int)dtype < DTP_DTYPE_END;
}

uint32_t dtp_dtype_bits(dtp_dtype dtype)
{
    return dtype_known(dtype) ? dtypes[dtype].bits : 0;
}

size_t dtp_dtype_bytes(dtp_dtype dtype)
{
    const uint32_t bits = dtp_dtype_bits(dtype);

    return bits % 8 ? 0 : bits / 8;
}

const char *dtp_dtype_name(dtp_dtype dtype)
{
    return dtype_known(dtype) ? dtypes[dtype].name : "none";
}

dtp_dtype dtp_dtype_parse(const char *name)
{
    if (!name)
        return DTP_DTYPE_NONE;
    for (int i = 1; i < DTP_DTYPE_END; i++)
        if (strcasecmp(name, dtypes[i].name) == 0)
            return (dtp_dtype)i;
    return DTP_DTYPE_NONE;
}
