/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - puts the states that a crash may have left of a recorded program into a folder, one after
 * another, and asks a judge about each. The judge reads "PROMISE", the last mark before the crash, looks
 * at the folder and answers with a line: "ok ..." or anything else, which is counted by its first word.
 *
 *   crash_replay LOG FOLDER-IT-WAS STATES SEED FOLDER JUDGE [ARGUMENTS]
 *
 * Prints a JSON line with the counts, and of each kind of verdict one example with the operations before it.
 */
#include "check.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crash/recorded.h"
#include "crash/states.h"
#include "tree.h"

enum { MAX_VERDICTS = 16 };

typedef struct replay {
    const char *dir;
    FILE *to, *from;
    const recorded *log;
    size_t max_states, n;
    struct {
        char word[32];
        size_t n;
    } verdicts[MAX_VERDICTS];
    size_t n_verdicts;
} replay;

/* The last mark that was made before; 0: none. */
static uint64_t promise(void *user, size_t done)
{
    const replay *r = user;
    uint64_t what = 0;

    for (size_t i = 0; i < r->log->n_marks; i++)
        if (r->log->marks[i].done <= done)
            what = r->log->marks[i].what;
    return what;
}

static void show(const replay *r, size_t done, const char *how, const char *verdict)
{
    char text[300];

    fprintf(stderr, "crash after operation %zu of %zu, %s: %s\n", done, r->log->n, how, verdict);
    for (size_t i = done > 6 ? done - 6 : 0; i < done; i++) {
        crash_op_text(&r->log->ops[i], text, sizeof(text));
        fprintf(stderr, "  %4zu %s\n", i + 1, text);
    }
}

static void count(replay *r, size_t done, const char *how, const char *verdict)
{
    const size_t len = strcspn(verdict, " \n");
    size_t i = 0;

    while (i < r->n_verdicts &&
           (strncmp(r->verdicts[i].word, verdict, len) != 0 || r->verdicts[i].word[len]))
        i++;
    if (i == MAX_VERDICTS)
        return;
    if (i == r->n_verdicts) {
        snprintf(r->verdicts[r->n_verdicts++].word, sizeof(r->verdicts[i].word), "%.*s", (int)len, verdict);
        if (strncmp(verdict, "ok", 2) != 0)
            show(r, done, how, verdict);
    }
    r->verdicts[i].n++;
}

static int judge(void *user, size_t done, const crash_state *s, const char *how)
{
    replay *r = user;
    char line[512];

    if (r->n == r->max_states)
        return -1;
    r->n++;
    tree_empty(r->dir);
    if (crash_state_put(s, r->dir) < 0) {
        fprintf(stderr, "crash_replay: cannot write to %s\n", r->dir);
        exit(1);
    }
    fprintf(r->to, "%llu\n", (unsigned long long)promise(r, done));
    fflush(r->to);
    if (!fgets(line, sizeof(line), r->from)) {
        fprintf(stderr, "crash_replay: the judge is gone\n");
        exit(1);
    }
    line[strcspn(line, "\n")] = '\0';
    count(r, done, how, line);
    return 0;
}

static pid_t start_judge(replay *r, char **argv)
{
    int to[2], from[2];

    if (pipe(to) < 0 || pipe(from) < 0)
        exit(1);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    r->to = fdopen(to[1], "w");
    r->from = fdopen(from[0], "r");
    return pid;
}

int main(int argc, char **argv)
{
    crash_seen seen = { 0 };
    recorded log;
    int status;

    if (argc < 7 || recorded_read(&log, argv[1], argv[2]) < 0) {
        fprintf(stderr, "usage: crash_replay LOG FOLDER-IT-WAS STATES SEED FOLDER JUDGE [ARGUMENTS]\n");
        return 2;
    }
    replay r = { .dir = argv[5], .log = &log, .max_states = strtoull(argv[3], NULL, 0) };
    const pid_t pid = start_judge(&r, argv + 6);
    crash_walk w = { .ops = log.ops, .n = log.n, .max_all = 400, .n_random = r.max_states / (log.n + 1) + 1,
                     .seed = strtoull(argv[4], NULL, 0), .seen = &seen, .promise = promise, .check = judge,
                     .user = &r };
    crash_walk_run(&w);
    fclose(r.to);
    waitpid(pid, &status, 0);
    printf("{\"operations\": %zu, \"states\": %zu", log.n, r.n);
    for (size_t i = 0; i < r.n_verdicts; i++)
        printf(", \"%s\": %zu", r.verdicts[i].word, r.verdicts[i].n);
    printf("}\n");
    crash_seen_free(&seen);
    recorded_free(&log);
    return status;
}
