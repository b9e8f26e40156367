/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h - a fresh folder of a test program, made before its tests and removed behind them. */
#ifndef DTP_TESTS_CKPT_FOLDER_H
#define DTP_TESTS_CKPT_FOLDER_H

#include "check.h"

#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[64];

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

static inline int set_up(void **state)
{
    (void)state;
    snprintf(base, sizeof(base), "/tmp/dtp-test-ckpt-XXXXXX");
    return mkdtemp(base) ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    return nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif /* DTP_TESTS_CKPT_FOLDER_H */
