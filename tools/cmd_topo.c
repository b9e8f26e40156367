/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_topo.c - `dtp topo`: draws this machine, or a recorded one. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <dtp/topo.h>

#include "cmd.h"

static const char help[] =
    "usage: dtp topo [OPTIONS]\n"
    "\n"
    "Shows this machine: packages, NUMA nodes, caches, cores, GPUs, NICs and NVMe disks.\n"
    "\n"
    "options:\n"
    "  --format FORMAT  text (a tree, the default), json, or matrix (as nvidia-smi topo -m)\n"
    "  --xml FILE       a recorded machine instead of this one: hwloc XML\n"
    "  --fsroot DIR     a recorded machine: a folder that holds its sys/ and proc/\n"
    "  --no-devices     processors and memory only\n"
    "  -h, --help       this text\n"
    "\n"
    "exit code: 0; 1 when the machine cannot be read or an option is wrong.\n";

static bool parse_format(const char *text, dtp_topo_format *format_out)
{
    static const char *const names[] = { [DTP_TOPO_TEXT] = "text", [DTP_TOPO_JSON] = "json",
                                         [DTP_TOPO_MATRIX] = "matrix" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(text, names[i]) == 0) {
            *format_out = (dtp_topo_format)i;
            return true;
        }
    return false;
}

static int show(const dtp_topo_opts *opts, dtp_topo_format format)
{
    dtp_error err = { 0 };
    dtp_ctx *ctx = NULL;
    dtp_topo *topo = NULL;
    char *text = NULL;
    dtp_status st = dtp_ctx_open(NULL, &ctx, &err);

    if (st >= 0)
        st = dtp_topo_load(ctx, opts, &topo, &err);
    if (st >= 0)
        st = dtp_topo_render(topo, format, &text, &err);
    if (st >= 0) {
        fputs(text, stdout);
        if (format == DTP_TOPO_JSON)
            fputc('\n', stdout);
    }
    dtp_text_free(text);
    dtp_topo_close(topo);
    dtp_ctx_close(ctx);
    return st < 0 ? cmd_fail(&cmd_topo, &err) : cmd_finish(&cmd_topo);
}

static int run(int argc, char **argv)
{
    static const struct option options[] = {
        { "format", required_argument, NULL, 'f' }, { "xml", required_argument, NULL, 'x' },
        { "fsroot", required_argument, NULL, 'r' }, { "no-devices", no_argument, NULL, 'n' },
        { "help", no_argument, NULL, 'h' },         { NULL, 0, NULL, 0 },
    };
    dtp_topo_opts opts = { .size = sizeof(opts) };
    dtp_topo_format format = DTP_TOPO_TEXT;

    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "+:h", options, NULL)) != -1;) {
        switch (c) {
        case 'f':
            if (!parse_format(optarg, &format))
                return cmd_usage(&cmd_topo, "unknown format %s: text, json or matrix", optarg);
            break;
        case 'x':
            opts.hwloc_xml = optarg;
            break;
        case 'r':
            opts.fsroot = optarg;
            break;
        case 'n':
            opts.no_devices = 1;
            break;
        case 'h':
            return cmd_help(&cmd_topo);
        default:
            return cmd_bad_option(&cmd_topo, c, argv);
        }
    }
    if (optind < argc)
        return cmd_usage(&cmd_topo, "unexpected argument %s", argv[optind]);
    return show(&opts, format);
}

const dtp_cmd cmd_topo = {
    .name = "topo", .summary = "show this machine, or a recorded one", .help = help, .run = run
};
