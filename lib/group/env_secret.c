/* SPDX-License-Identifier: Apache-2.0 */
/* env_secret.c - the job's secret, or the word that there is none. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "group/env_internal.h"

static dtp_status read_secret_file(const char *path, uint8_t *secret_out, dtp_error *err)
{
    char text[2 * DTP_SECRET_BYTES + 2] = "";
    /* A pipe must not make it wait. */
    DTPI_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;

    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open DTP_SECRET_FILE %s: %m", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET_FILE %s is no regular file", path);
    if (st.st_mode & 077)
        return dtpi_fail(err, DTP_ERR_PERM, "DTP_SECRET_FILE %s is readable by others (mode %o): chmod 600",
                         path, st.st_mode & 0777);
    const ssize_t n = read(fd, text, sizeof(text) - 1);
    if (n > 0 && text[n - 1] == '\n')
        text[n - 1] = '\0';
    const bool ok = n > 0 && dtpi_parse_hex(text, secret_out, DTP_SECRET_BYTES);
    sodium_memzero(text, sizeof(text));
    return ok ? DTP_OK
              : dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET_FILE %s does not hold %d hex digits", path,
                          2 * DTP_SECRET_BYTES);
}

dtp_status env_secret_from_env(struct found *f, dtp_error *err)
{
    const char *hex = env_text_from_env("DTP_SECRET"), *path = env_text_from_env("DTP_SECRET_FILE");
    int64_t insecure = 0;

    dtp_status st = env_number_from_env("DTP_INSECURE", 0, 1, &insecure, err);
    if (st < 0)
        return st;
    if (insecure && (hex || path))
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s contradicts DTP_INSECURE=1",
                         hex ? "DTP_SECRET" : "DTP_SECRET_FILE");
    if (hex && path)
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET contradicts DTP_SECRET_FILE: set one of them");
    f->o.insecure = (uint32_t)insecure;
    if (hex && !dtpi_parse_hex(hex, f->secret, DTP_SECRET_BYTES))
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET does not have %d hex digits",
                         2 * DTP_SECRET_BYTES);
    if (path)
        st = read_secret_file(path, f->secret, err);
    if (hex || path)
        f->o.secret = f->secret;
    return st;
}
