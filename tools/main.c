/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the program `dtp`: finds the sub-command and hands over. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

int cmd_bad_option(const dtp_cmd *cmd, int c, char **argv)
{
    const char *last = argv[optind - 1];

    if (c == ':')
        return cmd_usage(cmd, "option %s needs a value", last);
    /* Of a cluster such as -xn, getopt has not moved on yet: only optopt knows the letter. */
    if (optopt == 0)
        return cmd_usage(cmd, "unknown option %s", last);
    if (strncmp(last, "--", 2) == 0 && strchr(last, '='))
        return cmd_usage(cmd, "option %.*s takes no value", (int)strcspn(last, "="), last);
    return cmd_usage(cmd, "unknown option -%c", optopt);
}

static int finish(const char *program)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CMD_OK;
    fprintf(stderr, "%s: cannot write the output: %s\n", program, strerror(errno));
    return CMD_FAILED;
}

int cmd_finish(const dtp_cmd *cmd)
{
    char program[64];

    snprintf(program, sizeof(program), "dtp %s", cmd->name);
    return finish(program);
}

/* Descriptors 0 to 2 are nobody else's: one that is closed would be reused, and written to. */
static void keep_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0)
            return;
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

static int help(const char *name)
{
    const dtp_cmd *cmd = name ? find(name) : NULL;

    if (cmd)
        return cmd_help(cmd);
    if (name) {
        fprintf(stderr, "dtp: there is no command %s (dtp --help)\n", name);
        return CMD_FAILED;
    }
    print_usage(stdout);
    return finish("dtp");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;

    keep_standard_descriptors();
    if (!name) {
        print_usage(stderr);
        return CMD_FAILED;
    }
    if (strcmp(name, "--version") == 0) {
        printf("dtp %s\n", dtp_version());
        return finish("dtp");
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(argc > 2 ? argv[2] : NULL);
    const dtp_cmd *cmd = find(name);
    if (!cmd) {
        fprintf(stderr, "dtp: there is no command %s (dtp --help)\n", name);
        return CMD_FAILED;
    }
    return cmd->run(argc - 1, argv + 1);
}
