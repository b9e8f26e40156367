/* SPDX-License-Identifier: Apache-2.0 */
/* env_secret.c - the job's secret, or who hands it over, or the word that there is none. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "group/env_internal.h"
#include "group/munge.h"

enum { HEX_DIGITS = 2 * DTP_SECRET_BYTES, FD_WAIT_MS = 5000 };

/* `text` holds what was read and room for an end; it is wiped. */
static dtp_status parse(char *text, ssize_t n, const char *name, const char *what, uint8_t *secret_out,
                        dtp_error *err)
{
    if (n > 0 && text[n - 1] == '\n')
        n--;
    text[DTPI_MAX(n, 0)] = '\0';
    const bool is_whole = n == HEX_DIGITS;
    const bool ok = is_whole && dtpi_parse_hex(text, secret_out, DTP_SECRET_BYTES);
    sodium_memzero(text, HEX_DIGITS + 3);
    if (ok)
        return DTP_OK;
    if (is_whole)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s %s does not hold %d hex digits", name, what, HEX_DIGITS);
    return dtpi_fail(err, DTP_ERR_FORMAT, "%s %s does not hold %d hex digits, but %s%zd bytes", name, what,
                     HEX_DIGITS, n > HEX_DIGITS ? "more than " : "", DTPI_MIN(n, (ssize_t)HEX_DIGITS));
}

static dtp_status read_file(const char *path, uint8_t *secret_out, dtp_error *err)
{
    char text[HEX_DIGITS + 3] = "";
    /* A pipe must not make it wait. */
    DTPI_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;

    if (fd < 0)
        return dtpi_fail(err, dtpi_status_of_errno(errno), "cannot open DTP_SECRET_FILE %s: %m", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET_FILE %s is no regular file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return dtpi_fail(err, DTP_ERR_PERM, "DTP_SECRET_FILE %s belongs to user %u, not to %u", path,
                         (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & 077)
        return dtpi_fail(err, DTP_ERR_PERM, "DTP_SECRET_FILE %s is readable by others (mode %o): chmod 600",
                         path, st.st_mode & 0777);
    const ssize_t n = read(fd, text, sizeof(text) - 1);
    if (n < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot read DTP_SECRET_FILE %s: %m", path);
    return parse(text, n, "DTP_SECRET_FILE", path, secret_out, err);
}

/* From a pipe until all digits are there, and no longer. */
static ssize_t read_pipe(int fd, char *text)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    ssize_t n = 0;

    while (n < HEX_DIGITS) {
        const int ready = poll(&p, 1, FD_WAIT_MS);
        if (ready == 0)
            errno = ETIMEDOUT;
        const ssize_t got = ready > 0 ? read(fd, text + n, (size_t)(HEX_DIGITS - n)) : -1;
        if (got < 0 && errno != EINTR)
            return -1;
        if (got == 0)
            break;
        n += DTPI_MAX(got, (ssize_t)0);
    }
    return n;
}

/* Read once and closed: a pipe, or a file from its beginning. The number means nothing afterwards. */
static dtp_status read_fd(int number, uint8_t *secret_out, dtp_error *err)
{
    char text[HEX_DIGITS + 3] = "", what[12];
    struct stat st;
    ssize_t n;

    snprintf(what, sizeof(what), "%d", number);
    if (fstat(number, &st) < 0)
        return dtpi_fail(err, DTP_ERR_IO, "DTP_SECRET_FD %s: %m (it is read once)", what);
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET_FD %s is neither a pipe nor a file", what);
    n = S_ISREG(st.st_mode) ? pread(number, text, sizeof(text) - 1, 0) : read_pipe(number, text);
    if (n < 0)
        return dtpi_fail(err, DTP_ERR_IO, "cannot read DTP_SECRET_FD %s: %m", what);
    close(number);
    return parse(text, n, "DTP_SECRET_FD", what, secret_out, err);
}

/* Two that are set; NULL: at most one is. */
static const char *second_of(const char *const names[], size_t n, const char **first_out)
{
    *first_out = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!env_text_from_env(names[i]))
            continue;
        if (*first_out)
            return names[i];
        *first_out = names[i];
    }
    return NULL;
}

/* Slurm has MUNGE nearly everywhere; DTP_MUNGE is 0 (no), 1 or the socket of munged. */
static const char *munge_from_env(const struct launcher *l)
{
    const char *text = env_text_from_env("DTP_MUNGE");

    if (!text)
        return l->kind == LAUNCHER_SLURM && dtpi_munge_is_there() ? "" : NULL;
    return strcmp(text, "0") == 0 ? NULL : strcmp(text, "1") == 0 ? "" : text;
}

dtp_status env_secret_from_env(const struct launcher *l, struct found *f, dtp_error *err)
{
    static const char *const names[] = { "DTP_SECRET", "DTP_SECRET_FILE", "DTP_SECRET_FD" };
    const char *first, *hex = env_text_from_env("DTP_SECRET");
    int64_t insecure = 0, fd = -1;

    dtp_status st = env_number_from_env("DTP_INSECURE", 0, 1, &insecure, err);
    if (st >= 0)
        st = env_number_from_env("DTP_SECRET_FD", 3, INT32_MAX, &fd, err);
    if (st < 0)
        return st;
    const char *second = second_of(names, DTPI_ARRAY_LEN(names), &first);
    if (insecure && first)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s contradicts DTP_INSECURE=1", first);
    if (second)
        return dtpi_fail(err, DTP_ERR_FORMAT, "%s contradicts %s: set one of them", first, second);
    f->o.insecure = (uint32_t)insecure;
    if (hex && !dtpi_parse_hex(hex, f->secret, DTP_SECRET_BYTES))
        return dtpi_fail(err, DTP_ERR_FORMAT, "DTP_SECRET does not have %d hex digits", HEX_DIGITS);
    if (env_text_from_env("DTP_SECRET_FILE"))
        st = read_file(env_text_from_env("DTP_SECRET_FILE"), f->secret, err);
    if (fd >= 0)
        st = read_fd((int)fd, f->secret, err);
    if (first)
        f->o.secret = f->secret;
    else if (!insecure)
        f->o.munge = munge_from_env(l);
    return st;
}
