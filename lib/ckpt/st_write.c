/* SPDX-License-Identifier: Apache-2.0 */
/* st_write.c - writes a safetensors header, and the table of its number types. */
#include "ckpt/json.h"
#include "ckpt/st.h"

/* Source: enum Dtype in safetensors/src/tensor.rs. */
static const dtpi_st_type types[] = {
    { "BOOL", 8, DTP_BOOL },
    { "F4", 4, DTP_F4 },
    { "F6_E2M3", 6, DTP_F6_E2M3 },
    { "F6_E3M2", 6, DTP_F6_E3M2 },
    { "U8", 8, DTP_U8 },
    { "I8", 8, DTP_I8 },
    { "F8_E5M2", 8, DTP_F8_E5M2 },
    { "F8_E4M3", 8, DTP_F8_E4M3 },
    { "F8_E8M0", 8, DTP_F8_E8M0 },
    { "F8_E4M3FNUZ", 8, DTP_F8_E4M3FNUZ },
    { "F8_E5M2FNUZ", 8, DTP_F8_E5M2FNUZ },
    { "I16", 16, DTP_I16 },
    { "U16", 16, DTP_U16 },
    { "F16", 16, DTP_F16 },
    { "BF16", 16, DTP_BF16 },
    { "I32", 32, DTP_I32 },
    { "U32", 32, DTP_U32 },
    { "F32", 32, DTP_F32 },
    { "C64", 64, DTP_C64 },
    { "F64", 64, DTP_F64 },
    { "I64", 64, DTP_I64 },
    { "U64", 64, DTP_U64 },
};

static_assert(DTPI_ARRAY_LEN(types) == DTP_DTYPE_END - 1, "one name per type");

const dtpi_st_type *dtpi_st_type_find(const char *name, size_t bytes)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(types); i++)
        if (strlen(types[i].name) == bytes && memcmp(types[i].name, name, bytes) == 0)
            return &types[i];
    return NULL;
}

const dtpi_st_type *dtpi_st_type_of(dtp_dtype dtype)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(types); i++)
        if (types[i].dtype == dtype)
            return &types[i];
    return NULL;
}

const dtpi_st_type *dtpi_st_entry_type(const dtpi_st_entry *e)
{
    return &types[e->type];
}

void dtpi_st_write_begin(dtpi_buf *b)
{
    dtpi_buf_append(b, "\0\0\0\0\0\0\0\0{", 9);
}

/* Inside "__metadata__" the text ends in a quote until the first tensor comes. */
static bool in_meta(const dtpi_buf *b)
{
    return b->len > 9 && b->data[b->len - 1] == '"';
}

static void end_meta(dtpi_buf *b)
{
    if (in_meta(b))
        dtpi_buf_append(b, "}", 1);
}

void dtpi_st_write_meta(dtpi_buf *b, const char *key, const char *value, size_t bytes)
{
    if (b->failed)
        return;
    if (in_meta(b))
        dtpi_buf_append(b, ",", 1);
    else
        dtpi_buf_printf(b, "\"__metadata__\":{");
    dtpi_json_put(b, key, strlen(key));
    dtpi_buf_append(b, ":", 1);
    dtpi_json_put(b, value, bytes);
}

void dtpi_st_write_tensor(dtpi_buf *b, const char *name, size_t name_bytes, const char *type,
                          uint32_t n_dims, const int64_t *dims, uint64_t begin, uint64_t end)
{
    if (b->failed)
        return;
    end_meta(b);
    if (b->len > 9)
        dtpi_buf_append(b, ",", 1);
    dtpi_json_put(b, name, name_bytes);
    dtpi_buf_append(b, ":{\"dtype\":\"", 11);
    dtpi_buf_append(b, type, strlen(type));
    dtpi_buf_append(b, "\",", 2);
    dtpi_json_put_dims(b, "shape", n_dims, dims);
    dtpi_buf_append(b, ",\"data_offsets\":[", 17);
    dtpi_json_put_u64(b, begin);
    dtpi_buf_append(b, ",", 1);
    dtpi_json_put_u64(b, end);
    dtpi_buf_append(b, "]}", 2);
}

dtp_status dtpi_st_write_end(dtpi_buf *b, size_t total, dtp_error *err)
{
    if (!b->failed)
        end_meta(b);
    dtpi_buf_append(b, "}", 1);
    if (b->failed)
        return dtpi_fail_nomem(err, 0);
    if (total == 0)
        total = (b->len + DTPI_ST_ALIGN - 1) / DTPI_ST_ALIGN * DTPI_ST_ALIGN;
    if (total - 8 > DTPI_ST_MAX_HEADER || b->len > total)
        return dtpi_fail(err, DTP_ERR_LIMIT, "a safetensors header of %zu bytes, at most %d",
                         b->len, DTPI_ST_MAX_HEADER);
    const size_t pad = total - b->len;
    uint8_t *p = dtpi_buf_reserve(b, pad);
    if (!p)
        return dtpi_fail_nomem(err, pad);
    memset(p, ' ', pad);
    b->len = total;
    for (size_t i = 0; i < 8; i++)
        b->data[i] = (uint8_t)((uint64_t)(total - 8) >> (8 * i));
    return DTP_OK;
}
