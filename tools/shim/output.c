/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.c - what ranks write: into log files first, and to the supervisor from there.
 *
 * A supervisor that is slow or absent never stops a rank, and costs no memory: what it lacks is
 * read from the log when its queue has room. One that keeps up gets the bytes without that detour.
 */
#include "shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 64 << 10, CHUNKS_PER_TURN = 8, DRAIN_CHUNKS = 32 };

static bool is_open(const stream *st)
{
    return st->source.fd >= 0;
}

static void end_stream(stream *st)
{
    dtpi_source_remove(st->owner->shim->ctx, &st->source);
    dtpi_close_fd(&st->source.fd);
}

static void close_log(stream *st)
{
    shim *s = st->owner->shim;

    dtpi_close_fd(&st->log_fd);
    for (uint32_t i = 0; i < MAX_LOGS; i++)
        if (s->logs[i] == st)
            s->logs[i] = NULL;
}

/* Few are open at a time: a gang of hundreds needs no descriptors for its logs. */
static bool open_log(stream *st)
{
    const rank *r = st->owner;
    shim *s = r->shim;
    char path[96];

    if (st->log_fd >= 0)
        return true;
    if (s->logs[s->next_log])
        close_log(s->logs[s->next_log]);
    snprintf(path, sizeof(path), "logs/attempt-%u/rank-%d.%s", s->gang.attempt, (int)r->index,
             st->number == 1 ? "out" : "err");
    st->log_fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (st->log_fd < 0)
        return false;
    s->logs[s->next_log] = st;
    s->next_log = (s->next_log + 1) % MAX_LOGS;
    return true;
}

/* Bytes that cannot be logged go to the supervisor only; said once per stream. */
static size_t write_log(stream *st, const uint8_t *data, size_t bytes)
{
    size_t done = 0;

    if (!open_log(st))
        goto failed;
    while (done < bytes) {
        const ssize_t n = write(st->log_fd, data + done, bytes - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            goto failed;
    }
    st->written += bytes;
    return bytes;

failed:
    st->written += done;
    if (!st->log_failed)
        shim_notice(st->owner->shim, "the log of rank %d cannot be written: %m",
                    (int)st->owner->index);
    st->log_failed = true;
    return done;
}

static void send_bytes(stream *st, const uint8_t *data, size_t bytes)
{
    const dtpi_shim_msg msg = { .type = DTPI_SHIM_OUTPUT, .rank = st->owner->index,
                                .stream = st->number, .data = data, .data_bytes = bytes };

    serve_tell(st->owner->shim, &msg);
}

static void take(stream *st, const uint8_t *data, size_t bytes)
{
    shim *s = st->owner->shim;
    const bool in_step = st->sent == st->written;
    const size_t logged = write_log(st, data, bytes);

    if (!serve_has_supervisor(s) || !in_step || dtpi_conn_room(s->supervisor) == 0)
        return;
    send_bytes(st, data, bytes);
    st->sent += logged;
}

/* Reads at most `chunks` pieces. */
static void read_pipe(stream *st, int chunks)
{
    uint8_t data[CHUNK];

    for (int i = 0; i < chunks && is_open(st); i++) {
        const ssize_t n = read(st->source.fd, data, sizeof(data));
        if (n > 0)
            take(st, data, (size_t)n);
        else if (n < 0 && errno == EAGAIN)
            return;
        else if (n == 0 || errno != EINTR)
            end_stream(st);
    }
}

static void ready(dtpi_source *source, uint32_t revents)
{
    stream *st = DTPI_CONTAINER(source, stream, source);

    (void)revents;
    read_pipe(st, CHUNKS_PER_TURN);
}

dtp_status output_make_folder(shim *s, dtp_error *err)
{
    char path[64];

    snprintf(path, sizeof(path), "logs/attempt-%u", s->gang.attempt);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot make folder %s: %m", path);
    return DTP_OK;
}

dtp_status output_open(shim *s, rank *r, int fds[2], dtp_error *err)
{
    for (int i = 0; i < 2; i++) {
        stream *st = &r->streams[i];
        *st = (stream){ .owner = r, .number = i + 1, .log_fd = -1 };
        st->source =
            (dtpi_source){ .fd = dtpi_take_fd(&fds[i]), .events = EPOLLIN, .ready = ready };
        const dtp_status status = dtpi_source_add(s->ctx, &st->source, err);
        if (status < 0)
            return status;
    }
    return DTP_OK;
}

void output_drain(shim *s, rank *r)
{
    (void)s;
    for (int i = 0; i < 2; i++)
        read_pipe(&r->streams[i], DRAIN_CHUNKS);
}

/* One piece from the log; false when there is no room or the log cannot be read. */
static bool catch_up(shim *s, stream *st)
{
    uint8_t data[CHUNK];

    if (dtpi_conn_room(s->supervisor) == 0)
        return false;
    const ssize_t n =
        !open_log(st) ? -1
                      : pread(st->log_fd, data,
                              DTPI_MIN(sizeof(data), (size_t)(st->written - st->sent)), (off_t)st->sent);
    if (n <= 0) {
        st->sent = st->written;
        shim_notice(s, "the log of rank %d cannot be read", (int)st->owner->index);
        return true;
    }
    send_bytes(st, data, (size_t)n);
    st->sent += (uint64_t)n;
    return true;
}

bool output_pump(shim *s)
{
    if (!serve_has_supervisor(s))
        return true;
    for (uint32_t i = 0; i < s->gang.n; i++) {
        for (int k = 0; k < 2; k++) {
            stream *st = &s->gang.ranks[i].streams[k];
            if (!st->owner)
                continue;
            while (st->sent < st->written)
                if (!catch_up(s, st))
                    return false;
            if (!is_open(st) && !st->end_sent) {
                st->end_sent = true;
                send_bytes(st, NULL, 0);
            }
        }
    }
    return true;
}

void output_rewind(shim *s, bool all)
{
    for (uint32_t i = 0; i < s->gang.n; i++) {
        for (int k = 0; k < 2; k++) {
            stream *st = &s->gang.ranks[i].streams[k];
            st->sent = all ? 0 : st->written;
            st->end_sent = false;
        }
    }
}

void output_close(shim *s, rank *r)
{
    (void)s;
    for (int k = 0; k < 2; k++) {
        stream *st = &r->streams[k];
        if (!st->owner)
            continue;
        if (is_open(st))
            end_stream(st);
        close_log(st);
    }
}
