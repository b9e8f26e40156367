/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - what a crash may leave of a log of file operations.
 *
 * The model is that of POSIX, no kinder: data is durable after a sync of its file, a name after a sync
 * of its folder. Before that, any subset of the names' changes and any subset of the data's pages may
 * have reached the disk, in any order, and a file's size may run ahead of its data (zeros) or behind
 * it. A rename happens or does not. What a failed sync did not write is not written by the next.
 */
#ifndef DTP_TESTS_CRASH_MODEL_H
#define DTP_TESTS_CRASH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/mem.h"

typedef enum crash_kind {
    CRASH_CREATE,               /* and GROW to `at` */
    CRASH_MAKE_DIR,
    CRASH_WRITE,
    CRASH_GROW,                 /* size becomes `at` where that is more: zeros */
    CRASH_CUT,                  /* size becomes `at` */
    CRASH_SYNC,
    CRASH_SYNC_LOST,            /* of a file or folder: failed */
    CRASH_RENAME,               /* path to `to` */
    CRASH_LINK,                 /* `to` becomes a second name */
    CRASH_REMOVE,
    CRASH_SYNC_DIR
} crash_kind;

enum { CRASH_MAX_NODES = 4096, CRASH_PAGE = 4096, CRASH_SECTOR = 512 };
#define CRASH_ROOT UINT32_MAX

/* Everything is lent. `node` numbers files and folders as they are made, none of them twice. */
typedef struct crash_op {
    crash_kind kind;
    uint32_t node;
    const char *path, *to;
    uint64_t at;
    const uint8_t *data;
    size_t bytes;
} crash_op;

/* What is left at a path. Valid until the model moves on or builds again. */
typedef struct crash_entry {
    const char *path;
    uint32_t node;
    bool is_dir;
    const uint8_t *data;
    size_t bytes;
} crash_entry;

typedef struct crash_state {
    crash_entry *entries;
    size_t n;
    uint64_t hash;              /* of all names and bytes */
} crash_state;

/* Size of a file with unsynced data: as far as kept data goes, as it was told, or as it was durable. */
typedef enum crash_size { CRASH_SIZE_KEPT, CRASH_SIZE_TOLD, CRASH_SIZE_DURABLE, CRASH_SIZE_END } crash_size;

/*
 * A choice of what reached the disk: a byte for each unit, first the changes of names, then the pieces
 * of `piece` bytes of unsynced writes, in order of the log.
 */
typedef struct crash_choice {
    uint32_t piece;             /* CRASH_PAGE or CRASH_SECTOR */
    crash_size size;
    uint8_t *keep;
} crash_choice;

typedef struct crash_model crash_model;

crash_model *crash_model_new(void);
void crash_model_free(crash_model *m);

/* The next operation of the log; what it lends must outlive the model. */
void crash_step(crash_model *m, const crash_op *op);
/* All so far is durable: where a log begins upon the remains of another. */
void crash_settle(crash_model *m);

/* Units of a choice: changes of names that are not durable, and pieces. */
size_t crash_n_names(const crash_model *m);
size_t crash_n_pieces(const crash_model *m, uint32_t piece);

const crash_state *crash_build(crash_model *m, const crash_choice *c);

/* The state as files in memory, or below an empty folder of a real file system. 0 or -1. */
dtpi_files *crash_state_files(const crash_state *s);
int crash_state_put(const crash_state *s, const char *dir);

/* An operation of the memory member. */
crash_op crash_op_of_mem(dtpi_files *files, uint32_t i);
void crash_op_text(const crash_op *op, char *text_out, size_t room);

#endif /* DTP_TESTS_CRASH_MODEL_H */
