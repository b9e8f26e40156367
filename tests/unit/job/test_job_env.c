/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of ranks: each framework's words, and who wins. */
#include "check.h"

#include "job/env.h"

static const char *const argv_true[] = { "true", NULL };

typedef struct made {
    dtpi_spec spec;
    dtpi_list rank, common;
} made;

static void make(made *m, const char *const *base, const char *const *env, uint32_t n, uint32_t rank,
                 const char *gpus, bool hide)
{
    static uint16_t ports[DTPI_ENV_PORTS + 600];
    const dtp_job_spec u = { .size = sizeof(u), .argv = argv_true, .n_ranks = n, .env_base = base,
                             .env = env, .ckpt_dir = "/ckpt", .max_restarts = 3 };

    for (uint16_t i = 0; i < 602; i++)
        ports[i] = (uint16_t)(40000 + i);
    dtpi_spec_init(&m->spec, &dtpi_malloc_allocator);
    m->rank = (dtpi_list){ .buf = dtpi_buf_init(&dtpi_malloc_allocator) };
    m->common = (dtpi_list){ .buf = dtpi_buf_init(&dtpi_malloc_allocator) };
    assert_ok(dtpi_spec_copy(&m->spec, &u, ERR));
    const dtpi_env_attempt at = { .spec = &m->spec, .name = "digits", .attempt = 1, .n = n,
                                  .agent = "@agent", .secret_file = "/run/s", .ports = ports,
                                  .n_ports = dtpi_env_n_ports(n), .hide_gpus = hide };
    const dtpi_env_rank r = { .rank = rank, .n_cores = 2, .gpus = gpus };
    assert_ok(dtpi_env_of_rank(&at, &r, &m->rank, ERR));
    assert_ok(dtpi_env_common(&m->spec, &m->rank, &m->common, ERR));
}

static void free_made(made *m)
{
    dtpi_buf_free(&m->rank.buf);
    dtpi_buf_free(&m->common.buf);
    dtpi_spec_free(&m->spec);
}

/* Value of a variable in both lists together; it must not be there twice. */
static const char *get(const made *m, const char *name)
{
    const dtpi_list *lists[] = { &m->rank, &m->common };
    const char *found = NULL;

    for (int i = 0; i < 2; i++) {
        const dtpi_texts texts = dtpi_list_texts(lists[i]);
        for (const char *t = dtpi_texts_next(&texts, NULL); t; t = dtpi_texts_next(&texts, t)) {
            const size_t len = strlen(name);
            if (strncmp(t, name, len) != 0 || t[len] != '=')
                continue;
            assert_null(found);
            found = t + len + 1;
        }
    }
    return found;
}

static void test_every_framework_finds_its_words(void **state)
{
    static const struct {
        const char *name, *value;
    } want[] = {
        { "DTP_JOB", "digits" }, { "DTP_ATTEMPT", "1" }, { "DTP_RANK", "2" }, { "DTP_WORLD_SIZE", "3" },
        { "DTP_LOCAL_RANK", "2" }, { "DTP_LOCAL_SIZE", "3" }, { "DTP_AGENT", "@agent" },
        { "DTP_SECRET_FILE", "/run/s" }, { "DTP_CKPT_DIR", "/ckpt" },
        { "RANK", "2" }, { "LOCAL_RANK", "2" }, { "WORLD_SIZE", "3" }, { "LOCAL_WORLD_SIZE", "3" },
        { "GROUP_RANK", "0" }, { "ROLE_RANK", "2" }, { "ROLE_WORLD_SIZE", "3" },
        { "MASTER_ADDR", "127.0.0.1" }, { "MASTER_PORT", "40000" },
        { "TORCHELASTIC_RESTART_COUNT", "1" }, { "TORCHELASTIC_MAX_RESTARTS", "3" },
        { "TORCHELASTIC_RUN_ID", "digits" }, { "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1" },
        { "JAX_COORDINATOR_ADDRESS", "127.0.0.1:40001" }, { "JAX_NUM_PROCESSES", "3" },
        { "JAX_PROCESS_ID", "2" },
        { "TF_CONFIG", "{\"cluster\":{\"worker\":[\"127.0.0.1:40002\",\"127.0.0.1:40003\","
                       "\"127.0.0.1:40004\"]},\"task\":{\"type\":\"worker\",\"index\":2}}" },
        { "OMP_NUM_THREADS", "2" }, { "OPENBLAS_NUM_THREADS", "2" }, { "MKL_NUM_THREADS", "2" },
        { "UCX_HANDLE_ERRORS", "none" }, { "UCX_MEM_EVENTS", "n" }, { "PYTHONUNBUFFERED", "1" },
        { "CUDA_VISIBLE_DEVICES", "0,1" }, { "CUDA_DEVICE_ORDER", "PCI_BUS_ID" },
    };
    made m;

    (void)state;
    make(&m, NULL, NULL, 3, 2, "0,1", false);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        const char *v = get(&m, want[i].name);
        if (!v)
            fail_msg("%s is not set", want[i].name);
        assert_string_equal(v, want[i].value);
    }
    assert_null(get(&m, "DTP_SECRET"));
    free_made(&m);
}

static void test_the_job_wins_over_what_is_computed_and_that_over_what_was_inherited(void **state)
{
    static const char *const base[] = { "RANK=7", "HOME=/h", "A=base", "OMP_NUM_THREADS=9", "X=1", NULL };
    static const char *const env[] = { "A=one", "A=two", "MASTER_PORT=1", "MKL_NUM_THREADS=5", NULL };
    made m;

    (void)state;
    make(&m, base, env, 2, 1, "", false);
    assert_string_equal(get(&m, "RANK"), "1");
    assert_string_equal(get(&m, "HOME"), "/h");
    assert_string_equal(get(&m, "A"), "two");
    assert_string_equal(get(&m, "MASTER_PORT"), "1");
    assert_string_equal(get(&m, "OMP_NUM_THREADS"), "9");
    assert_string_equal(get(&m, "MKL_NUM_THREADS"), "5");
    assert_string_equal(get(&m, "OPENBLAS_NUM_THREADS"), "2");
    assert_null(get(&m, "CUDA_VISIBLE_DEVICES"));
    free_made(&m);
}

static void test_places_in_the_gang_of_an_mpi_launcher_are_dropped(void **state)
{
    static const char *const base[] = { "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1",
                                        "OMPI_COMM_WORLD_LOCAL_RANK=0", "PMI_RANK=0", "PMI_SIZE=1",
                                        "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1", "PMI_OTHER=x", NULL };
    static const char *const env[] = { "PMI_RANK=7", NULL };
    made m;

    make(&m, base, env, 2, 1, "", false);
    for (size_t i = 0; i < 7; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(base[i], "="), base[i]);
        if (strcmp(name, "PMI_RANK") != 0)
            assert_null(get(&m, name));
    }
    assert_string_equal(get(&m, "PMI_OTHER"), "x");
    assert_string_equal(get(&m, "PMI_RANK"), "7");      /* asked for */
    free_made(&m);
}

static void test_gpus_are_hidden_from_a_job_that_asked_for_none(void **state)
{
    made m;

    (void)state;
    make(&m, NULL, NULL, 2, 0, "", true);
    assert_string_equal(get(&m, "CUDA_VISIBLE_DEVICES"), "");
    free_made(&m);
}

static void test_large_gangs_get_no_tf_config(void **state)
{
    made m;

    (void)state;
    assert_int_equal(dtpi_env_n_ports(512), 514);
    assert_int_equal(dtpi_env_n_ports(513), 2);
    make(&m, NULL, NULL, 513, 512, "", false);
    assert_null(get(&m, "TF_CONFIG"));
    assert_string_equal(get(&m, "RANK"), "512");
    free_made(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_framework_finds_its_words),
        cmocka_unit_test(test_the_job_wins_over_what_is_computed_and_that_over_what_was_inherited),
        cmocka_unit_test(test_places_in_the_gang_of_an_mpi_launcher_are_dropped),
        cmocka_unit_test(test_gpus_are_hidden_from_a_job_that_asked_for_none),
        cmocka_unit_test(test_large_gangs_get_no_tf_config),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
