/* SPDX-License-Identifier: Apache-2.0 */
/* open_path.c - opens what lies at a path: a folder with a manifest is a step, the rest is foreign. */
#include "ckpt/foreign.h"
#include "ckpt/load.h"
#include "ckpt/steps.h"

static bool has_manifest(dtpi_files *files, const char *path)
{
    char manifest[DTPI_PATH_MAX];
    uint64_t bytes = 0;

    return dtpi_path_join(manifest, path, DTPI_MANIFEST_NAME, NULL) >= 0 &&
           files->ops->size(files, manifest, &bytes, NULL) >= 0;
}

/* DIR/step-... as folder and number. */
static dtp_status split_step(const char *path, char dir_out[DTPI_PATH_MAX], uint64_t *step_out,
                             dtp_error *err)
{
    char own[DTPI_PATH_MAX];
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n >= sizeof(own))
        return dtpi_fail(err, DTP_ERR_LIMIT, "path is too long: %.40s...", path);
    memcpy(own, path, n);
    own[n] = '\0';
    char *slash = strrchr(own, '/');
    const char *name = slash ? slash + 1 : own;
    if (!dtpi_step_parse(name, step_out))
        return dtpi_fail(err, DTP_ERR_INVAL,
                         "%s has a manifest, but its name is not that of a step: step-%s", path,
                         "00000000000000000042 or so");
    if (slash == own)
        memcpy(dir_out, "/", 2);
    else if (slash)
        memcpy(dir_out, own, (size_t)(slash - own)), dir_out[slash - own] = '\0';
    else
        memcpy(dir_out, ".", 2);
    return DTP_OK;
}

dtp_status dtpi_load_open_path(const dtp_allocator *a, dtpi_files *files, const char *path,
                               dtpi_load **load_out, dtp_error *err)
{
    char dir[DTPI_PATH_MAX];
    uint64_t step = 0;
    dtpi_manifest m;

    if (has_manifest(files, path)) {
        const dtp_status st = split_step(path, dir, &step, err);
        return st < 0 ? st : dtpi_load_open(a, files, dir, step, load_out, err);
    }
    const dtp_status st = dtpi_foreign_open(files, path, &m, dir, err);
    return st < 0 ? st : dtpi_load_adopt(a, files, dir, &m, load_out, err);
}
