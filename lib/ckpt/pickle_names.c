/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle_names.c - the whole of what a pickle may name. To be in the list is to be a word, never code: a
 * name that is missing here makes a file unreadable, one that is here too much makes nothing happen.
 */
#include "ckpt/pickle_names.h"

#define DCP "torch.distributed.checkpoint."
#define OLD "torch.distributed._shard."

static const dtpi_pk_listed list[] = {
    { DCP "metadata", "Metadata", DTPI_PK_METADATA, 0 },
    { DCP "metadata", "TensorStorageMetadata", DTPI_PK_TENSOR_META, 0 },
    { DCP "metadata", "BytesStorageMetadata", DTPI_PK_BYTES_META, 0 },
    { DCP "metadata", "TensorProperties", DTPI_PK_PROPERTIES, 0 },
    { DCP "metadata", "ChunkStorageMetadata", DTPI_PK_CHUNK, 0 },
    { DCP "metadata", "MetadataIndex", DTPI_PK_INDEX, 0 },
    { DCP "metadata", "StorageMeta", DTPI_PK_INERT, 0 },
    { DCP "metadata", "_MEM_FORMAT_ENCODING", DTPI_PK_INERT, 0 },
    { DCP "filesystem", "_StorageInfo", DTPI_PK_STORAGE_INFO, 0 },
    { DCP "filesystem", "_StoragePrefix", DTPI_PK_INERT, 0 },
    { OLD "sharded_tensor.metadata", "TensorProperties", DTPI_PK_PROPERTIES, 0 },
    { OLD "sharded_tensor.metadata", "MEM_FORMAT_ENCODING", DTPI_PK_INERT, 0 },
    { OLD "metadata", "ShardMetadata", DTPI_PK_INERT, 0 },

    { "torch", "Size", DTPI_PK_SIZE, 0 },
    { "torch", "device", DTPI_PK_INERT, 0 },
    { "torch.serialization", "_get_layout", DTPI_PK_INERT, 0 },
    { "torch._utils", "_rebuild_tensor_v2", DTPI_PK_REBUILD, 0 },
    { "torch._utils", "_rebuild_tensor_v3", DTPI_PK_REBUILD_TYPED, 0 },
    { "torch._utils", "_rebuild_parameter", DTPI_PK_PARAMETER, 0 },
    { "torch.storage", "UntypedStorage", DTPI_PK_BARE_STORAGE, 0 },
    { "collections", "OrderedDict", DTPI_PK_ORDERED_DICT, 0 },
    { "_codecs", "encode", DTPI_PK_INERT, 0 },      /* how protocol 2 spells bytes */
    { "__builtin__", "set", DTPI_PK_INERT, 0 },
    { "pathlib", "PosixPath", DTPI_PK_INERT, 0 },
    { "pathlib", "PurePosixPath", DTPI_PK_INERT, 0 },
    { "pathlib", "WindowsPath", DTPI_PK_INERT, 0 },
    { "pathlib", "PureWindowsPath", DTPI_PK_INERT, 0 },
    { "pathlib", "Path", DTPI_PK_INERT, 0 },
    { "pathlib._local", "PosixPath", DTPI_PK_INERT, 0 },
    { "pathlib._local", "PurePosixPath", DTPI_PK_INERT, 0 },
    { "pathlib._local", "WindowsPath", DTPI_PK_INERT, 0 },
    { "pathlib._local", "PureWindowsPath", DTPI_PK_INERT, 0 },

    { "torch", "float64", DTPI_PK_DTYPE, DTP_F64 },
    { "torch", "float32", DTPI_PK_DTYPE, DTP_F32 },
    { "torch", "float16", DTPI_PK_DTYPE, DTP_F16 },
    { "torch", "bfloat16", DTPI_PK_DTYPE, DTP_BF16 },
    { "torch", "int64", DTPI_PK_DTYPE, DTP_I64 },
    { "torch", "int32", DTPI_PK_DTYPE, DTP_I32 },
    { "torch", "int16", DTPI_PK_DTYPE, DTP_I16 },
    { "torch", "int8", DTPI_PK_DTYPE, DTP_I8 },
    { "torch", "uint64", DTPI_PK_DTYPE, DTP_U64 },
    { "torch", "uint32", DTPI_PK_DTYPE, DTP_U32 },
    { "torch", "uint16", DTPI_PK_DTYPE, DTP_U16 },
    { "torch", "uint8", DTPI_PK_DTYPE, DTP_U8 },
    { "torch", "bool", DTPI_PK_DTYPE, DTP_BOOL },
    { "torch", "float8_e4m3fn", DTPI_PK_DTYPE, DTP_F8_E4M3 },
    { "torch", "float8_e5m2", DTPI_PK_DTYPE, DTP_F8_E5M2 },
    { "torch", "float8_e8m0fnu", DTPI_PK_DTYPE, DTP_F8_E8M0 },
    { "torch", "float8_e4m3fnuz", DTPI_PK_DTYPE, DTP_F8_E4M3FNUZ },
    { "torch", "float8_e5m2fnuz", DTPI_PK_DTYPE, DTP_F8_E5M2FNUZ },
    { "torch", "float4_e2m1fn_x2", DTPI_PK_DTYPE, DTP_DTYPE_NONE },
    { "torch", "complex64", DTPI_PK_DTYPE, DTP_C64 },
    { "torch", "complex128", DTPI_PK_DTYPE, DTP_DTYPE_NONE },
    { "torch", "complex32", DTPI_PK_DTYPE, DTP_DTYPE_NONE },

    { "torch", "DoubleStorage", DTPI_PK_STORAGE, DTP_F64 },
    { "torch", "FloatStorage", DTPI_PK_STORAGE, DTP_F32 },
    { "torch", "HalfStorage", DTPI_PK_STORAGE, DTP_F16 },
    { "torch", "BFloat16Storage", DTPI_PK_STORAGE, DTP_BF16 },
    { "torch", "LongStorage", DTPI_PK_STORAGE, DTP_I64 },
    { "torch", "IntStorage", DTPI_PK_STORAGE, DTP_I32 },
    { "torch", "ShortStorage", DTPI_PK_STORAGE, DTP_I16 },
    { "torch", "CharStorage", DTPI_PK_STORAGE, DTP_I8 },
    { "torch", "ByteStorage", DTPI_PK_STORAGE, DTP_U8 },
    { "torch", "BoolStorage", DTPI_PK_STORAGE, DTP_BOOL },
    { "torch", "ComplexFloatStorage", DTPI_PK_STORAGE, DTP_C64 },
    { "torch", "ComplexDoubleStorage", DTPI_PK_STORAGE, DTP_DTYPE_NONE },
};

static bool is_text(const char *a, const char *b, size_t bytes)
{
    return strlen(a) == bytes && memcmp(a, b, bytes) == 0;
}

const dtpi_pk_listed *dtpi_pk_find_name(const char *module, size_t module_bytes, const char *text,
                                        size_t bytes)
{
    for (size_t i = 0; i < DTPI_ARRAY_LEN(list); i++)
        if (is_text(list[i].text, text, bytes) && is_text(list[i].module, module, module_bytes))
            return &list[i];
    return NULL;
}
