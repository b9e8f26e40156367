/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_topo_pack.c - a topology as another process sent it. What is accepted can be rendered and packed
 * again to the same bytes; a real one is bent by the input too.
 */
#include "fuzz.h"

#include "topo/pack.h"

static void use(const dtp_topo *topo)
{
    dtp_topo_obj obj = { .size = sizeof(obj) };
    uint32_t n_links;
    dtp_topo_path path;
    dtp_error err;

    for (uint32_t i = 0; i < dtp_topo_n_objs(topo); i++)
        FUZZ_CHECK(dtp_topo_get(topo, i, &obj, &err) == DTP_OK);
    for (int type = 0; type <= DTP_TOPO_NVME + 1; type++)
        if (dtp_topo_count(topo, (dtp_topo_type)type) > 0)
            FUZZ_CHECK(dtp_topo_nth(topo, (dtp_topo_type)type, 0, &obj, &err) == DTP_OK);
    dtp_topo_path_between(topo, 0, dtp_topo_n_objs(topo) - 1, &path, &n_links, &err);
    for (int format = DTP_TOPO_TEXT; format <= DTP_TOPO_MATRIX; format++) {
        char *text = NULL;
        if (dtp_topo_render(topo, (dtp_topo_format)format, &text, &err) >= 0)
            dtp_text_free(text);
    }
}

static void try_bytes(const uint8_t *shape, size_t n_shape, const uint8_t *own, size_t n_own)
{
    dtpi_buf a = dtpi_buf_init(&dtpi_malloc_allocator), b = a;
    dtp_topo *topo = NULL;
    dtp_error err = { 0 };

    if (dtpi_topo_unpack(&dtpi_malloc_allocator, shape, n_shape, own, n_own, &topo, &err) < 0) {
        FUZZ_CHECK(err.status == DTP_ERR_FORMAT && !topo);
        return;
    }
    use(topo);
    dtpi_topo_pack(topo, &a, &b);
    FUZZ_CHECK(!a.failed && !b.failed);
    dtp_topo_close(topo);
    topo = NULL;
    FUZZ_CHECK(dtpi_topo_unpack(&dtpi_malloc_allocator, a.data, a.len, b.data, b.len, &topo, &err) == DTP_OK);
    dtp_topo_close(topo);
    dtpi_buf_free(&a);
    dtpi_buf_free(&b);
}

/* A small machine with some of everything. */
static void make(dtpi_buf *shape, dtpi_buf *own)
{
    dtp_topo_obj objs[] = {
        { .type = DTP_TOPO_MACHINE, .parent = -1 },
        { .type = DTP_TOPO_NUMA, .os_index = 0, .mem_bytes = 1 << 30, .cpus = "0-1" },
        { .type = DTP_TOPO_CORE, .parent = 1, .os_index = 0, .cpus = "0" },
        { .type = DTP_TOPO_PU, .parent = 2, .os_index = 0, .cpus = "0" },
        { .type = DTP_TOPO_GPU, .parent = 1, .name = "GPU0", .pci = "0000:01:00.0", .model = "x" },
        { .type = DTP_TOPO_NIC, .parent = 1, .name = "mlx5_0", .pci = "0000:02:00.0", .port_state = 4,
          .gid = "fe80::1", .netdev = "ib0", .usable = 1 },
    };
    uint32_t sorted[] = { 0, 1, 2, 3, 4, 5 };
    dtpi_topo_nvlink link = { "0000:01:00.0", "0000:02:00.0", 4 };
    const dtp_topo topo = { .objs = objs, .sorted = sorted, .n_objs = DTPI_ARRAY_LEN(objs),
                            .cpus = { "0-1", "0" }, .nvlinks = &link, .n_nvlinks = 1, .source = "fuzz" };

    dtpi_topo_pack(&topo, shape, own);
    FUZZ_CHECK(!shape->failed && !own->failed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    dtpi_buf shape = dtpi_buf_init(&dtpi_malloc_allocator), own = shape;

    try_bytes(data, bytes, data, bytes / 2);
    make(&shape, &own);
    /* Each three bytes of the input change one. */
    for (size_t i = 0; i + 2 < bytes; i += 3)
        shape.data[(data[i] | (size_t)data[i + 1] << 8) % shape.len] = data[i + 2];
    if (bytes % 3 == 1)
        shape.len = data[bytes - 1] % (shape.len + 1);
    try_bytes(shape.data, shape.len, own.data, own.len);
    dtpi_buf_free(&shape);
    dtpi_buf_free(&own);
    return 0;
}
