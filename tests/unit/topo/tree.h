/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - unpacks tests/data/topo/NAME.tree, a recorded machine in one file, into a fresh folder. */
#ifndef DTP_TESTS_TOPO_TREE_H
#define DTP_TESTS_TOPO_TREE_H

#include "check.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static inline void data_path(char *path_out, size_t room, const char *name)
{
    const char *source = getenv("DTP_TEST_SOURCE");

    snprintf(path_out, room, "%s/tests/data/topo/%s", source ? source : ".", name);
}

static inline void tree_make_dirs(char *path)
{
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(path, 0700);
        *p = '/';
    }
}

static inline void tree_put(const char *root, const char *path, const char *text)
{
    char full[2048];

    snprintf(full, sizeof(full), "%s/%s", root, path);
    tree_make_dirs(full);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fprintf(f, "%s\n", text);
    assert_int_equal(fclose(f), 0);
}

static inline void tree_link(const char *root, const char *path, const char *target)
{
    char full[2048];

    snprintf(full, sizeof(full), "%s/%s", root, path);
    tree_make_dirs(full);
    assert_int_equal(symlink(target, full), 0);
}

/* `root` is a template for mkdtemp(). */
static inline void tree_unpack(char *root, const char *name)
{
    char path[1024], line[1024];

    data_path(path, sizeof(path), name);
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("cannot open %s", path);
    assert_non_null(mkdtemp(root));
    while (fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        char *file = strstr(line, " = "), *link = strstr(line, " -> ");
        if (line[0] == '#')
            continue;
        if (file) {
            *file = '\0';
            tree_put(root, line, file + 3);
        } else if (link) {
            *link = '\0';
            tree_link(root, line, link + 4);
        }
    }
    fclose(f);
}

static inline int tree_remove_one(const char *path, const struct stat *info, int flag,
                                  struct FTW *ftw)
{
    (void)info;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static inline void tree_remove(const char *root)
{
    nftw(root, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif /* DTP_TESTS_TOPO_TREE_H */
