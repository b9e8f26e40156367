/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the program `dtp`: finds the sub-command and hands over. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"

static const dtp_cmd *const commands[] = {
    &cmd_topo, &cmd_run, &cmd_ps, &cmd_logs, &cmd_cancel, &cmd_attach, &cmd_ckpt,
};

enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

int cmd_help(const dtp_cmd *cmd)
{
    fputs(cmd->help, stdout);
    return cmd_finish(cmd);
}

int cmd_fail(const dtp_cmd *cmd, const dtp_error *err)
{
    fprintf(stderr, "dtp %s: %s\n", cmd->name,
            err->text[0] ? err->text : dtp_status_text(err->status));
    return CMD_FAILED;
}

int cmd_usage(const dtp_cmd *cmd, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "dtp %s: ", cmd->name);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, " (dtp %s --help)\n", cmd->name);
    return CMD_FAILED;
}

int cmd_finish(const dtp_cmd *cmd)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CMD_OK;
    fprintf(stderr, "dtp %s: cannot write the output: %s\n", cmd->name, strerror(errno));
    return CMD_FAILED;
}

static void print_usage(FILE *out)
{
    fprintf(out, "usage: dtp COMMAND [OPTIONS]\n\n"
                 "Machines, jobs and checkpoints of distributed training.\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n`dtp COMMAND --help` tells more; `dtp --version` prints the version.\n");
}

static const dtp_cmd *find(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;

    if (!name) {
        print_usage(stderr);
        return CMD_FAILED;
    }
    if (strcmp(name, "--version") == 0) {
        printf("dtp %s\n", dtp_version());
        return 0;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        const dtp_cmd *about = argc > 2 ? find(argv[2]) : NULL;
        if (about)
            return cmd_help(about);
        print_usage(stdout);
        return 0;
    }
    const dtp_cmd *cmd = find(name);
    if (!cmd) {
        fprintf(stderr, "dtp: there is no command %s (dtp --help)\n", name);
        return CMD_FAILED;
    }
    return cmd->run(argc - 1, argv + 1);
}
