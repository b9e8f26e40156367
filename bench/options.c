/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - the options of a benchmark, and one line about what is wrong with them. */
#include <getopt.h>
#include <stdio.h>

#include "bench.h"

const char *bench_option_name(const struct option *options, int c)
{
    for (const struct option *o = options; o->name; o++)
        if (o->val == c)
            return o->name;
    return "?";
}

int bench_read_options(const bench_options *o, int argc, char **argv)
{
    int c;

    opterr = 0;
    optind = 1;
    while ((c = getopt_long(argc, argv, o->letters, o->names, NULL)) != -1) {
        if (c == 'h') {
            fputs(o->cmd->help, stdout);
            return BENCH_OK;
        }
        if (c == ':')
            return bench_usage(o->cmd, "option %s needs a value", argv[optind - 1]);
        if (c == '?' && optopt == 0)
            return bench_usage(o->cmd, "unknown option %s", argv[optind - 1]);
        if (c == '?')
            return bench_usage(o->cmd, "unknown option -%c", optopt);
        if (!o->take(o->user, c, optarg))
            return bench_usage(o->cmd, "--%s: '%s' is not possible", bench_option_name(o->names, c), optarg);
    }
    if (optind < argc)
        return bench_usage(o->cmd, "'%s' is one word too many", argv[optind]);
    return BENCH_GO_ON;
}
