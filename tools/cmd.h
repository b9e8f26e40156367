/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd.h - what a sub-command of `dtp` is: one file cmd_<name>.c that defines `const dtp_cmd cmd_<name>`,
 * one line in main.c's table, one source in meson.build.
 *
 * `run` gets argv with argv[0] the sub-command's name and returns the exit code. Results go to stdout,
 * failures as one line to stderr (cmd_fail). Options are read with getopt_long, with a leading '+' where
 * what follows the first other argument is to be left alone; `-h` and `--help` call cmd_help().
 */
#ifndef DTP_TOOLS_CMD_H
#define DTP_TOOLS_CMD_H

#include <dtp/base.h>

typedef struct dtp_cmd {
    const char *name;           /* "topo" */
    const char *summary;        /* one line for the list of sub-commands */
    const char *help;           /* all of `dtp NAME --help`; man pages are made from it */
    int (*run)(int argc, char **argv);
} dtp_cmd;

/* Exit codes every sub-command uses; `run` has its own. */
enum { CMD_OK = 0, CMD_FAILED = 1 };

extern const dtp_cmd cmd_attach, cmd_cancel, cmd_ckpt, cmd_logs, cmd_ps, cmd_run, cmd_topo;

/* Prints the help to stdout; CMD_OK. */
int cmd_help(const dtp_cmd *cmd);

/* "dtp topo: TEXT" to stderr; CMD_FAILED. */
int cmd_fail(const dtp_cmd *cmd, const dtp_error *err);

/* "dtp topo: TEXT (dtp topo --help)" to stderr; CMD_FAILED. */
int cmd_usage(const dtp_cmd *cmd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Says which option getopt_long did not like (`c` is '?' or ':'; its string has ':' in front); CMD_FAILED. */
int cmd_bad_option(const dtp_cmd *cmd, int c, char **argv);

/* Flushes stdout; CMD_OK, or CMD_FAILED with a line when it could not be written (a full disk). */
int cmd_finish(const dtp_cmd *cmd);

#endif /* DTP_TOOLS_CMD_H */
