#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the C source of the extension from libdtp's public headers (cffi, API mode).

The headers are the only description of the interface: they are stripped of what cffi does not
parse (comments, preprocessor lines, extern "C", DTP_API) and handed to it. What Python is called
back with stands in CALLBACKS.

    build_ffi.py OUTPUT.c HEADER...        headers in any order; their includes decide
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import cffi

# C functions whose bodies are Python's; see _context.py, ckpt.py and job.py.
CALLBACKS = """
extern "Python" {
    int dtp_python_interrupted(void *user);
    void dtp_python_log(void *user, dtp_log_level level, const char *topic, const char *text);
    void dtp_python_progress(void *user, uint64_t done, uint64_t total);
    void dtp_python_ckpt_report(void *user, uint64_t step, dtp_status status, const char *text);
    void dtp_python_ckpt_gone(void *user, uint64_t step);
    void dtp_python_job_event(void *user, dtp_job *job, const dtp_job_event *event);
}
"""

# DLPack 1.0's structures (https://dmlc.github.io/dlpack/latest/c_api.html), for tensors that offer
# neither the buffer protocol nor a data pointer. The versioned one puts its header first.
DLPACK = """
typedef struct { int32_t device_type; int32_t device_id; } dlpack_device;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } dlpack_dtype;
typedef struct {
    void *data;
    dlpack_device device;
    int32_t ndim;
    dlpack_dtype dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} dlpack_tensor;
typedef struct { dlpack_tensor tensor; void *manager; void *deleter; } dlpack_managed;
typedef struct {
    uint32_t major;
    uint32_t minor;
    void *manager;
    void *deleter;
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_versioned;
"""

CAPSULE = "void *dtp_python_capsule(void *object, const char *name);\n"

CAPSULE_SOURCE = """
/* The pointer in a capsule, NULL when `object` (an id) is none of that name. Holds the GIL. */
static void *dtp_python_capsule(void *object, const char *name)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    void *p = NULL;
    if (PyCapsule_IsValid((PyObject *)object, name))
        p = PyCapsule_GetPointer((PyObject *)object, name);
    PyGILState_Release(gil);
    return p;
}
"""


def in_order(headers: list[Path]) -> list[Path]:
    """The headers, each after those that it includes."""
    by_name = {f"dtp/{h.name}": h for h in headers}
    done: list[Path] = []

    def visit(header: Path) -> None:
        if header in done:
            return
        for name in re.findall(r"^#include <(dtp/[^>]+)>", header.read_text(), re.M):
            if name in by_name:
                visit(by_name[name])
        done.append(header)

    for header in sorted(headers):
        visit(header)
    return done


def strip(text: str) -> str:
    """What cffi parses: plain declarations."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    # Numbers behind a macro become constants, which the compiler then fills in.
    macros = re.findall(r"^#define[ \t]+(DTP_\w+)[ \t]+(INT64_MIN|INT64_MAX)[ \t]*$", text, re.M)
    text = re.sub(r"^#ifdef __cplusplus.*?^#endif", "", text, flags=re.M | re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    text = re.sub(r"\bDTP_API\b", "", text)
    text += "".join(f"static const int64_t {name};\n" for name, _ in macros)
    return re.sub(r"\n\s*\n+", "\n", text)


def main(output: str, headers: list[str]) -> None:
    declarations = "".join(strip(h.read_text()) for h in in_order([Path(h) for h in headers]))
    ffi = cffi.FFI()
    ffi.cdef(declarations + DLPACK + CAPSULE + CALLBACKS)
    ffi.set_source("dtp._dtp", "#include <dtp/dtp.h>\n" + DLPACK + CAPSULE_SOURCE)
    with contextlib.redirect_stdout(io.StringIO()):
        ffi.emit_c_code(output)
    Path(output).touch()  # cffi leaves an equal file alone; the build must see that it was made


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: build_ffi.py OUTPUT.c HEADER...")
    main(sys.argv[1], sys.argv[2:])
