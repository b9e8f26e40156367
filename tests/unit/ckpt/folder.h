/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h - a fresh folder of a test program, made before its tests and removed behind them. */
#ifndef DTP_TESTS_CKPT_FOLDER_H
#define DTP_TESTS_CKPT_FOLDER_H

#include "check.h"

#include <stdlib.h>

#include "tree.h"

static char base[64];

static inline int set_up(void **state)
{
    (void)state;
    snprintf(base, sizeof(base), "/tmp/dtp-test-ckpt-XXXXXX");
    return mkdtemp(base) ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    return tree_remove(base);
}

#endif /* DTP_TESTS_CKPT_FOLDER_H */
