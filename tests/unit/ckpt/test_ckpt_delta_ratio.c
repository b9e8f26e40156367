/* SPDX-License-Identifier: Apache-2.0 */
/* What a step costs after a step that was much like it: weights a few updates on, a hundredth changed. */
#include "deltas.h"

#include <math.h>

enum { N = 1 << 19 };

static const int64_t shape[] = { N };

static double gauss(uint64_t *seed)
{
    const double u = ((double)(check_random(seed) >> 11) + 1) / 9007199254740993.0;
    const double v = (double)(check_random(seed) >> 11) / 9007199254740992.0;

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static uint16_t bf16_of(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static training *new_weights(uint64_t *seed, float *master)
{
    training *t = training_new(*seed, DTP_CODEC_PLANES, 1);

    for (int i = 0; i < 2; i++)
        t->r[i].opts.chunk_bytes = 128 << 10;
    training_add(t, 0, "w", 1, shape, NULL, NULL, FROZEN);
    uint16_t *w = t->r[0].tensors[0].data;
    for (size_t i = 0; i < N; i++)
        w[i] = bf16_of(master[i] = (float)(0.02 * gauss(seed)));
    training_save(t, 1);
    return t;
}

/* Bytes of the tensor by those that step 2 stored. */
static double ratio(training *t)
{
    training_save(t, 2);
    training_check(t, 2);
    return 2.0 * N / (double)training_data(t, 2);
}

static void test_weights_a_few_updates_on_shrink_ninefold(void **state)
{
    uint64_t seed = check_seed();
    float *master = malloc(N * sizeof(*master));
    DTPI_AUTO(training) training *t = new_weights(&seed, master);
    uint16_t *w = t->r[0].tensors[0].data;
    size_t n_changed = 0;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        const uint16_t was = w[i];
        w[i] = bf16_of(master[i] + (float)(8e-6 * gauss(&seed)));
        n_changed += w[i] != was;
    }
    const double got = ratio(t);
    print_message("%.1f %% of the numbers changed: ratio %.2f\n", 100.0 * (double)n_changed / N, got);
    assert_true(n_changed > N / 8);
    assert_true(got >= 9);
    free(master);
}

static void test_a_hundredth_changed_costs_a_fiftieth(void **state)
{
    for (int rows = 0; rows < 2; rows++) {
        uint64_t seed = check_seed();
        float *master = malloc(N * sizeof(*master));
        DTPI_AUTO(training) training *t = new_weights(&seed, master);
        uint16_t *w = t->r[0].tensors[0].data;
        (void)state;
        for (size_t i = 0; i < N; i++)
            if (rows ? i >= N - N / 100 : check_random(&seed) % 100 == 0)
                w[i] = bf16_of((float)(0.02 * gauss(&seed)));
        const double got = ratio(t);
        print_message("one %% of the numbers, %s: ratio %.1f\n", rows ? "one behind the other" : "anywhere", got);
        assert_true(got >= 50);
        free(master);
    }
}

/* Moments change wholly: XOR would make them larger, and the samples say so. */
static void test_noise_is_not_stored_as_xor(void **state)
{
    uint64_t seed = check_seed();
    float *master = malloc(N * sizeof(*master));
    DTPI_AUTO(training) training *t = new_weights(&seed, master);
    uint16_t *w = t->r[0].tensors[0].data;

    (void)state;
    for (size_t i = 0; i < N; i++)
        w[i] = bf16_of((float)(0.02 * gauss(&seed)));
    assert_true(ratio(t) > 1.5);
    DTPI_AUTO(load) dtpi_load *l = training_load(t, 2);
    assert_int_equal(l->m.n_lineage, 0);
    free(master);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_a_few_updates_on_shrink_ninefold),
        cmocka_unit_test(test_a_hundredth_changed_costs_a_fiftieth),
        cmocka_unit_test(test_noise_is_not_stored_as_xor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
