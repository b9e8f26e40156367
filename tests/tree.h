/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - removes the folders that a test made. */
#ifndef DTP_TESTS_TREE_H
#define DTP_TESTS_TREE_H

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int tree_remove_below(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    return where->level > 0 ? remove(path) : 0;
}

/* What is in the folder; the folder stays. */
static inline int tree_empty(const char *path)
{
    return nftw(path, tree_remove_below, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int tree_remove(const char *path)
{
    return tree_empty(path) ? -1 : rmdir(path);
}

#endif /* DTP_TESTS_TREE_H */
