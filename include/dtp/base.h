/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtp/base.h - status codes, error detail, allocator, logging: what every other header builds on.
 *
 * Conventions that hold for the whole interface:
 *   - a function returns a dtp_status: 0 done, positive is not a failure, negative failed;
 *   - detail of a failure is written to the caller's dtp_error, the last argument, which may be NULL;
 *   - outputs (*_out) are written only on success;
 *   - option structs start with `size`; zero in any other field means its default; NULL options are legal;
 *   - "Threads: any" may be called from any thread at any time, "ctx" one at a time per context,
 *     "init" before the object is shared.
 */
#ifndef DTP_BASE_H
#define DTP_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DTP_API
#define DTP_API __attribute__((visibility("default")))
#endif

/* Result of a call. */
typedef int dtp_status;

enum {
    DTP_OK = 0,
    DTP_PENDING = 1,            /* not a failure: the operation goes on */
    DTP_END = 2,                /* not a failure: nothing more to give */

    DTP_ERR_INVAL = -1,         /* an argument or a call out of order */
    DTP_ERR_NOMEM = -2,         /* out of memory */
    DTP_ERR_IO = -3,            /* a system call on a file or descriptor failed */
    DTP_ERR_TIMEOUT = -4,       /* the deadline passed */
    DTP_ERR_BUSY = -5,          /* in use by another thread, process or job */
    DTP_ERR_CANCELED = -6,      /* the operation was cancelled */
    DTP_ERR_ABORTED = -7,       /* the group or job was aborted */
    DTP_ERR_FORKED = -8,        /* the handle belongs to the parent process */
    DTP_ERR_NOT_FOUND = -9,     /* no such file, key, tensor, checkpoint or job */
    DTP_ERR_EXISTS = -10,       /* already there, or a rank number taken twice */
    DTP_ERR_UNSUPPORTED = -11,  /* not built in, or not on this machine */
    DTP_ERR_PERM = -12,         /* not allowed */
    DTP_ERR_AUTH = -13,         /* the peer could not prove the job secret */
    DTP_ERR_FORMAT = -14,       /* malformed file, variable or document */
    DTP_ERR_TRUNCATED = -15,    /* a file or message ends too early */
    DTP_ERR_CORRUPT = -16,      /* a checksum does not match */
    DTP_ERR_RANGE = -17,        /* outside the tensor, the group or the limits */
    DTP_ERR_NOSPC = -18,        /* the file system is full */
    DTP_ERR_PROTO = -19,        /* a peer broke the protocol */
    DTP_ERR_VERSION = -20,      /* versions do not fit together */
    DTP_ERR_PEER = -21,         /* ranks are missing or died */
    DTP_ERR_LIMIT = -22,        /* not enough of a resource */
    DTP_ERR_EXEC = -23,         /* a program could not be started */
    DTP_ERR_INTERRUPTED = -24   /* the caller's `interrupted` callback said stop */
};

enum { DTP_ERROR_TEXT = 232, DTP_ERROR_NOUN = 12 };

/*
 * Detail of a failure, owned by the caller; plain data, may be copied.
 * `rank` is -1 where no rank is concerned; `sys_errno` is 0 where no system call failed.
 */
typedef struct dtp_error {
    int32_t status;
    int32_t sys_errno;
    int32_t rank;
    char noun[DTP_ERROR_NOUN];  /* topo, group, ckpt, ... */
    char text[DTP_ERROR_TEXT];  /* one line, lower case, always terminated */
} dtp_error;

/*
 * Name of a status, such as "DTP_ERR_TIMEOUT"; "unknown" for other numbers.
 * Static memory. Threads: any. Since 0.1.
 */
DTP_API const char *dtp_status_name(dtp_status status);

/*
 * Short text of a status, such as "the deadline passed".
 * Static memory. Threads: any. Since 0.1.
 */
DTP_API const char *dtp_status_text(dtp_status status);

/*
 * Version of the loaded library as text, such as "0.1.0".
 * Static memory. Threads: any. Since 0.1.
 */
DTP_API const char *dtp_version(void);

/*
 * Memory source of a context. `alloc` returns `bytes` bytes aligned to `align` (a power of two) or
 * NULL; `free` gets the same number of bytes. Both are called from any thread that uses the context.
 */
typedef struct dtp_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*free)(void *user, void *p, size_t bytes);
    void *user;
} dtp_allocator;

typedef enum dtp_log_level {
    DTP_LOG_ERROR = 1,
    DTP_LOG_WARN = 2,
    DTP_LOG_INFO = 3,
    DTP_LOG_DEBUG = 4
} dtp_log_level;

/*
 * Receives finished lines without a newline. Called on the thread that uses the context, and on
 * pool, agent and save threads; it must not call back into libdtp.
 */
typedef void (*dtp_log_fn)(void *user, dtp_log_level level, const char *topic, const char *text);

/* Number types of tensors and collectives. Values are part of the ABI. */
typedef enum dtp_dtype {
    DTP_DTYPE_NONE = 0,
    DTP_F64 = 1,
    DTP_F32 = 2,
    DTP_F16 = 3,
    DTP_BF16 = 4,
    DTP_I64 = 5,
    DTP_I32 = 6,
    DTP_I16 = 7,
    DTP_I8 = 8,
    DTP_U64 = 9,
    DTP_U32 = 10,
    DTP_U16 = 11,
    DTP_U8 = 12,
    DTP_BOOL = 13,
    DTP_F8_E4M3 = 14,
    DTP_F8_E5M2 = 15,
    DTP_C64 = 16,
    DTP_F8_E8M0 = 17,
    DTP_F8_E4M3FNUZ = 18,
    DTP_F8_E5M2FNUZ = 19,
    DTP_F4 = 20,                /* two elements to a byte; in checkpoints alone */
    DTP_F6_E2M3 = 21,           /* four to three bytes; in checkpoints alone */
    DTP_F6_E3M2 = 22,
    DTP_DTYPE_END = 23          /* one past the last */
} dtp_dtype;

/*
 * Bytes of one element, 0 for an unknown type and for one whose elements are no whole bytes.
 * Threads: any. Since 0.1.
 */
DTP_API size_t dtp_dtype_bytes(dtp_dtype dtype);

/*
 * Bits of one element, 0 for an unknown type. Threads: any. Since 0.1.
 */
DTP_API uint32_t dtp_dtype_bits(dtp_dtype dtype);

/*
 * Lower-case name such as "f32" or "bf16"; "none" for an unknown type. Threads: any. Since 0.1.
 */
DTP_API const char *dtp_dtype_name(dtp_dtype dtype);

/*
 * Type of a lower- or upper-case name ("f32", "BF16"); DTP_DTYPE_NONE when there is none such.
 * Threads: any. Since 0.1.
 */
DTP_API dtp_dtype dtp_dtype_parse(const char *name);

#ifdef __cplusplus
}
#endif

#endif /* DTP_BASE_H */
