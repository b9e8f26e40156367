#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""binary.py LIBDTP HEADERS [MODULE]... - what the built library needs and shows.

libdtp.so needs only the libraries below (heavy ones stand behind modules), it exports exactly what the public
headers declare, and a module exports its one table.
"""
import os
import re
import subprocess
import sys

import source

MAY_NEED = ("libc.so.", "libm.so.", "libpthread.so.", "libdl.so.", "ld-linux", "libsodium.so.", "libzstd.so.",
            "libjansson.so.", "libyaml-0.so.", "liburing.so.")


def needed(path):
    out = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", out)


def exported(path):
    out = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1].split("@")[0] for line in out.splitlines() if line.split()[1] not in "Aa"]
    return set(names)


def declared(folder):
    names = set()
    for path in source.find(folder, ["."], (".h",)):
        text = source.without_comments(source.read(folder, path))
        names |= set(re.findall(r"^DTP_API[^;(]*?\b(dtp_\w+)\s*\(", text, re.M))
    return names


def needs_problems(name, libraries):
    return [f"{name} needs {lib}, which belongs behind a module" for lib in libraries if not lib.startswith(MAY_NEED)]


def exports_problems(name, has, wants):
    return ([f"{name} exports {n}, which no public header declares" for n in sorted(has - wants)] +
            [f"{name} lacks {n}, which a public header declares" for n in sorted(wants - has)])


def check(library, headers, modules):
    name = os.path.basename(library)
    problems = needs_problems(name, needed(library)) + exports_problems(name, exported(library), declared(headers))
    for module in modules:
        problems += exports_problems(os.path.basename(module), exported(module), {"dtpi_module_this"})
    return problems, 1 + len(modules)


if __name__ == "__main__":
    source.finish("binary", *check(sys.argv[1], sys.argv[2], sys.argv[3:]))
