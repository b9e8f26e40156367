/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers say in the environment, right, half and contradicting; in a forked child each. */
#include "check.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dtp/group.h>

#include "ctx/ctx.h"
#include "group/env.h"

#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* A rank that is alone on the second of two nodes. */
#define SECOND_OF_TWO "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_LOCAL_RANK=0", "DTP_LOCAL_SIZE=1"
#define TORCHRUN "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=h", \
                 "MASTER_PORT=29500", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2"
#define SLURM_STEP "SLURM_JOB_ID=12", "SLURM_STEP_ID=3", "DTP_MUNGE=0", "SLURM_PROCID=1", "SLURM_NTASKS=2", \
                   "SLURM_LOCALID=0", "SLURM_NODEID=1", "SLURM_STEP_NUM_NODES=2", \
                   "SLURM_STEP_TASKS_PER_NODE=1(x2)"

struct row {
    const char *name;
    const char *vars[20];       /* NAME=VALUE */
    dtp_status want;
    const char *text;           /* of the failure, or of the log where it goes on */
};

static const struct row rows[] = {
    { "no launcher", { NULL }, DTP_OK, NULL },
    { "one rank", { "DTP_RANK=0", "DTP_WORLD_SIZE=1" }, DTP_OK, NULL },
    { "rank without size", { "DTP_RANK=0" }, DTP_ERR_FORMAT, "DTP_RANK is set, but DTP_WORLD_SIZE is not" },
    { "no number", { "DTP_RANK=x", "DTP_WORLD_SIZE=2" }, DTP_ERR_FORMAT, "DTP_RANK is 'x'" },
    { "blank number", { "DTP_RANK= 1", "DTP_WORLD_SIZE=2" }, DTP_ERR_FORMAT, "DTP_RANK is ' 1'" },
    { "rank too large", { "DTP_RANK=2", "DTP_WORLD_SIZE=2" }, DTP_ERR_RANGE,
      "DTP_RANK=2 contradicts DTP_WORLD_SIZE=2" },
    { "no secret", { "DTP_RANK=1", "DTP_WORLD_SIZE=2" }, DTP_ERR_AUTH, "DTP_SECRET" },
    { "short secret", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_SECRET=abc" }, DTP_ERR_FORMAT,
      "DTP_SECRET does not have 64 hex digits" },
    { "secret and insecure", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_SECRET=" SECRET, "DTP_INSECURE=1" },
      DTP_ERR_FORMAT, "rank 1 of 2: DTP_SECRET contradicts DTP_INSECURE=1" },
    { "secret and its descriptor", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_SECRET=" SECRET,
      "DTP_SECRET_FD=5" }, DTP_ERR_FORMAT, "DTP_SECRET contradicts DTP_SECRET_FD" },
    { "no such descriptor", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_SECRET_FD=987" }, DTP_ERR_IO,
      "DTP_SECRET_FD 987" },
    { "standard input", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_SECRET_FD=0" }, DTP_ERR_FORMAT,
      "DTP_SECRET_FD" },
    { "no munged", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_MUNGE=/nowhere", "DTP_TIMEOUT_MS=20" },
      DTP_ERR_TIMEOUT, "no agent" },
    { "two secrets", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_SECRET=" SECRET, "DTP_SECRET_FILE=/x" },
      DTP_ERR_FORMAT, "DTP_SECRET contradicts DTP_SECRET_FILE" },
    { "no such file", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_SECRET_FILE=/no/such" },
      DTP_ERR_NOT_FOUND, "/no/such" },
    { "local rank alone", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_LOCAL_RANK=1", "DTP_INSECURE=1" },
      DTP_ERR_FORMAT, "DTP_LOCAL_RANK is set, but DTP_LOCAL_SIZE is not" },
    { "local rank too large", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_LOCAL_RANK=2", "DTP_LOCAL_SIZE=2",
      "DTP_INSECURE=1" }, DTP_ERR_FORMAT, "DTP_LOCAL_RANK=2 contradicts DTP_LOCAL_SIZE=2" },
    { "no root", { "DTP_RANK=1", "DTP_WORLD_SIZE=4", "DTP_LOCAL_RANK=1", "DTP_LOCAL_SIZE=2",
      "DTP_INSECURE=1" }, DTP_ERR_INVAL, "DTP_ROOT" },
    { "torchrun", { "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1" }, DTP_OK, NULL },
    { "torchrun, several nodes", { "RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
      "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "DTP_INSECURE=1", "DTP_TIMEOUT_MS=30" },
      DTP_ERR_TIMEOUT, "no agent at @dtp-" },
    { "torchrun without port", { "RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
      "MASTER_ADDR=127.0.0.1", "DTP_INSECURE=1" }, DTP_ERR_FORMAT, "MASTER_PORT is not" },
    { "torchrun at the last port", { "RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
      "MASTER_ADDR=127.0.0.1", "MASTER_PORT=65535", "DTP_INSECURE=1" }, DTP_ERR_FORMAT,
      "MASTER_PORT=65535 leaves no port behind it" },
    { "two launchers", { "RANK=1", "WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=8" },
      DTP_ERR_FORMAT, "WORLD_SIZE=4 contradicts OMPI_COMM_WORLD_SIZE=8" },
    { "two ranks", { "DTP_RANK=1", "DTP_WORLD_SIZE=4", "RANK=2", "WORLD_SIZE=4" }, DTP_ERR_FORMAT,
      "rank 1 of 4: DTP_RANK=1 contradicts RANK=2" },
    { "Open MPI", { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2" }, DTP_ERR_AUTH, "rank 1 of 2 has no job secret" },
    { "Hydra", { "PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=3", "MPI_LOCALNRANKS=4" }, DTP_ERR_AUTH,
      "rank 3 of 4 has no job secret" },
    { "Slurm", { "SLURM_STEP_ID=0", "DTP_MUNGE=0",
      "SLURM_PROCID=5", "SLURM_NTASKS=6", "SLURM_LOCALID=1", "SLURM_NODEID=2",
      "SLURM_STEP_TASKS_PER_NODE=2(x3)", "DTP_ROOT=127.0.0.1:1" }, DTP_ERR_AUTH,
      "rank 5 of 6 has no job secret" },
    { "Slurm, uneven", { "SLURM_STEP_ID=0", "DTP_MUNGE=0",
      "SLURM_PROCID=5", "SLURM_NTASKS=6", "SLURM_LOCALID=1", "SLURM_NODEID=1",
      "SLURM_STEP_TASKS_PER_NODE=5,1", "DTP_ROOT=127.0.0.1:1" }, DTP_ERR_FORMAT,
      "SLURM_LOCALID=1 contradicts SLURM_STEP_TASKS_PER_NODE=1" },
    { "mpirun under Slurm", { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "SLURM_PROCID=0",
      "SLURM_NTASKS=9", "SLURM_LOCALID=0" }, DTP_ERR_AUTH, "rank 1 of 2 has no job secret" },
    { "a batch script of Slurm", { "SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=9", "SLURM_LOCALID=0" },
      DTP_OK, NULL },
    { "torchrun under mpirun", { "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
      "TORCHELASTIC_RUN_ID=x", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1" }, DTP_ERR_AUTH,
      "rank 1 of 2 has no job secret" },
    { "node outside", { SECOND_OF_TWO, "DTP_NODE=2", "DTP_NODES=2" }, DTP_ERR_FORMAT,
      "DTP_NODE=2 contradicts DTP_NODES=2" },
    { "node alone", { SECOND_OF_TWO, "DTP_NODE=1" }, DTP_ERR_FORMAT,
      "DTP_NODE is set, but DTP_NODES is not" },
    { "root and board", { SECOND_OF_TWO, "DTP_ROOT=h:1", "DTP_BOARD=/tmp" }, DTP_ERR_FORMAT,
      "DTP_ROOT=h:1 contradicts DTP_BOARD=/tmp" },
    { "strange board", { SECOND_OF_TWO, "DTP_BOARD=blackboard" }, DTP_ERR_FORMAT,
      "DTP_BOARD is 'blackboard'" },
    { "PMI without descriptor", { SECOND_OF_TWO, "DTP_BOARD=pmi1" }, DTP_ERR_FORMAT, "needs PMI_FD" },
    { "PMI descriptor that is none", { SECOND_OF_TWO, "DTP_BOARD=pmi1", "PMI_FD=999", "DTP_INSECURE=1" },
      DTP_ERR_INVAL, "descriptor 999 is no" },
    { "board that is not there", { SECOND_OF_TWO, "DTP_BOARD=/no/such", "DTP_INSECURE=1" },
      DTP_ERR_NOT_FOUND, "cannot use board /no/such" },
    { "Slurm, rank 0 anywhere", { SLURM_STEP, "SLURM_STEP_NODELIST=t[1-2]",
      "SLURM_DISTRIBUTION=arbitrary" }, DTP_ERR_FORMAT, "SLURM_DISTRIBUTION=arbitrary does not say" },
    { "Slurm with too few names", { SLURM_STEP, "SLURM_STEP_NODELIST=t2", "SLURM_NODEID=3",
      "SLURM_STEP_NUM_NODES=4", "SLURM_NTASKS=4", "SLURM_STEP_TASKS_PER_NODE=1(x4)", "DTP_RADIX=1" },
      DTP_ERR_FORMAT, "node list t2 has no node 2" },
    { "Slurm without names", { SLURM_STEP }, DTP_ERR_FORMAT, "SLURM_STEP_NODELIST is not" },
    { "Slurm with a broken list", { SLURM_STEP, "SLURM_STEP_NODELIST=t[1-" }, DTP_ERR_FORMAT, "t[1-" },
    { "bad root", { "DTP_RANK=0", "DTP_WORLD_SIZE=2", "DTP_LOCAL_RANK=0", "DTP_LOCAL_SIZE=1",
      "DTP_ROOT=nowhere", "DTP_INSECURE=1" }, DTP_ERR_FORMAT, "address 'nowhere' is not host:port" },
    { "long job", { "DTP_RANK=0", "DTP_WORLD_SIZE=2", "DTP_INSECURE=1", "DTP_JOB="
      "a-name-of-a-job-that-has-more-than-sixty-three-bytes-and-is-not-cut" }, DTP_ERR_INVAL,
      "is longer than 63 bytes" },
    { "bad net", { "DTP_RANK=0", "DTP_WORLD_SIZE=2", "DTP_NET=pigeon", "DTP_INSECURE=1" }, DTP_ERR_INVAL,
      "net 'pigeon'" },
};

/* Where the root is sought, as the log says. */
static const struct row roots[] = {
    { "torchrun's store", { TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE=True" }, 0,
      "as torchrun says; root: on board tcpstore h:29500" },
    { "a store at the last port", { "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
      "MASTER_ADDR=h", "MASTER_PORT=65535", "TORCHELASTIC_USE_AGENT_STORE=True" }, 0,
      "root: on board tcpstore h:65535" },
    { "few ports behind", { "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
      "MASTER_ADDR=h", "MASTER_PORT=65533" }, 0, "root: h:65534-65535" },
    { "ports behind torch's", { TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE=False" }, 0, "root: h:29501-29508" },
    { "no board", { TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE=True", "DTP_BOARD=none" }, 0,
      "root: h:29501-29508" },
    { "IPv6", { TORCHRUN, "MASTER_ADDR=fd00::1" }, 0, "root: [fd00::1]:29501-29508" },
    { "a folder", { SECOND_OF_TWO, "DTP_BOARD=/tmp" }, 0, "as dtp says; root: on board file /tmp" },
    { "a folder, longer", { SECOND_OF_TWO, "DTP_BOARD=file:/tmp" }, 0, "root: on board file /tmp" },
    { "a store", { SECOND_OF_TWO, "DTP_BOARD=tcpstore:[::1]:5" }, 0, "root: on board tcpstore [::1]:5" },
    { "Slurm", { SLURM_STEP, "SLURM_STEP_NODELIST=t[3-4],n7" }, 0, "as Slurm says; root: t3:6" },
    { "Slurm, third of four in a chain", { "SLURM_JOB_ID=12", "SLURM_STEP_ID=3", "SLURM_PROCID=2",
      "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_NODEID=2", "SLURM_STEP_NUM_NODES=4",
      "SLURM_STEP_TASKS_PER_NODE=1(x4)", "SLURM_STEP_NODELIST=t[3-4],n[7-8]", "DTP_RADIX=1",
      "DTP_MUNGE=0" }, 0,
      "; parent: t4:6" },
    { "Slurm with PMIx", { SLURM_STEP, "SLURM_STEP_NODELIST=t[3-4]", "PMIX_NAMESPACE=x" }, 0,
      "root: on board pmix" },
    { "Slurm without board", { SLURM_STEP, "SLURM_STEP_NODELIST=t[3-4]", "PMIX_NAMESPACE=x",
      "DTP_BOARD=none" }, 0, "root: t3:6" },
    { "Slurm with PMI-2", { SLURM_STEP, "PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=3",
      "SLURM_STEP_NODELIST=t[1-2]" }, 0, "as Slurm says; root: t1:6" },
    { "Slurm with PMI-2, rank 0 anywhere", { SLURM_STEP, "PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=3",
      "SLURM_DISTRIBUTION=arbitrary" }, 0, "root: on board pmi2" },
    { "Hydra", { "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1", "PMI_FD=3" }, 0,
      "as Hydra says; root: on board pmi1" },
    { "Hydra, one node", { "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2",
      "PMI_FD=3" }, 0, "root: here" },
    { "Open MPI", { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
      "OMPI_COMM_WORLD_LOCAL_SIZE=1", "PMIX_NAMESPACE=x" }, 0, "as Open MPI says; root: on board pmix" },
};

static void set_environment(const struct row *row)
{
    char job[32];

    clearenv();
    /* Another run of this test may go on beside this one. */
    snprintf(job, sizeof(job), "env-%d", (int)getppid());
    setenv("DTP_JOB", job, 1);
    for (size_t i = 0; row->vars[i]; i++)
        putenv((char *)(uintptr_t)row->vars[i]);
}

static void log_root(void *user, dtp_log_level level, const char *topic, const char *text)
{
    (void)level;
    if (strcmp(topic, "group") == 0 && strstr(text, "; root: "))
        snprintf(user, 400, "%s", text);
}

static void look_in_child(const struct row *row)
{
    char log[400] = "";
    const dtp_ctx_opts co = { .size = sizeof(co), .log = log_root, .log_user = log,
                              .log_level = DTP_LOG_INFO };
    dtp_group *g = NULL;
    dtp_error err;
    dtp_ctx *ctx;

    set_environment(row);
    if (dtp_ctx_open(&co, &ctx, &err) < 0 || dtp_group_join_from_env(ctx, &g, &err) != DTP_ERR_AUTH)
        _exit(2);
    dtp_ctx_close(ctx);
    if (!strstr(log, row->text)) {
        fprintf(stderr, "%s: the log says '%s'\n", row->name, log);
        _exit(1);
    }
    _exit(0);
}

static void in_child(const struct row *row)
{
    dtp_error err = { 0 };
    dtp_group *g = NULL;
    dtp_ctx *ctx;

    set_environment(row);
    if (dtp_ctx_open(NULL, &ctx, &err) < 0)
        _exit(2);
    const dtp_status st = dtp_group_join_from_env(ctx, &g, &err);
    if (st != row->want || (row->text && !strstr(err.text, row->text))) {
        fprintf(stderr, "%s: got %s: %s\n", row->name, dtp_status_name(st), err.text);
        _exit(1);
    }
    if (st < 0 && strcmp(err.noun, "group") != 0)
        _exit(3);
    dtp_group_close(g);
    dtp_ctx_close(ctx);
    _exit(0);
}

static void run_in_child(const struct row *row, void (*fn)(const struct row *row))
{
    int status;

    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        fn(row);
    waitpid(pid, &status, 0);
    if (status)
        fail_msg("%s: status 0x%x", row->name, status);
}

static void run_row(const struct row *row)
{
    run_in_child(row, in_child);
}

static void test_root_is_sought_where_the_launcher_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++)
        run_in_child(&roots[i], look_in_child);
}

static void test_variables_of_launchers_are_understood_or_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        run_row(&rows[i]);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static void test_secret_file_must_be_private_and_whole(void **state)
{
    char path[64] = "/tmp/dtp-secret-XXXXXX", var[100];
    struct row row = { "secret file", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_TIMEOUT_MS=20", var },
                       DTP_ERR_TIMEOUT, "no agent" };

    (void)state;
    close(mkstemp(path));
    snprintf(var, sizeof(var), "DTP_SECRET_FILE=%s", path);
    write_file(path, SECRET "\n", 0600);
    run_row(&row);
    write_file(path, SECRET "\n", 0644);
    row.want = DTP_ERR_PERM;
    row.text = "rank 1 of 2: DTP_SECRET_FILE";
    run_row(&row);
    write_file(path, "12\n", 0600);
    row.want = DTP_ERR_FORMAT;
    row.text = "64 hex digits";
    run_row(&row);
    write_file(path, SECRET "00", 0600);
    run_row(&row);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    row.text = "is no regular file";
    run_row(&row);
    unlink(path);
}

/* Through a pipe, and from a file wherever that stands; closed afterwards. */
static void check_fd(int fd, const char *want_text, dtp_status want)
{
    char var[40];
    const struct row row = { "secret descriptor", { "DTP_RANK=1", "DTP_WORLD_SIZE=2", "DTP_TIMEOUT_MS=20",
                             var }, want, want_text };

    snprintf(var, sizeof(var), "DTP_SECRET_FD=%d", fd);
    run_row(&row);
}

static void test_secret_comes_by_a_descriptor_once(void **state)
{
    static const struct { const char *text, *want_text; dtp_status want; } pipes[] = {
        { SECRET "\n", "no agent", DTP_ERR_TIMEOUT },
        { SECRET "and more", "no agent", DTP_ERR_TIMEOUT },
        { "1234", "64 hex digits, but 4 bytes", DTP_ERR_FORMAT },
        { "", "64 hex digits, but 0 bytes", DTP_ERR_FORMAT },
    };
    char path[64] = "/tmp/dtp-secret-XXXXXX";
    int p[2];

    (void)state;
    for (size_t i = 0; i < sizeof(pipes) / sizeof(pipes[0]); i++) {
        assert_int_equal(pipe(p), 0);
        assert_int_equal(write(p[1], pipes[i].text, strlen(pipes[i].text)), strlen(pipes[i].text));
        close(p[1]);
        check_fd(p[0], pipes[i].want_text, pipes[i].want);
        close(p[0]);
    }
    const int fd = mkstemp(path);
    assert_int_equal(write(fd, SECRET "\n", 65), 65);
    check_fd(fd, "no agent", DTP_ERR_TIMEOUT);
    assert_int_equal(write(fd, "more", 4), 4);
    check_fd(fd, "more than 64 bytes", DTP_ERR_FORMAT);
    close(fd);
    unlink(path);
}

static dtp_status collect(void *user, const char *name, const char *value)
{
    char *text = user;
    const size_t at = strlen(text);

    snprintf(text + at, 400 - at, "%s=%s ", name, value);
    return DTP_OK;
}

static void test_options_are_told_by_variables(void **state)
{
    char text[400] = "";
    dtp_group_opts o = { .size = sizeof(o), .rank = 1, .world_size = 4, .local_rank = 1, .local_size = 2,
                         .job = "j", .root = "h:5", .node = 0, .n_nodes = 2, .radix = 3, .encrypt = 1,
                         .munge = "" };

    (void)state;
    assert_ok(dtpi_group_env_write(&o, collect, text, ERR));
    assert_string_equal(text, "DTP_JOB=j DTP_ATTEMPT=0 DTP_RANK=1 DTP_WORLD_SIZE=4 DTP_LOCAL_RANK=1 "
                              "DTP_LOCAL_SIZE=2 DTP_NODE=0 DTP_NODES=2 DTP_RADIX=3 DTP_ROOT=h:5 DTP_ENCRYPT=1 "
                              "DTP_MUNGE=1 ");
    text[0] = '\0';
    o.munge = "/run/munged";
    assert_ok(dtpi_group_env_write(&o, collect, text, ERR));
    assert_non_null(strstr(text, "DTP_MUNGE=/run/munged "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables_of_launchers_are_understood_or_named),
        cmocka_unit_test(test_root_is_sought_where_the_launcher_says),
        cmocka_unit_test(test_secret_file_must_be_private_and_whole),
        cmocka_unit_test(test_secret_comes_by_a_descriptor_once),
        cmocka_unit_test(test_options_are_told_by_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
