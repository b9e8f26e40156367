/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c - finds and loads driver modules, the only way heavy libraries enter the process.
 *
 * A module is opened RTLD_LOCAL and never unloaded (UCX cannot be). Those built into the library come
 * from a generated table instead.
 */
#include "ctx/internal.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ctx/builtin.h"

static const dtpi_module *find_builtin(const char *name)
{
    for (size_t i = 0; dtpi_builtin_modules[i]; i++)
        if (strcmp(dtpi_builtin_modules[i]->name, name) == 0)
            return dtpi_builtin_modules[i];
    return NULL;
}

/* Folder of the file that holds this code: libdtp.so, or the program where it is linked in. */
static bool own_dir(char *dir_out, size_t room)
{
    const struct link_map *map = NULL;
    char path[PATH_MAX];
    Dl_info info;

    if (!dladdr1((const void *)(uintptr_t)&dtp_version, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    /* The program itself has no name there, and argv[0] says nothing about where it lies. */
    if (!realpath(map->l_name[0] ? map->l_name : "/proc/self/exe", path))
        return false;
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return false;
    *slash = '\0';
    return (size_t)snprintf(dir_out, room, "%s", path) < room;
}

static bool try_path(char *path_out, size_t room, const char *dir, const char *sub,
                     const char *name)
{
    const int n = snprintf(path_out, room, "%s%s%s", dir, sub, name);

    return n > 0 && (size_t)n < room && access(path_out, R_OK) == 0;
}

bool dtpi_find_beside(const dtp_ctx *ctx, const char *name, char *path_out, size_t room)
{
    static const char *const subs[] = { "/dtp/", "/modules/", "/", "/../lib/modules/",
                                        "/../../lib/modules/", "/../lib/dtp/", "/../libexec/dtp/",
                                        "/../tools/", "/../../tools/" };
    char dir[PATH_MAX];

    if (ctx->module_dir && try_path(path_out, room, ctx->module_dir, "/", name))
        return true;
    if (own_dir(dir, sizeof(dir)))
        for (size_t i = 0; i < DTPI_ARRAY_LEN(subs); i++)
            if (try_path(path_out, room, dir, subs[i], name))
                return true;
    return try_path(path_out, room, DTPI_MODULE_DIR, "/", name);
}

/* UCX's constructor puts a signal stack of its own in place of the thread's. */
static void *open_keeping_stack(const char *path)
{
    stack_t own;

    const bool is_known = sigaltstack(NULL, &own) == 0;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (is_known && !(own.ss_flags & SS_ONSTACK))
        sigaltstack(&own, NULL);
    return handle;
}

static dtp_status open_module(const char *path, const char *name, const dtpi_module **module_out,
                              dtp_error *err)
{
    void *handle = open_keeping_stack(path);

    if (!handle)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "cannot load module %s: %s", name, dlerror());
    const dtpi_module *module = dlsym(handle, "dtpi_module_this");
    dlclose(handle);
    if (!module)
        return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "%s is not a libdtp module", path);
    *module_out = module;
    return DTP_OK;
}

dtp_status dtpi_module_load(dtp_ctx *ctx, const char *name, const void **ops_out, dtp_error *err)
{
    char file[64], path[PATH_MAX];
    const dtpi_module *module = find_builtin(name);
    dtp_status st = DTP_OK;

    if (!module) {
        snprintf(file, sizeof(file), "%s.so", name);
        if (!dtpi_find_beside(ctx, file, path, sizeof(path)))
            return dtpi_fail(err, DTP_ERR_UNSUPPORTED, "module %s is not installed (%s)", name, file);
        st = open_module(path, name, &module, err);
    }
    if (!module)
        return st;
    if (module->abi == DTPI_MODULE_ABI && strcmp(module->name, name) != 0)
        return dtpi_fail(err, DTP_ERR_VERSION, "module %s calls itself %s", name, module->name);
    if (module->abi != DTPI_MODULE_ABI)
        return dtpi_fail(err, DTP_ERR_VERSION, "module %s has interface %u, this library %d", name,
                         module->abi, DTPI_MODULE_ABI);
    *ops_out = module->ops;
    return DTP_OK;
}
