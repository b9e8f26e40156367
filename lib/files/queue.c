/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue.c - transfers in flight. A member of the family without queues of its own does each transfer
 * when it is submitted, in the order of submission, so that a recorder sees every one of them.
 */
#include "files/files.h"

dtp_status dtpi_queue_open(dtpi_files *files, uint32_t depth, dtpi_queue **queue_out,
                           dtp_error *err)
{
    if (files->ops->queue_open)
        return files->ops->queue_open(files, depth, queue_out, err);
    dtpi_queue *q = dtpi_alloc(files->a, sizeof(*q));
    if (!q)
        return dtpi_fail_nomem(err, sizeof(*q));
    q->files = files;
    q->depth = depth;
    q->ended_end = &q->ended;
    *queue_out = q;
    return DTP_OK;
}

void dtpi_queue_close(dtpi_queue *q)
{
    if (!q)
        return;
    if (q->files->ops->queue_close)
        q->files->ops->queue_close(q);
    else
        dtpi_free(q->files->a, q, sizeof(*q));
}

static void do_now(dtpi_queue *q, dtpi_io *io)
{
    const struct dtpi_files_ops *ops = q->files->ops;

    io->status = io->is_write ? ops->write(io->file, io->at, io->data, io->bytes, &io->why)
                              : ops->read(io->file, io->at, io->data, io->bytes, &io->why);
    io->next = NULL;
    *q->ended_end = io;
    q->ended_end = &io->next;
}

void dtpi_queue_submit(dtpi_queue *q, dtpi_io *io)
{
    assert(q->n_open < q->depth);
    q->n_open++;
    io->status = DTP_OK;
    if (q->files->ops->queue_submit)
        q->files->ops->queue_submit(q, io);
    else
        do_now(q, io);
}

dtpi_io *dtpi_queue_wait(dtpi_queue *q)
{
    if (q->n_open == 0)
        return NULL;
    q->n_open--;
    if (q->files->ops->queue_wait)
        return q->files->ops->queue_wait(q);
    dtpi_io *io = q->ended;
    q->ended = io->next;
    if (!q->ended)
        q->ended_end = &q->ended;
    return io;
}

dtp_status dtpi_queue_run(dtpi_queue *q, dtpi_io *ios, size_t n, dtp_error *err)
{
    bool failed = false;
    size_t i = 0;

    while (i < n || q->n_open > 0) {
        if (i < n && !failed && !dtpi_queue_is_full(q)) {
            dtpi_queue_submit(q, &ios[i++]);
            continue;
        }
        const dtpi_io *io = dtpi_queue_wait(q);
        if (!io)
            break;
        failed |= io->status < 0;
    }
    for (size_t k = 0; k < i; k++)
        if (ios[k].status < 0) {
            if (err)
                *err = ios[k].why;
            return ios[k].status;
        }
    return DTP_OK;
}
