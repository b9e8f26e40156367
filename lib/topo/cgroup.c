/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.c - finds where the cpuset controller is mounted and which group this process is in, and reads
 * its effective processors; a group without the file takes those of the group above.
 *
 * Source: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cpusets.rst of Linux.
 */
#include "topo/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOUNTS_BYTES = 64 << 10 };

typedef struct cgroup_place {
    char mount[512];            /* without the leading slash */
    char path[1024];            /* of the group, without the leading slash */
    bool v2;
} cgroup_place;

static bool word_in(const char *list, const char *word)
{
    const size_t len = strlen(word);

    for (const char *p = list; (p = strstr(p, word)); p += len)
        if ((p == list || p[-1] == ',') && (p[len] == ',' || p[len] == '\0'))
            return true;
    return false;
}

/* The mount point of the controller in a text as /proc/mounts; version 1 is preferred where both are. */
static bool find_mount(char *mounts, cgroup_place *place)
{
    bool found = false;
    char *save = NULL;

    for (char *line = strtok_r(mounts, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *word = NULL;
        strtok_r(line, " ", &word);
        const char *dir = strtok_r(NULL, " ", &word), *type = strtok_r(NULL, " ", &word);
        const char *opts = strtok_r(NULL, " ", &word);
        if (!opts || dir[0] != '/' || strlen(dir) > sizeof(place->mount))
            continue;
        const bool v1 = strcmp(type, "cpuset") == 0 ||
                        (strcmp(type, "cgroup") == 0 && word_in(opts, "cpuset"));
        if (!v1 && (found || strcmp(type, "cgroup2") != 0))
            continue;
        snprintf(place->mount, sizeof(place->mount), "%s", dir + 1);
        place->v2 = !v1;
        found = true;
        if (v1)
            return true;
    }
    return found;
}

/* The group in a text as /proc/self/cgroup: "3:cpuset:/a/b", "0::/a/b". */
static bool find_group(char *text, cgroup_place *place)
{
    char *save = NULL;

    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path || path[1] != '/')
            continue;
        *path = '\0';
        const bool ours = place->v2 ? strcmp(controllers, ":") == 0
                                    : word_in(controllers + 1, "cpuset");
        if (!ours)
            continue;
        return (size_t)snprintf(place->path, sizeof(place->path), "%s", path + 2) <
               sizeof(place->path);
    }
    return false;
}

static bool find_place(dtpi_topo_fs *fs, cgroup_place *place)
{
    char text[8192];
    char *mounts = malloc(MOUNTS_BYTES);
    const bool found = mounts && dtpi_topo_fs_text(fs, mounts, MOUNTS_BYTES, "proc/mounts") &&
                       find_mount(mounts, place);

    free(mounts);
    if (!found)
        return false;
    if (dtpi_topo_fs_text(fs, text, sizeof(text), "proc/self/cgroup") && find_group(text, place))
        return true;
    /* Before version 1 had names there was one file. */
    return !place->v2 && dtpi_topo_fs_text(fs, text, sizeof(text), "proc/self/cpuset") &&
           text[0] == '/' &&
           (size_t)snprintf(place->path, sizeof(place->path), "%s", text + 1) < sizeof(place->path);
}

static bool read_group(dtpi_topo_fs *fs, const cgroup_place *place, dtpi_cpuset *out)
{
    static const char *const v1[] = { "cpuset.effective_cpus", "cpuset.cpus", "cpus" };
    static const char *const v2[] = { "cpuset.cpus.effective" };
    const char *const *names = place->v2 ? v2 : v1;
    const size_t n = place->v2 ? DTPI_ARRAY_LEN(v2) : DTPI_ARRAY_LEN(v1);
    char dir[PATH_MAX];

    snprintf(dir, sizeof(dir), "%s/%s", place->mount, place->path);
    for (size_t i = 0; i < n; i++)
        if (dtpi_topo_fs_cpus(fs, out, dir, names[i], NULL) && dtpi_cpuset_count(out))
            return true;
    return false;
}

bool dtpi_topo_cgroup_cpus(dtpi_topo_fs *fs, dtpi_cpuset *out, bool *governed_out)
{
    cgroup_place place = { .v2 = false };

    *governed_out = false;
    if (!find_place(fs, &place))
        return dtpi_topo_fs_exists(fs, "proc/self/cgroup");
    for (;;) {
        if (read_group(fs, &place, out)) {
            *governed_out = true;
            return true;
        }
        if (!place.path[0])
            break;
        char *slash = strrchr(place.path, '/');
        *(slash ? slash : place.path) = '\0';
    }
    return true;
}
