/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random reshards from mesh to mesh: pipeline, data and tensor parallel ranks, dimensions cut evenly or not,
 * replicated, strided (cut twice, in either order) or empty, and optimizer state as flattened ranges of what
 * a rank holds. Saved by one mesh, loaded by another, bit for bit. 1000 times, 100 000 with DTP_TEST_LONG.
 */
#include "ranks.h"

static const dtp_allocator *const A = &dtpi_malloc_allocator;

enum { PP, DP, TP, AXES, MAX_PARAMS = 4, MAX_DIMS = 3 };

typedef struct box {
    int64_t offset[MAX_DIMS], extent[MAX_DIMS];
} box;

typedef struct param {
    char name[16];
    uint32_t n_dims;
    int64_t shape[MAX_DIMS];
    dtp_dtype dtype;
} param;

/* How a mesh holds one parameter. */
typedef struct placement {
    int stage;                  /* of the pipeline */
    int dim[AXES];              /* that DP and TP cut; -1: replicated */
    bool tp_first;              /* where both cut one dimension: who cuts the other's pieces */
    bool balanced;              /* cuts differ by one at most; else all but the last are equal */
    bool flat;                  /* DP holds ranges of the flattened box instead */
} placement;

typedef struct mesh {
    int size[AXES];
    placement of[MAX_PARAMS];
} mesh;

static int pick(uint64_t *seed, int n)
{
    return (int)(check_random(seed) % (uint64_t)n);
}

static int mesh_size(const mesh *m)
{
    return m->size[PP] * m->size[DP] * m->size[TP];
}

static void random_mesh(uint64_t *seed, mesh *m, const param *params, int n_params, int max)
{
    do
        for (int a = 0; a < AXES; a++)
            m->size[a] = 1 + pick(seed, 4);
    while (mesh_size(m) > max);
    for (int i = 0; i < n_params; i++) {
        placement *p = &m->of[i];
        *p = (placement){ .stage = pick(seed, m->size[PP]), .tp_first = pick(seed, 2),
                          .balanced = pick(seed, 2), .flat = pick(seed, 3) == 0 };
        for (int a = DP; a < AXES; a++)
            p->dim[a] = pick(seed, (int)params[i].n_dims + 1) - 1;
    }
}

static void random_params(uint64_t *seed, param *params, int n)
{
    static const dtp_dtype types[] = { DTP_U8, DTP_BF16, DTP_F32, DTP_F64 };

    for (int i = 0; i < n; i++) {
        param *p = &params[i];
        snprintf(p->name, sizeof(p->name), "p%d", i);
        p->n_dims = (uint32_t)pick(seed, MAX_DIMS + 1);
        p->dtype = types[pick(seed, 4)];
        for (uint32_t d = 0; d < p->n_dims; d++)
            p->shape[d] = pick(seed, 20) ? 1 + pick(seed, 9) : 0;
    }
}

/* Piece `i` of `n` of dimension `d`; late pieces may be empty. */
static void cut(box *b, int d, int i, int n, bool balanced)
{
    const int64_t whole = b->extent[d], step = (whole + n - 1) / n;
    int64_t from = DTPI_MIN(i * step, whole), to = DTPI_MIN((i + 1) * step, whole);

    if (balanced) {
        from = whole * i / n;
        to = whole * (i + 1) / n;
    }
    b->offset[d] += from;
    b->extent[d] = to - from;
}

/* What a rank holds of a parameter before its range is flattened; false: another stage has it. */
static bool local_box(const mesh *m, const placement *pl, const param *p, const int *at, box *out)
{
    *out = (box){ 0 };
    memcpy(out->extent, p->shape, sizeof(p->shape));
    for (int k = 0; k < 2; k++) {
        const int a = (k == 0) == pl->tp_first ? TP : DP;
        if (pl->dim[a] >= 0 && !(a == DP && pl->flat))
            cut(out, pl->dim[a], at[a], m->size[a], pl->balanced);
    }
    return at[PP] == pl->stage;
}

/* Elements [from, to) of a dense box as boxes: part of a row, whole rows, part of a row. */
static int flat_boxes(const box *b, uint32_t n_dims, uint32_t d, int64_t from, int64_t to, box *out)
{
    int64_t row = 1;
    int n = 0;

    if (from >= to)
        return 0;
    if (d == n_dims) {
        *out = *b;
        return 1;
    }
    for (uint32_t i = d + 1; i < n_dims; i++)
        row *= b->extent[i];
    while (from < to) {
        box part = *b;
        const int64_t at = from / row, whole = (to - from) / row;
        part.offset[d] += at;
        part.extent[d] = 1;
        if (from % row == 0 && whole > 0) {
            part.extent[d] = whole;
            out[n++] = part;
            from += whole * row;
            continue;
        }
        const int64_t end = DTPI_MIN(to, (at + 1) * row);
        n += flat_boxes(&part, n_dims, d + 1, from % row, end - at * row, out + n);
        from = end;
    }
    return n;
}

/* The boxes that a rank holds of a parameter. */
static int boxes_of(const mesh *m, int i, const param *p, int rank, box *out)
{
    const placement *pl = &m->of[i];
    const int at[AXES] = { rank / (m->size[DP] * m->size[TP]), rank / m->size[TP] % m->size[DP],
                           rank % m->size[TP] };
    int64_t n = 1;
    box b;

    if (!local_box(m, pl, p, at, &b))
        return 0;
    for (uint32_t d = 0; d < p->n_dims; d++)
        n *= b.extent[d];
    if (!pl->flat || n == 0) {
        out[0] = b;
        return 1;
    }
    return flat_boxes(&b, p->n_dims, 0, n * at[DP] / m->size[DP], n * (at[DP] + 1) / m->size[DP], out);
}

static void save_mesh(dtpi_files *files, const mesh *m, const param *params, int n_params,
                      dtp_codec codec)
{
    static rank_run r[MAX_RANKS];
    static box boxes[MAX_RANKS][MAX_BOXES];
    const int n = mesh_size(m);

    ranks_init(r, n, files, "ck");
    for (int k = 0; k < n; k++) {
        int used = 0;
        r[k].opts.codec = codec;
        r[k].opts.chunk_bytes = 4096;
        for (int i = 0; i < n_params; i++) {
            box *b = &boxes[k][used];
            const int n_boxes = boxes_of(m, i, &params[i], k, b);
            for (int j = 0; j < n_boxes; j++, used++)
                give(&r[k], params[i].name, params[i].dtype, params[i].n_dims, params[i].shape,
                     b[j].offset, b[j].extent, (uint64_t)i);
        }
    }
    assert_ok(ranks_save(r, n, 1));
    ranks_free(r, n);
}

static void load_mesh(dtpi_files *files, const mesh *m, const param *params, int n_params)
{
    DTPI_AUTO(load) dtpi_load *l = NULL;
    box boxes[MAX_BOXES];

    assert_ok(dtpi_load_open(A, files, "ck", 1, &l, ERR));
    for (int k = 0; k < mesh_size(m); k++)
        for (int i = 0; i < n_params; i++) {
            const int n = boxes_of(m, i, &params[i], k, boxes);
            for (int j = 0; j < n; j++)
                assert_ok(read_known(l, params[i].name, params[i].dtype, params[i].n_dims,
                                     params[i].shape, boxes[j].offset, boxes[j].extent, (uint64_t)i));
        }
}

static void one_reshard(uint64_t *seed)
{
    DTPI_AUTO(files) dtpi_files *files = mem_files();
    param params[MAX_PARAMS] = { 0 };
    const int n_params = 1 + pick(seed, MAX_PARAMS);
    mesh from, to;

    random_params(seed, params, n_params);
    random_mesh(seed, &from, params, n_params, pick(seed, 4) ? 4 : MAX_RANKS);
    random_mesh(seed, &to, params, n_params, 16);
    save_mesh(files, &from, params, n_params, pick(seed, 4) ? DTP_CODEC_NONE : DTP_CODEC_PLANES);
    load_mesh(files, &to, params, n_params);
}

static void test_any_mesh_loads_what_any_other_saved(void **state)
{
    uint64_t seed = check_seed();
    const int rounds = check_is_long() ? 100000 : 1000;

    (void)state;
    for (int i = 0; i < rounds; i++)
        one_reshard(&seed);
    print_message("%d reshards\n", rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_mesh_loads_what_any_other_saved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
