/* SPDX-License-Identifier: Apache-2.0 */
/* notes.h - what the stand-in for NCCL writes down, and how it is told to fail. */
#ifndef DTP_TESTS_NCCL_NOTES_H
#define DTP_TESTS_NCCL_NOTES_H

#include <stdint.h>

enum { NOTES_RANKS = 64, NOTES_IDS = 16 };
enum { NOTE_RANK = 1, NOTE_CONFIG = 2, NOTE_SCALABLE = 3 };

typedef struct note {
    int32_t pid, n_ranks, n_ids, function;
    int32_t config_blocking;    /* -1: no config */
    char ids[NOTES_IDS][128];
} note;

typedef struct notes {
    uint32_t n_made, n_begun, n_destroyed, n_aborted;
    uint32_t fail_id;           /* ncclGetUniqueId fails */
    int32_t fail_rank;          /* plus one: its communicator breaks */
    uint32_t n_late;            /* that many ranks are never there */
    note ranks[NOTES_RANKS];
} notes;

#endif /* DTP_TESTS_NCCL_NOTES_H */
