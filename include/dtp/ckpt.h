/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtp/ckpt.h - sharded checkpoints: safetensors shards, a JSON manifest written last.
 *
 * A directory holds steps; a step is complete when its manifest is there. Save with N ranks, load with
 * M; any rank asks for any box of any tensor. Formats: docs/formats/ckpt.md.
 */
#ifndef DTP_CKPT_H
#define DTP_CKPT_H

#include <dtp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DTP_CKPT_MAX_DIMS = 8 };

typedef struct dtp_ckpt dtp_ckpt;

/*
 * A box of a named tensor in the caller's memory, dense and row-major. A scalar has 0 dimensions.
 * The box [offset, offset + extent) lies inside [0, shape) in every dimension. Two ranks may give the
 * same box (a replica): one of them writes it.
 */
typedef struct dtp_ckpt_tensor {
    size_t size;
    const char *name;           /* UTF-8 without NUL, 1 to 1023 bytes */
    dtp_dtype dtype;
    uint32_t n_dims;
    const int64_t *shape;       /* of the whole tensor */
    const int64_t *offset;      /* of the box; NULL: 0 */
    const int64_t *extent;      /* of the box; NULL: shape */
    void *data;                 /* read by save, written by load */
} dtp_ckpt_tensor;

typedef enum dtp_codec {
    DTP_CODEC_NONE = 0,
    DTP_CODEC_ZSTD = 1,
    DTP_CODEC_PLANES = 2        /* byte planes of numbers; the best for weights and optimizer state */
} dtp_codec;

typedef struct dtp_ckpt_save_opts {
    size_t size;
    dtp_codec codec;
    /* Of meta_json, keep_last, keep_every and delta rank 0's count; codec and chunk_bytes are equal on all. */
    const char *meta_json;      /* the caller's own JSON object, kept in the manifest */
    /* Older complete steps beyond this many are removed, except pinned ones; 0: keep all. */
    uint32_t keep_last;
    uint32_t no_sync;           /* 1: skip fsync (tests and scratch only) */
    uint32_t chunk_bytes;       /* checksum granularity, a multiple of 4096; 0: 1 MiB */
    int32_t timeout_ms;         /* 0: the group's default, without a group for ever */
    uint32_t delta;             /* 1: what equals the newest complete step is referred to, not written */
    uint64_t keep_every;        /* keep_last spares complete steps that are multiples of it; 0: none */
    const char *files;          /* how files are written: "uring", "posix"; NULL: what is best here */
} dtp_ckpt_save_opts;

#define DTP_CKPT_SAVE_OPTS_INIT { .size = sizeof(dtp_ckpt_save_opts) }

/*
 * Saves the boxes of all ranks as step `step` under `dir`; returns when it is durable. Collective;
 * `group` NULL: this process alone. A step that exists completely is refused, a damaged one is
 * replaced; nothing that was valid before is touched until the new manifest is durable. Empty boxes
 * are welcome.
 * Errors: INVAL (also: ranks disagree about a tensor), RANGE (box outside its tensor), FORMAT
 * (meta_json is no object), UNSUPPORTED (`files`), EXISTS (step), BUSY (another save writes to
 * `dir`, or a newer attempt took the step over), NOSPC, IO, PERM, CORRUPT (boxes do not cover a
 * tensor or overlap), VERSION (the step is of a newer library), LIMIT, PEER, ABORTED, TIMEOUT,
 * INTERRUPTED, FORKED, NOMEM. The same on all ranks that can still talk to each other; the text
 * names rank, file and tensor.
 * Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_save(dtp_ctx *ctx, dtp_group *group, const char *dir, uint64_t step,
                                 const dtp_ckpt_tensor *tensors, size_t n_tensors,
                                 const dtp_ckpt_save_opts *opts, dtp_error *err);

/*
 * The same in the background: returns when everything it was given is copied into memory that the
 * context keeps for the next copy, so tensors may change at once. A thread of the library's own does the
 * rest, and exchanges go on while this or another thread uses the group, or nobody does. The operation
 * ends when the step is durable, or with what dtp_ckpt_save would have returned.
 *
 * One save of a group (or of a context without one) is under way at a time: the next one, synchronous or
 * not, waits for it, and fails on all ranks with its failure where a rank has not been told of it by
 * dtp_op_wait or dtp_op_status. dtp_op_free leaves the save running; dtp_op_cancel makes it fail on
 * all ranks with CANCELED, where they have not all written by then, and so does closing the group;
 * closing a context waits for a save without a group. The allocator and the log function may be
 * called from other threads meanwhile.
 * Errors: INVAL, RANGE, NOMEM, LIMIT (no thread), INTERRUPTED, BUSY, FORKED, and those of the save before;
 * all ranks get the same. Free with dtp_op_free. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_save_start(dtp_ctx *ctx, dtp_group *group, const char *dir,
                                       uint64_t step, const dtp_ckpt_tensor *tensors,
                                       size_t n_tensors, const dtp_ckpt_save_opts *opts,
                                       dtp_op **op_out, dtp_error *err);

/*
 * Newest step under `dir` whose manifest and shards are all there and of the right size; damaged
 * steps are passed over (and logged). Errors: INVAL (no dir, or a file), NOT_FOUND (none); IO, PERM, LIMIT, VERSION
 * (none, and one that could not be looked at: do not begin anew), NOMEM. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_latest(dtp_ctx *ctx, const char *dir, uint64_t *step_out,
                                   dtp_error *err);

/*
 * The same, and says why each newer step was passed over: `report` (NULL: nobody) is called with the step,
 * a status such as TRUNCATED or CORRUPT, and a text that names file, tensor and chunk where it can.
 * `level` 0 looks at manifests and the sizes of files, 1 reads and verifies every byte of a step before it
 * is liked. Errors: as dtp_ckpt_latest, INVAL (level). Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_latest_valid(dtp_ctx *ctx, const char *dir, int level,
                                         void (*report)(void *user, uint64_t step, dtp_status status,
                                                        const char *text),
                                         void *user, uint64_t *step_out, dtp_error *err);

/*
 * Pins a complete step, so that keep_last and dtp_ckpt_gc spare it, or takes the pin away (`pinned` 0; no
 * failure where there is none). The pin is a file "pin" in the step's folder, durable on return.
 * Errors: INVAL (no dir), NOT_FOUND and what else is wrong with the step, BUSY (old steps are being
 * removed: try again), IO, PERM, LIMIT, NOMEM. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_pin(dtp_ctx *ctx, const char *dir, uint64_t step, int pinned,
                                dtp_error *err);

typedef struct dtp_ckpt_gc_opts {
    size_t size;
    uint32_t keep_last;         /* newest complete steps that stay; 0: 1 */
    uint32_t dry_run;           /* 1: only report, also while a save goes on; nothing is written */
    uint64_t keep_every;        /* complete multiples stay, too; 0: none */
    /* Told of each step that goes, or would. NULL: nobody. */
    void (*report)(void *user, uint64_t step);
    void *report_user;
} dtp_ckpt_gc_opts;

#define DTP_CKPT_GC_OPTS_INIT { .size = sizeof(dtp_ckpt_gc_opts) }

/*
 * Removes old steps, and remains of saves older than those that stay. The newest complete step, pinned
 * ones, and files that steps which stay refer to are never removed. Errors: INVAL (no dir), NOT_FOUND (dir),
 * BUSY (a save writes to `dir`, or a step is being pinned), IO, PERM, LIMIT, NOMEM. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_gc(dtp_ctx *ctx, const char *dir, const dtp_ckpt_gc_opts *opts,
                               dtp_error *err);

/*
 * Numbers of all step folders under `dir`, ascending, complete or not: writes at most `capacity` and
 * says in `*n_out` how many there are. Errors: INVAL (no dir), NOT_FOUND (dir), IO, PERM, LIMIT, NOMEM.
 * Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_list(dtp_ctx *ctx, const char *dir, uint64_t *steps_out, size_t capacity,
                                 size_t *n_out, dtp_error *err);

/*
 * Opens a step for reading. Errors: INVAL (no dir), NOT_FOUND, FORMAT, TRUNCATED, CORRUPT (manifest
 * checksum, coverage), VERSION, UNSUPPORTED (codec), IO, PERM, LIMIT, NOMEM. Caller closes. Threads: ctx.
 * Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_open(dtp_ctx *ctx, const char *dir, uint64_t step, dtp_ckpt **ckpt_out,
                                 dtp_error *err);

/*
 * Opens whatever checkpoint lies at `path`: the folder of a step, a safetensors file, a folder of them (a
 * Hugging Face model with its index, or shards of torch.distributed.checkpoint), a folder with
 * `.metadata` of torch.distributed.checkpoint, a file of torch.save that holds a plain state dict. What others
 * wrote has no checksums (dtp_ckpt_info says so) and step 0; nested names are joined with dots. Pickles are
 * read as data: nothing in them is ever executed, and what they may name is a short list.
 * Errors: as dtp_ckpt_open; INVAL (steps under `path`: name one), FORMAT (no checkpoint that is known),
 * CORRUPT (a part of a tensor is missing, or there twice), UNSUPPORTED (a type, a class, a way of storing).
 * Caller closes. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_open_path(dtp_ctx *ctx, const char *path, dtp_ckpt **ckpt_out,
                                      dtp_error *err);

/* Closes a checkpoint; NULL is fine. Threads: ctx. Since 0.1. */
DTP_API void dtp_ckpt_close(dtp_ckpt *ckpt);

typedef struct dtp_ckpt_info {
    size_t size;
    uint64_t step;
    uint32_t world_size;        /* ranks that saved it */
    uint32_t n_tensors;
    uint32_t n_shards;
    uint64_t bytes;             /* of tensor data, before the codec */
    uint64_t stored_bytes;      /* of the shard files */
    const char *meta_json;      /* lent; "{}" where none was given */
    const char *format;         /* static: "dtp-ckpt", "safetensors", "huggingface", "dcp", "torch" */
    uint32_t has_checksums;     /* 0: what is read cannot be verified */
} dtp_ckpt_info;

/* Threads: any. Since 0.1. */
DTP_API dtp_status dtp_ckpt_get_info(const dtp_ckpt *ckpt, dtp_ckpt_info *info_out, dtp_error *err);

/*
 * Tensor `i` in order of names: name, dtype and shape are lent, offset, extent and data are NULL.
 * Errors: RANGE. Threads: any. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_get_tensor(const dtp_ckpt *ckpt, uint32_t i, dtp_ckpt_tensor *tensor_out,
                                       dtp_error *err);

/*
 * Index of a tensor by name. Errors: NOT_FOUND. Threads: any. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_find(const dtp_ckpt *ckpt, const char *name, uint32_t *i_out,
                                 dtp_error *err);

typedef enum dtp_ckpt_checks {
    DTP_CKPT_CHECK_ALL = 0,     /* every byte: a chunk of which a part is wanted is read whole */
    DTP_CKPT_CHECK_WHOLE = 1    /* chunks that are wanted whole; of others only the wanted part is read */
} dtp_ckpt_checks;

/*
 * What dtp_ckpt_read compares with checksums from now on. Loads that cut tensors the other way read
 * several times less with CHECK_WHOLE: have one process verify the step first. Chunks of a codec are
 * always read whole. Errors: INVAL. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_set_checks(dtp_ckpt *ckpt, dtp_ckpt_checks checks, dtp_error *err);

/*
 * From now on, until it is closed, dtp_ckpt_read reads together with the other ranks of the node: a chunk of
 * which several ranks want parts is read and verified by one of them, into memory (16 MiB a node) that
 * all copy from. Loads that cut tensors the other way read hardly a byte twice where the ranks go through
 * them at the same time and in the order of names, as one call does; what is wanted out of order is read
 * alone. Collective over the ranks of `group`, all of which have opened the same step: who has another one
 * reads alone. The reads are not collective, and nobody waits for long. The group may be closed before the
 * checkpoint. Errors: INVAL (no group, chunks of another size), LIMIT, NOMEM, and dtp_group_barrier's.
 * Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_share(dtp_ckpt *ckpt, dtp_group *group, dtp_error *err);

/*
 * Reads boxes into the callers' memory: the chunks that they touch, each of which is compared with its
 * checksum (see dtp_ckpt_set_checks). dtype and shape must agree with what is stored (shape NULL: not
 * compared).
 * Errors: NOT_FOUND (tensor or shard), INVAL (dtype or shape differs: names both), RANGE (box), UNSUPPORTED
 * (a box of narrow numbers that cuts a byte), CORRUPT, TRUNCATED, FORMAT, VERSION, IO, PERM, LIMIT, NOMEM.
 * After a failure the memory holds anything. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_read(dtp_ckpt *ckpt, const dtp_ckpt_tensor *tensors, size_t n_tensors,
                                 dtp_error *err);

/*
 * Reads and verifies every byte of the step. `progress` (may be NULL) is told bytes done and in all.
 * Errors: as dtp_ckpt_read. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_verify(dtp_ckpt *ckpt,
                                   void (*progress)(void *user, uint64_t done, uint64_t total),
                                   void *user, dtp_error *err);

typedef struct dtp_ckpt_export_opts {
    size_t size;
    uint64_t max_shard_bytes;   /* a new file begins beyond this; 0: 5 GB */
    uint32_t no_sync;           /* 1: skip fsync (tests and scratch only) */
    void (*progress)(void *user, uint64_t done, uint64_t total);        /* may be NULL */
    void *user;
} dtp_ckpt_export_opts;

#define DTP_CKPT_EXPORT_OPTS_INIT { .size = sizeof(dtp_ckpt_export_opts) }

/*
 * Writes every tensor to `dir` as a Hugging Face model: model.safetensors, or several files and, last,
 * model.safetensors.index.json. What is read is verified; memory stays within a few chunks. Files of those
 * names that are there already are refused; a failure leaves none.
 * Errors: EXISTS, NOSPC, and those of dtp_ckpt_read. Threads: ctx. Since 0.1.
 */
DTP_API dtp_status dtp_ckpt_export(dtp_ckpt *ckpt, const char *dir,
                                   const dtp_ckpt_export_opts *opts, dtp_error *err);

#ifdef __cplusplus
}
#endif

#endif /* DTP_CKPT_H */
