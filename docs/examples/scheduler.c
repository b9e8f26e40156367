/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scheduler.c - an in-house scheduler with a loop of its own: two gangs on one machine, watched
 * through one descriptor. Kill it and start it again: it takes its running jobs over.
 */
#include <dtp/dtp.h>
#include <stdio.h>
#include <sys/epoll.h>

static const char *const names[] = { "red", "blue" };
static const char script[] = "for i in 1 2 3 4 5 6 7 8 9; do echo step $i; sleep 0.1; done";
static const char *const program[] = { "sh", "-c", script, NULL };
static int n_running;

static void on_event(void *name, dtp_job *job, const dtp_job_event *ev)
{
    dtp_job_info info = { .size = sizeof(info) };
    if (ev->type == DTP_JOB_EV_OUTPUT)
        printf("%s rank %d: %s\n", (const char *)name, ev->rank, ev->text);
    if (ev->type == DTP_JOB_EV_STATE && ev->state >= DTP_JOB_DONE) {
        dtp_job_get_info(job, &info, NULL);
        printf("%s has ended with %d\n", (const char *)name, info.exit_code);
        n_running--;
    }
}

int main(int argc, char **argv)
{
    struct epoll_event ev = { .events = EPOLLIN };
    dtp_job *jobs[2] = { NULL, NULL };
    const int loop = epoll_create1(0);
    dtp_error err = { 0 };
    dtp_ctx *ctx = NULL;
    dtp_topo *topo = NULL;

    setlinebuf(stdout);
    dtp_status st = dtp_ctx_open(NULL, &ctx, &err);
    if (st >= 0)
        st = dtp_topo_load(ctx, NULL, &topo, &err);
    for (int i = 0; i < 2 && st >= 0; i++, n_running++) {
        const dtp_job_spec spec = { .size = sizeof(spec), .name = names[i], .argv = program,
                                    .n_ranks = 1, .cores_per_rank = 1, .max_restarts = 1 };
        const dtp_job_opts opts = { .size = sizeof(opts), .run_dir = argc > 1 ? argv[1] : NULL,
                                    .topo = topo, .on_event = on_event, .user = (void *)names[i] };
        st = dtp_job_attach(ctx, names[i], &opts, &jobs[i], &err);
        printf("%s %s\n", names[i], st == DTP_ERR_NOT_FOUND ? "is started" : "goes on");
        if (st == DTP_ERR_NOT_FOUND)
            st = dtp_job_start(ctx, &spec, &opts, &jobs[i], &err);
    }
    if (st >= 0)    /* the scheduler's own descriptors would be in the same loop */
        epoll_ctl(loop, EPOLL_CTL_ADD, dtp_ctx_fd(ctx), &ev);
    while (st >= 0 && n_running > 0 && epoll_wait(loop, &ev, 1, -1) >= 0)
        st = dtp_ctx_dispatch(ctx, 0, &err);
    for (int i = 0; i < 2; i++)
        dtp_job_close(jobs[i]);
    dtp_topo_close(topo);
    dtp_ctx_close(ctx);
    return st < 0 ? fprintf(stderr, "scheduler: %s\n", err.text), 1 : 0;
}
