/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the program `dtp-bench`: finds the benchmark and hands over. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"

static const bench_cmd *const benches[] = { &bench_allreduce, &bench_boot, &bench_ckpt, &bench_topo };

enum { N_BENCHES = sizeof(benches) / sizeof(benches[0]) };

int bench_usage(const bench_cmd *cmd, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "dtp-bench %s: ", cmd->name);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, " (dtp-bench %s --help)\n", cmd->name);
    return BENCH_USAGE;
}

int bench_fail(const bench_cmd *cmd, const dtp_error *err)
{
    fprintf(stderr, "dtp-bench %s: %s\n", cmd->name,
            err->text[0] ? err->text : dtp_status_text(err->status));
    return BENCH_FAILED;
}

int bench_finish(int rc)
{
    if (rc != BENCH_OK || (fflush(stdout) == 0 && !ferror(stdout)))
        return rc;
    fprintf(stderr, "dtp-bench: cannot write the output: %s\n", strerror(errno));
    return BENCH_FAILED;
}

static void print_usage(FILE *out)
{
    fprintf(out, "usage: dtp-bench BENCHMARK [OPTIONS]\n\n"
                 "Measures libdtp on this machine, and checks every result.\n\ncommands:\n");
    for (int i = 0; i < N_BENCHES; i++)
        fprintf(out, "  %-10s %s\n", benches[i]->name, benches[i]->summary);
    fprintf(out, "\n`dtp-bench BENCHMARK --help` tells more; `dtp-bench --version` prints the version.\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";

    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_usage(stdout);
        return bench_finish(BENCH_OK);
    }
    if (strcmp(name, "--version") == 0) {
        printf("dtp-bench %s\n", dtp_version());
        return bench_finish(BENCH_OK);
    }
    for (int i = 0; i < N_BENCHES; i++)
        if (strcmp(name, benches[i]->name) == 0)
            return bench_finish(benches[i]->run(argc - 1, argv + 1));
    if (name[0])
        fprintf(stderr, "dtp-bench: no benchmark is called '%s' (dtp-bench --help)\n", name);
    else
        print_usage(stderr);
    return BENCH_USAGE;
}
