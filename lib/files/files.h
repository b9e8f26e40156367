/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.h - durable files: create, write, sync, publish by rename, sync the folder, read ranges.
 *
 * Rules: a name that counts is only ever made by publishing a synced file, and a failed sync is final
 * (the file is given up, never synced again: the kernel has dropped the pages). Every return of the
 * system is looked at, and a failure names the file.
 */
#ifndef DTPI_FILES_H
#define DTPI_FILES_H

#include "base/buf.h"
#include "ctx/ctx.h"

typedef struct dtpi_files dtpi_files;
typedef struct dtpi_file dtpi_file;
typedef struct dtpi_queue dtpi_queue;
typedef struct dtpi_io dtpi_io;

enum { DTPI_PATH_MAX = 4096 };

/*
 * Calls are made by one thread per file, but for reads, and writes to different ranges, which any number
 * may do at once; different files and folders from any thread. All may block.
 */
struct dtpi_files_ops {
    const char *name;

    /* Mandatory. Frees the family's member. */
    void (*close)(dtpi_files *files);

    /*
     * Mandatory. Makes a new file (EXISTS when there is one) and reserves `bytes` (0: unknown)
     * where that is possible; NOSPC names file and bytes missing. The caller closes it.
     */
    dtp_status (*create)(dtpi_files *files, const char *path, uint64_t bytes, dtpi_file **file_out,
                         dtp_error *err);
    /* Mandatory. Opens for reading. NOT_FOUND. The caller closes it. */
    dtp_status (*open)(dtpi_files *files, const char *path, dtpi_file **file_out,
                       uint64_t *bytes_out, dtp_error *err);
    /* Mandatory. All bytes or a failure. */
    dtp_status (*write)(dtpi_file *file, uint64_t at, const void *data, size_t bytes,
                        dtp_error *err);
    /* Mandatory. Exactly `bytes` bytes; TRUNCATED at the end of the file. */
    dtp_status (*read)(dtpi_file *file, uint64_t at, void *data, size_t bytes, dtp_error *err);
    /* Optional: NULL where `create` makes no file longer than what is written. Cuts what it reserved. */
    dtp_status (*set_size)(dtpi_file *file, uint64_t bytes, dtp_error *err);
    /* Mandatory. Data and size are durable after OK. */
    dtp_status (*sync)(dtpi_file *file, dtp_error *err);
    /* Mandatory. Frees the file whatever it returns; a delayed write error comes here. */
    dtp_status (*close_file)(dtpi_file *file, dtp_error *err);

    /* Mandatory. Renames within a folder. EXISTS (unless `replace`) leaves both. */
    dtp_status (*publish)(dtpi_files *files, const char *from, const char *to, bool replace,
                          dtp_error *err);
    /* Mandatory. Names made and removed in `path` are durable after OK. */
    dtp_status (*sync_dir)(dtpi_files *files, const char *path, dtp_error *err);
    /* Mandatory. `*made_out` is false where it was there already. */
    dtp_status (*make_dir)(dtpi_files *files, const char *path, bool *made_out, dtp_error *err);
    /* Mandatory. Names in no order, without "." and ".."; a status below 0 of `each` ends it. */
    dtp_status (*list)(dtpi_files *files, const char *path,
                       dtp_status (*each)(void *user, const char *name, dtp_error *err), void *user,
                       dtp_error *err);
    /* Mandatory. NOT_FOUND where there is none. */
    dtp_status (*size)(dtpi_files *files, const char *path, uint64_t *bytes_out, dtp_error *err);
    /* Mandatory. A file; NOT_FOUND where there is none. */
    dtp_status (*remove)(dtpi_files *files, const char *path, dtp_error *err);
    /* Mandatory. An empty folder. */
    dtp_status (*remove_dir)(dtpi_files *files, const char *path, dtp_error *err);

    /*
     * Optional: NULL where one process owns the files. Takes the lock file `path`, made when
     * missing; BUSY when another open of it holds the lock. Closing the file, or death, gives it
     * back. PENDING: the file system has no locks, and nothing is held.
     */
    dtp_status (*lock)(dtpi_files *files, const char *path, dtpi_file **file_out, dtp_error *err);

    /*
     * Optional, all four or none: NULL where every transfer ends inside its submit, done by `read` and
     * `write`. Use them through dtpi_queue_*. `queue_open` makes room for `depth` transfers at once;
     * `queue_close` waits for those in flight; `queue_submit` may end the transfer at once, its failure
     * is the transfer's; `queue_wait` blocks until one ended, and is called only while one is open.
     */
    dtp_status (*queue_open)(dtpi_files *files, uint32_t depth, dtpi_queue **queue_out,
                             dtp_error *err);
    void (*queue_close)(dtpi_queue *queue);
    void (*queue_submit)(dtpi_queue *queue, dtpi_io *io);
    dtpi_io *(*queue_wait)(dtpi_queue *queue);
};

/* First field of a driver's own struct. */
struct dtpi_files {
    const struct dtpi_files_ops *ops;
    const dtp_allocator *a;
};
struct dtpi_file {
    dtpi_files *files;
    char *path;
};

/* ---- transfers in flight (queue.c) ---- */

/* Bytes between a file and memory. It and the memory stay where they are until it is given back. */
struct dtpi_io {
    dtpi_file *file;
    uint64_t at;
    void *data;                 /* a write only reads it */
    size_t bytes;
    bool is_write;
    bool is_shared;             /* other processes read the same now: better from the page cache */
    void *user;                 /* the caller's */
    /* after it was given back */
    dtp_status status;          /* OK: all bytes; else as `read` and `write` */
    dtp_error why;
    dtpi_io *next;              /* the queue's */
};

/*
 * One thread's transfers; each thread opens its own. A driver's own struct starts with it. Two writes in
 * flight do not overlap; nothing is durable before `sync` of the file.
 */
struct dtpi_queue {
    dtpi_files *files;
    uint32_t depth, n_open;     /* room; submitted and not given back */
    dtpi_io *ended, **ended_end;        /* of members without a queue */
};

/* Errors: NOMEM, LIMIT. */
dtp_status dtpi_queue_open(dtpi_files *files, uint32_t depth, dtpi_queue **queue_out,
                           dtp_error *err);
/* Waits for what is in flight. */
void dtpi_queue_close(dtpi_queue *queue);
DTPI_DEFINE_AUTO(queue, dtpi_queue, dtpi_queue_close);

static inline bool dtpi_queue_is_full(const dtpi_queue *q)
{
    return q->n_open == q->depth;
}
/* Starts it; the queue is not full. A failure is told by the wait. */
void dtpi_queue_submit(dtpi_queue *queue, dtpi_io *io);
/* The transfer, just submitted, needed no waiting: dtpi_queue_wait gives it once those before it are had. */
static inline bool dtpi_queue_ended(const dtpi_queue *q, const dtpi_io *io)
{
    return q->ended_end == &io->next;
}

/* Any one that has ended; NULL: none is open. */
dtpi_io *dtpi_queue_wait(dtpi_queue *queue);
/* Does `n` transfers, many at once, and waits for all: the failure of the first of them that failed. */
dtp_status dtpi_queue_run(dtpi_queue *queue, dtpi_io *ios, size_t n, dtp_error *err);

/* ---- shared by all members (files.c) ---- */

/*
 * The members that need no arguments, by name: "posix", "uring"; NULL: the fastest that works here.
 * Errors: UNSUPPORTED, NOMEM.
 */
dtp_status dtpi_files_open(const dtp_allocator *a, const char *name, dtpi_files **files_out,
                           dtp_error *err);
void dtpi_files_close(dtpi_files *files);
DTPI_DEFINE_AUTO(files, dtpi_files, dtpi_files_close);

/* What the environment asks for (DTP_CKPT_FILES); NULL: nothing. */
const char *dtpi_files_name_from_env(void);

/* Closes a file whose data nobody wants; for cleanup. */
void dtpi_file_drop(dtpi_file *file);
DTPI_DEFINE_AUTO(file, dtpi_file, dtpi_file_drop);

/* DIR/NAME. Errors: LIMIT (longer than DTPI_PATH_MAX). */
dtp_status dtpi_path_join(char path_out[DTPI_PATH_MAX], const char *dir, const char *name,
                          dtp_error *err);

/* Makes `path` and the folders above it, each durable in the one above unless `no_sync`. Errors: LIMIT. */
dtp_status dtpi_files_make_dirs(dtpi_files *files, const char *path, bool no_sync, dtp_error *err);

/* The whole of a file of at most `max` bytes into `out` (emptied first). Errors: LIMIT. */
dtp_status dtpi_files_read_all(dtpi_files *files, const char *path, uint64_t max, dtpi_buf *out,
                               dtp_error *err);

/*
 * Writes `data` to TEMP, syncs it, renames it to `path` and syncs the folder `dir`. A failure leaves
 * no TEMP.
 */
dtp_status dtpi_files_publish_all(dtpi_files *files, const char *dir, const char *temp,
                                  const char *path, const void *data, size_t bytes, bool no_sync,
                                  dtp_error *err);

#endif /* DTPI_FILES_H */
