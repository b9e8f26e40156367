/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - the tools every folder uses: error detail, cleanup, options, memory, logging.
 *
 * Nothing here has global state, so the library and each driver module may carry their own copy.
 */
#ifndef DTPI_BASE_H
#define DTPI_BASE_H

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <dtp/base.h>

#define DTPI_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define DTPI_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define DTPI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define DTPI_MAX(a, b) ((a) > (b) ? (a) : (b))
#define DTPI_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#define DTPI_LIKELY(x) __builtin_expect(!!(x), 1)
#define DTPI_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define DTPI_NS_PER_MS 1000000LL
#define DTPI_NS_PER_S 1000000000LL

/*
 * Automatic cleanup: DTPI_AUTO(topo) dtp_topo *t = NULL; calls dtpi_auto_topo(&t) at the end of the
 * scope. DTPI_DEFINE_AUTO(topo, dtp_topo, dtp_topo_close) makes that function. DTPI_TAKE(t) moves the
 * value out.
 */
#define DTPI_AUTO(name) __attribute__((cleanup(dtpi_auto_##name)))
#define DTPI_DEFINE_AUTO(name, type, fn)                                                            \
    static inline void dtpi_auto_##name(type **p)                                                   \
    {                                                                                               \
        if (*p)                                                                                     \
            fn(*p);                                                                                 \
    }                                                                                               \
    struct dtpi_swallow_semicolon
#define DTPI_TAKE(p)                                                                                \
    __extension__({                                                                                 \
        __typeof__(p) taken_ = (p);                                                                 \
        (p) = NULL;                                                                                 \
        taken_;                                                                                     \
    })

/* Closes *fd when it is not negative and sets it to -1; keeps errno. */
void dtpi_close_fd(int *fd);
#define DTPI_AUTO_FD __attribute__((cleanup(dtpi_close_fd)))
static inline int dtpi_take_fd(int *fd)
{
    const int taken = *fd;
    *fd = -1;
    return taken;
}

/* ---- error detail (error.c) ---- */

/*
 * Writes the detail and returns `status`, so that a failure is one line:
 *     return dtpi_fail(err, DTP_ERR_IO, "cannot open %s: %m", path);
 * The errno at the call is kept for IO, NOSPC, PERM, NOT_FOUND, EXISTS, LIMIT and EXEC. Text that does
 * not fit loses the middle of a long path, or is cut at a blank or comma and ends in "..."; it becomes
 * one line of valid UTF-8. Arguments may point into *err.
 */
dtp_status dtpi_fail(dtp_error *err, dtp_status status, const char *fmt, ...) DTPI_PRINTF(3, 4);
dtp_status dtpi_vfail(dtp_error *err, dtp_status status, const char *fmt, va_list ap);

/* The same, naming a rank. */
dtp_status dtpi_fail_rank(dtp_error *err, dtp_status status, int32_t rank, const char *fmt, ...)
    DTPI_PRINTF(4, 5);

/* The status that fits an errno: ENOSPC -> NOSPC, EACCES -> PERM, ENOENT -> NOT_FOUND, else IO. */
dtp_status dtpi_status_of_errno(int e);

/* Out of memory, with the number of bytes wanted (0: unknown). */
dtp_status dtpi_fail_nomem(dtp_error *err, size_t bytes);

/* After a failure, sets err->noun unless it is set already; returns `status`. */
dtp_status dtpi_noun(dtp_error *err, const char *noun, dtp_status status);

/* ---- option structs (opts.c) ---- */

/*
 * Copies a caller's option struct: a shorter one is extended with zeros, a longer one passes if its
 * unknown tail is zero, NULL gives zeros; `size` below sizeof(size_t) is INVAL.
 */
dtp_status dtpi_opts_read(void *opts_out, size_t own_bytes, const void *user, dtp_error *err);
#define DTPI_OPTS_READ(out, user, err) dtpi_opts_read((out), sizeof(*(out)), (user), (err))

/*
 * Fills a caller's result struct that starts with `size`: writes the first min(size, own) bytes and
 * keeps the caller's size. `size` below sizeof(size_t) is INVAL.
 */
dtp_status dtpi_result_write(void *user, const void *own, size_t own_bytes, dtp_error *err);
#define DTPI_RESULT_WRITE(user, own, err) dtpi_result_write((user), (own), sizeof(*(own)), (err))

/* ---- memory (alloc.c) ---- */

/* malloc and free as an allocator. */
extern const dtp_allocator dtpi_malloc_allocator;

/* Zeroed memory, aligned to 64 bytes for large and 16 for small blocks; NULL when there is none. */
void *dtpi_alloc(const dtp_allocator *a, size_t bytes);
void *dtpi_alloc_aligned(const dtp_allocator *a, size_t bytes, size_t align);   /* not zeroed */
void dtpi_free(const dtp_allocator *a, void *p, size_t bytes);
/* n * bytes with a check for overflow (NULL). */
void *dtpi_alloc_array(const dtp_allocator *a, size_t n, size_t bytes);

/* Text and small blocks with a size header of their own: dtpi_text_free needs no size. */
char *dtpi_text_dup(const dtp_allocator *a, const char *text);
char *dtpi_text_ndup(const dtp_allocator *a, const char *text, size_t bytes);
void dtpi_text_free(const dtp_allocator *a, char *text);

/* a + b, a * b with overflow as false. */
static inline bool dtpi_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool dtpi_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* ---- logging (log.c) ---- */

/* Where lines go; embedded in the context and handed to modules. */
typedef struct dtpi_log {
    dtp_log_fn fn;
    void *user;
    dtp_log_level level;
} dtpi_log;

void dtpi_logf(const dtpi_log *log, dtp_log_level level, const char *topic, const char *fmt, ...)
    DTPI_PRINTF(4, 5);

#endif /* DTPI_BASE_H */
