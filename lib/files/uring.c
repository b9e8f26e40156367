/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uring.c - many transfers in flight through io_uring, around the page cache (O_DIRECT).
 *
 * A transfer goes in parts. A part that is aligned in file and memory moves straight between disk and
 * the caller's memory; another goes through an aligned buffer of the queue's arena. What lies beside
 * aligned blocks at the ends of a write goes through the page cache, whole pages of which no direct
 * write touches. A read takes from the page cache what is there, until it misses once. Whatever the
 * ring refuses, and every file system without direct access (tmpfs), is done by plain calls: a ring can
 * make a transfer faster, but no transfer depends on one.
 *
 * Source: io_uring_enter(2), open(2) "O_DIRECT", statx(2) "stx_dio_mem_align".
 */
#include "files/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <liburing.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "files/sys.h"

enum {
    BLOCK = 4096,               /* a page: direct and cached bytes never share one */
    BUFFER_BYTES = 2 << 20,     /* of the arena, for each transfer */
    PART_BYTES = 8 << 20,       /* at most, straight to or from memory */
    SMALL_BYTES = 64 << 10,     /* a read below it goes through a buffer in one part; no block is larger */
    DIRECT_MIN = 1 << 20,       /* smaller files stay in the page cache */
    REGISTER_AFTER = 32,        /* parts through the arena; it takes as long as a few of them */
    MAX_DEPTH = 256
};

/* A transfer in flight: parts [0, done) of it are over, one is with the kernel. */
typedef struct slot {
    dtpi_io *io;                /* NULL: free */
    uint8_t *buffer;
    size_t done;
    size_t part;                /* bytes of the transfer in the part in flight */
    uint64_t from;              /* where the part begins in the file */
    size_t asked;               /* bytes asked of the kernel */
    bool is_buffered;
} slot;

typedef struct uring_queue {
    dtpi_queue base;
    struct io_uring ring;
    bool has_ring;
    bool is_refused;            /* the kernel takes no more: plain calls from here on */
    bool is_registered;         /* the arena, with the kernel */
    uint32_t n_flying, n_buffered;
    uint8_t *arena;
    slot *slots;
} uring_queue;

static uring_queue *queue_of(dtpi_queue *q)
{
    return DTPI_CONTAINER(q, uring_queue, base);
}

static dtpi_sys_file *file_of(const dtpi_io *io)
{
    return DTPI_CONTAINER(io->file, dtpi_sys_file, base);
}

/* ---- files ---- */

/* What direct access to the file asks for; false where it has none. */
static bool direct_needs(int fd, uint32_t *at_align_out, uint32_t *data_align_out)
{
    struct statx s = { 0 };
    struct statfs fs;

#ifdef STATX_DIOALIGN
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &s) == 0 && (s.stx_mask & STATX_DIOALIGN)) {
        *at_align_out = DTPI_MAX(s.stx_dio_offset_align, (uint32_t)BLOCK);
        *data_align_out = s.stx_dio_mem_align;
        return s.stx_dio_offset_align > 0 && SMALL_BYTES % *at_align_out == 0 &&
               *data_align_out <= BLOCK;
    }
#endif
    (void)s;
    if (fstatfs(fd, &fs) < 0 || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
        return false;
    *at_align_out = *data_align_out = BLOCK;
    return true;
}

/* A second descriptor of the same file, around the page cache; without one it is an ordinary file. */
static void add_direct(dtpi_file *file, int flags)
{
    dtpi_sys_file *f = DTPI_CONTAINER(file, dtpi_sys_file, base);
    struct stat a, b;

    if (!direct_needs(f->fd, &f->at_align, &f->data_align))
        return;
    DTPI_AUTO_FD int fd = dtpi_sys_open_fd(file->path, flags | O_DIRECT, 0);
    if (fd >= 0 && fstat(fd, &a) == 0 && fstat(f->fd, &b) == 0 && a.st_ino == b.st_ino &&
        a.st_dev == b.st_dev)
        f->direct_fd = dtpi_take_fd(&fd);
}

static dtp_status uring_create(dtpi_files *files, const char *path, uint64_t bytes,
                               dtpi_file **file_out, dtp_error *err)
{
    const dtp_status st = dtpi_sys_create(files, path, bytes, file_out, err);

    if (st >= 0 && bytes >= DIRECT_MIN)
        add_direct(*file_out, O_WRONLY);
    return st;
}

static dtp_status uring_open(dtpi_files *files, const char *path, dtpi_file **file_out,
                             uint64_t *bytes_out, dtp_error *err)
{
    const dtp_status st = dtpi_sys_open(files, path, file_out, bytes_out, err);

    if (st >= 0 && *bytes_out >= DIRECT_MIN)
        add_direct(*file_out, O_RDONLY | O_NONBLOCK);
    return st;
}

/* ---- the queue ---- */

static size_t arena_bytes(const dtpi_queue *q)
{
    return (size_t)q->depth * BUFFER_BYTES;
}

static void uring_queue_free(uring_queue *q)
{
    const dtp_allocator *a = q->base.files->a;

    if (q->has_ring)
        io_uring_queue_exit(&q->ring);
    dtpi_free(a, q->arena, arena_bytes(&q->base));
    dtpi_free(a, q->slots, q->base.depth * sizeof(*q->slots));
    dtpi_free(a, q, sizeof(*q));
}

/* RLIMIT_MEMLOCK may forbid to keep the arena with the kernel; then its pages are looked up each time. */
static void register_arena(uring_queue *q)
{
    const struct iovec v = { q->arena, arena_bytes(&q->base) };

    q->is_registered = io_uring_register_buffers(&q->ring, &v, 1) == 0;
}

static dtp_status uring_queue_open(dtpi_files *files, uint32_t depth, dtpi_queue **queue_out,
                                   dtp_error *err)
{
    if (depth == 0 || depth > MAX_DEPTH)
        return dtpi_fail(err, DTP_ERR_LIMIT, "a queue of %u transfers, at most %d", depth,
                         MAX_DEPTH);
    uring_queue *q = dtpi_alloc(files->a, sizeof(*q));
    if (!q)
        return dtpi_fail_nomem(err, sizeof(*q));
    q->base.files = files;
    q->base.depth = depth;
    q->base.ended_end = &q->base.ended;
    q->slots = dtpi_alloc_array(files->a, depth, sizeof(*q->slots));
    if (q->slots)
        q->arena = dtpi_alloc_aligned(files->a, arena_bytes(&q->base), BLOCK);
    if (!q->arena) {
        uring_queue_free(q);
        return dtpi_fail_nomem(err, (size_t)depth * BUFFER_BYTES);
    }
    for (uint32_t i = 0; i < depth; i++)
        q->slots[i].buffer = q->arena + (size_t)i * BUFFER_BYTES;
    q->has_ring = io_uring_queue_init(depth, &q->ring, 0) == 0;
    *queue_out = &q->base;
    return DTP_OK;
}

/* ---- one transfer ---- */

static void end_io(uring_queue *q, dtpi_io *io, dtp_status st)
{
    io->status = st;
    io->next = NULL;
    *q->base.ended_end = io;
    q->base.ended_end = &io->next;
}

/* What is left of it, by plain calls. */
static dtp_status do_plainly(dtpi_io *io, size_t done)
{
    uint8_t *const data = (uint8_t *)io->data + done;

    return io->is_write ? dtpi_sys_write(io->file, io->at + done, data, io->bytes - done, &io->why)
                        : dtpi_sys_read(io->file, io->at + done, data, io->bytes - done, &io->why);
}

static void end_plainly(uring_queue *q, slot *s)
{
    dtpi_io *const io = s->io;

    s->io = NULL;
    end_io(q, io, do_plainly(io, s->done));
}

static bool is_aligned(const void *p, uint32_t align)
{
    return ((uintptr_t)p & (align - 1)) == 0;
}

/* The unaligned start or end of a write, if it stands there now. */
static dtp_status write_edge(slot *s)
{
    dtpi_io *const io = s->io;
    const uint64_t at = io->at + s->done, align = file_of(io)->at_align;
    const size_t left = io->bytes - s->done;
    const size_t n = (size_t)DTPI_MIN((uint64_t)left, align - at % align);

    if (left == 0 || (at % align == 0 && left >= align))
        return DTP_OK;
    const dtp_status st =
        dtpi_sys_write(io->file, at, (const uint8_t *)io->data + s->done, n, &io->why);
    s->done += n;
    /* The start may leave nothing but an end. */
    return st < 0 ? st : write_edge(s);
}

static void plan_write(slot *s)
{
    const dtpi_io *io = s->io;
    const size_t left = (io->bytes - s->done) / file_of(io)->at_align * file_of(io)->at_align;
    const uint8_t *data = (const uint8_t *)io->data + s->done;

    s->is_buffered = !is_aligned(data, file_of(io)->data_align);
    s->part = DTPI_MIN(left, s->is_buffered ? (size_t)BUFFER_BYTES : (size_t)PART_BYTES);
    s->from = io->at + s->done;
    s->asked = s->part;
    if (s->is_buffered)
        memcpy(s->buffer, data, s->part);
}

/* Straight into memory where both sides are aligned, else whole blocks into the buffer. */
static void plan_read(slot *s)
{
    const dtpi_io *io = s->io;
    const uint32_t align = file_of(io)->at_align, data_align = file_of(io)->data_align;
    const uint64_t at = io->at + s->done;
    const size_t left = io->bytes - s->done, skip = (size_t)(at % align);
    const uint8_t *data = (const uint8_t *)io->data + s->done;
    const bool fits = is_aligned(data - skip, data_align) && left >= SMALL_BYTES;

    s->is_buffered = skip > 0 || !fits;
    if (!s->is_buffered)
        s->part = DTPI_MIN(left / align * align, (size_t)PART_BYTES);
    else if (fits)
        s->part = align - skip;
    else
        s->part = DTPI_MIN(left, BUFFER_BYTES - skip);
    s->from = at - (s->is_buffered ? skip : 0);
    s->asked = s->is_buffered ? (skip + s->part + align - 1) / align * align : s->part;
}

/* Hands the part to the kernel; false: the ring takes no more. */
static bool fly(uring_queue *q, slot *s)
{
    const dtpi_io *io = s->io;
    struct io_uring_sqe *sqe = q->is_refused ? NULL : io_uring_get_sqe(&q->ring);
    void *data = s->is_buffered ? s->buffer : (uint8_t *)io->data + s->done;
    const int fd = file_of(io)->direct_fd;
    int rc;

    if (!sqe)
        return false;
    if (s->is_buffered && ++q->n_buffered == REGISTER_AFTER)
        register_arena(q);
    if (s->is_buffered && q->is_registered && io->is_write)
        io_uring_prep_write_fixed(sqe, fd, data, (unsigned)s->asked, s->from, 0);
    else if (s->is_buffered && q->is_registered)
        io_uring_prep_read_fixed(sqe, fd, data, (unsigned)s->asked, s->from, 0);
    else if (io->is_write)
        io_uring_prep_write(sqe, fd, data, (unsigned)s->asked, s->from);
    else
        io_uring_prep_read(sqe, fd, data, (unsigned)s->asked, s->from);
    io_uring_sqe_set_data(sqe, s);
    do {
        rc = io_uring_submit(&q->ring);
    } while (rc == -EINTR);
    if (rc == 1) {
        q->n_flying++;
        return true;
    }
    /* Refused: the entry is void, and the ring is asked for nothing more. */
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, NULL);
    q->is_refused = true;
    return false;
}

/* The next part of a transfer, or its end. */
static void go_on(uring_queue *q, slot *s)
{
    dtpi_io *const io = s->io;
    const dtp_status st = io->is_write ? write_edge(s) : DTP_OK;

    if (st < 0 || s->done == io->bytes) {
        s->io = NULL;
        end_io(q, io, st);
        return;
    }
    if (io->is_write)
        plan_write(s);
    else
        plan_read(s);
    if (!fly(q, s))
        end_plainly(q, s);
}

/* Bytes at the start of a read that the page cache has. */
static size_t read_cached(dtpi_io *io)
{
    dtpi_sys_file *f = file_of(io);
    size_t done = 0;

    while (done < io->bytes && !atomic_load_explicit(&f->is_cold, memory_order_relaxed)) {
        const struct iovec v = { (uint8_t *)io->data + done, io->bytes - done };
        const ssize_t n = preadv2(f->fd, &v, 1, (off_t)(io->at + done), RWF_NOWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            atomic_store_explicit(&f->is_cold, true, memory_order_relaxed);
            break;
        }
        done += (size_t)n;
    }
    return done;
}

static slot *free_slot(uring_queue *q)
{
    for (uint32_t i = 0; i < q->base.depth; i++)
        if (!q->slots[i].io)
            return &q->slots[i];
    return NULL;
}

static void uring_submit(dtpi_queue *base, dtpi_io *io)
{
    uring_queue *q = queue_of(base);
    slot *s = free_slot(q);

    if (!s || !q->has_ring || q->is_refused || io->is_shared || file_of(io)->direct_fd < 0) {
        end_io(q, io, do_plainly(io, 0));
        return;
    }
    s->io = io;
    s->done = io->is_write ? 0 : read_cached(io);
    go_on(q, s);
}

/* What the kernel says of a part. */
static void land(uring_queue *q, slot *s, int res)
{
    dtpi_io *const io = s->io;
    const size_t skip = (size_t)(io->at + s->done - s->from);

    if (res >= 0 && (size_t)res >= skip + s->part) {
        if (s->is_buffered && !io->is_write)
            memcpy((uint8_t *)io->data + s->done, s->buffer + skip, s->part);
        s->done += s->part;
        go_on(q, s);
        return;
    }
    /* Short, or something that a plain call may do all the same; that call names what is wrong. */
    if (res >= 0 || res == -EINVAL || res == -EAGAIN || res == -EINTR || res == -EOPNOTSUPP ||
        res == -ENOMEM || res == -EFAULT) {
        end_plainly(q, s);
        return;
    }
    errno = -res;
    const dtp_status st =
        io->is_write
            ? dtpi_sys_fail_write(file_of(io), io->at + s->done, io->bytes - s->done, &io->why)
            : dtpi_fail(&io->why, dtpi_status_of_errno(errno), "cannot read %s: %m", io->file->path);
    s->io = NULL;
    end_io(q, io, st);
}

static void wait_ring(uring_queue *q)
{
    struct io_uring_cqe *cqe = NULL;
    int rc;

    do {
        rc = io_uring_wait_cqe(&q->ring, &cqe);
    } while (rc == -EINTR || rc == -EAGAIN);
    if (rc < 0) {
        /* It may not wait for the kernel, but sees what arrives. */
        sched_yield();
        return;
    }
    slot *s = io_uring_cqe_get_data(cqe);
    const int res = cqe->res;
    io_uring_cqe_seen(&q->ring, cqe);
    if (!s)
        return;
    q->n_flying--;
    land(q, s, res);
}

static dtpi_io *uring_wait(dtpi_queue *base)
{
    uring_queue *q = queue_of(base);

    while (!base->ended)
        wait_ring(q);
    dtpi_io *io = base->ended;
    base->ended = io->next;
    if (!base->ended)
        base->ended_end = &base->ended;
    return io;
}

static void uring_queue_close(dtpi_queue *base)
{
    uring_queue *q = queue_of(base);

    while (q->n_flying > 0)
        wait_ring(q);
    uring_queue_free(q);
}

static const struct dtpi_files_ops uring_ops = {
    .name = "uring",
    .create = uring_create,
    .open = uring_open,
    DTPI_SYS_OPS,
    .queue_open = uring_queue_open,
    .queue_close = uring_queue_close,
    .queue_submit = uring_submit,
    .queue_wait = uring_wait,
};

dtp_status dtpi_files_uring_open(const dtp_allocator *a, dtpi_files **files_out, dtp_error *err)
{
    struct io_uring probe;
    const int rc = io_uring_queue_init(1, &probe, 0);

    if (rc < 0) {
        errno = -rc;
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "io_uring does not work here: %m");
    }
    io_uring_queue_exit(&probe);
    dtpi_files *files = dtpi_alloc(a, sizeof(*files));
    if (!files)
        return dtpi_fail_nomem(err, sizeof(*files));
    *files = (dtpi_files){ .ops = &uring_ops, .a = a };
    *files_out = files;
    return DTP_OK;
}
