/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_foreign.c - files of others, opened and read whole. The first byte says as what: a file of torch.save,
 * an index beside a safetensors file, a folder with `.metadata` (its length in two bytes) and a file of
 * chunks, a safetensors shard.
 */
#include "fuzz.h"

#include "ckpt/load.h"
#include "files/mem.h"

static const char shard[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                            "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[2,6]}}";

static void put(dtpi_files *files, const char *path, const void *data, size_t bytes)
{
    dtpi_file *file = NULL;

    FUZZ_CHECK(files->ops->create(files, path, bytes, &file, NULL) >= 0);
    FUZZ_CHECK(files->ops->write(file, 0, data, bytes, NULL) >= 0);
    FUZZ_CHECK(files->ops->close_file(file, NULL) >= 0);
}

static void put_shard(dtpi_files *files)
{
    uint8_t all[8 + sizeof(shard) - 1 + 6] = { sizeof(shard) - 1 };

    memcpy(all + 8, shard, sizeof(shard) - 1);
    put(files, "d/x.safetensors", all, sizeof(all));
}

/* Two bytes of length, as much metadata, and the file that it speaks of. */
static void put_folder(dtpi_files *files, const uint8_t *data, size_t bytes)
{
    const size_t n = bytes < 2 ? 0 : data[0] | (size_t)data[1] << 8;
    const size_t meta = bytes < 2 ? 0 : n < bytes - 2 ? n : bytes - 2;

    put(files, "d/.metadata", data + (bytes < 2 ? 0 : 2), meta);
    put(files, "d/__0_0.distcp", data + (bytes < 2 ? 0 : 2) + meta, bytes < 2 ? 0 : bytes - 2 - meta);
}

static void read_all(dtpi_load *l)
{
    dtp_error err;

    for (size_t i = 0; i < dtpi_mf_n_tensors(&l->m); i++) {
        const dtpi_mf_tensor *t = dtpi_mf_tensor_at(&l->m, i);
        uint8_t room[4096];
        dtp_ckpt_tensor want = { sizeof(want), dtpi_mf_text(&l->m, t->name_at), t->dtype, t->n_dims,
                                 dtpi_mf_dims(&l->m, t->dims_at), NULL, NULL, room };
        uint64_t bytes = 0;
        for (uint32_t k = 0; k < t->n_boxes; k++)
            bytes += dtpi_mf_box_bytes(&l->m, t, dtpi_mf_box_at(&l->m, t->first_box + k));
        if (bytes <= sizeof(room))
            FUZZ_CHECK(dtpi_load_read(l, &want, &err) >= 0);
    }
    FUZZ_CHECK(dtpi_load_verify(l, NULL, NULL, &err) >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = { "d/x.pt", "d/model.safetensors.index.json", NULL,
                                         "d/y.safetensors" };
    const size_t kind = bytes ? data[0] % 4 : 0;
    dtpi_files *files = NULL;
    dtpi_load *l = NULL;
    bool made = false;
    dtp_error err;

    if (bytes == 0 || dtpi_files_mem_open(&dtpi_malloc_allocator, &files, &err) < 0)
        return 0;
    FUZZ_CHECK(files->ops->make_dir(files, "d", &made, &err) >= 0);
    if (kind != 0)
        put_shard(files);
    if (names[kind])
        put(files, names[kind], data + 1, bytes - 1);
    else
        put_folder(files, data + 1, bytes - 1);
    if (dtpi_load_open_path(&dtpi_malloc_allocator, files, kind == 0 ? names[0] : "d", &l, &err) >= 0) {
        read_all(l);
        dtpi_load_close(l);
    }
    dtpi_files_close(files);
    return 0;
}
