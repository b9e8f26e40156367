/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers say in the environment, right, half and contradicting; in a forked child each. */
#include "check.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dtp/group.h>

#include "ctx/ctx.h"

#define SECRET "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

struct row {
    const char *name;
    const char *vars[12];       /* NAME=VALUE */
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
      DTP_ERR_FORMAT, "DTP_SECRET contradicts DTP_INSECURE=1" },
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
    { "two launchers", { "RANK=1", "WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=8" },
      DTP_ERR_FORMAT, "WORLD_SIZE=4 contradicts OMPI_COMM_WORLD_SIZE=8" },
    { "two ranks", { "DTP_RANK=1", "DTP_WORLD_SIZE=4", "RANK=2", "WORLD_SIZE=4" }, DTP_ERR_FORMAT,
      "DTP_RANK=1 contradicts RANK=2" },
    { "Open MPI", { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2" }, DTP_ERR_AUTH, "rank 1 of 2 has no job secret" },
    { "Hydra", { "PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=3", "MPI_LOCALNRANKS=4" }, DTP_ERR_AUTH,
      "rank 3 of 4 has no job secret" },
    { "Slurm", { "SLURM_PROCID=5", "SLURM_NTASKS=6", "SLURM_LOCALID=1", "SLURM_NODEID=2",
      "SLURM_STEP_TASKS_PER_NODE=2(x3)", "DTP_ROOT=127.0.0.1:1" }, DTP_ERR_AUTH,
      "rank 5 of 6 has no job secret" },
    { "Slurm, uneven", { "SLURM_PROCID=5", "SLURM_NTASKS=6", "SLURM_LOCALID=1", "SLURM_NODEID=1",
      "SLURM_STEP_TASKS_PER_NODE=5,1", "DTP_ROOT=127.0.0.1:1" }, DTP_ERR_FORMAT,
      "SLURM_LOCALID=1 contradicts SLURM_STEP_TASKS_PER_NODE=1" },
    { "mpirun under Slurm", { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "SLURM_PROCID=0",
      "SLURM_NTASKS=9", "SLURM_LOCALID=0" }, DTP_ERR_AUTH, "rank 1 of 2 has no job secret" },
    { "bad root", { "DTP_RANK=0", "DTP_WORLD_SIZE=2", "DTP_LOCAL_RANK=0", "DTP_LOCAL_SIZE=1",
      "DTP_ROOT=nowhere", "DTP_INSECURE=1" }, DTP_ERR_FORMAT, "root 'nowhere' is not host:port" },
    { "long job", { "DTP_RANK=0", "DTP_WORLD_SIZE=2", "DTP_INSECURE=1", "DTP_JOB="
      "a-name-of-a-job-that-has-more-than-sixty-three-bytes-and-is-not-cut" }, DTP_ERR_INVAL,
      "is longer than 63 bytes" },
    { "bad net", { "DTP_RANK=0", "DTP_WORLD_SIZE=2", "DTP_NET=pigeon", "DTP_INSECURE=1" }, DTP_ERR_INVAL,
      "net 'pigeon'" },
};

static void in_child(const struct row *row)
{
    dtp_error err = { 0 };
    dtp_group *g = NULL;
    dtp_ctx *ctx;

    clearenv();
    for (size_t i = 0; row->vars[i]; i++)
        putenv((char *)(uintptr_t)row->vars[i]);
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

static void run_row(const struct row *row)
{
    int status;

    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        in_child(row);
    waitpid(pid, &status, 0);
    if (status)
        fail_msg("%s: status 0x%x", row->name, status);
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
    row.text = "readable by others";
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variables_of_launchers_are_understood_or_named),
        cmocka_unit_test(test_secret_file_must_be_private_and_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
