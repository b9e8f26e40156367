#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headers.py ROOT - public headers compile alone, as C and as C++, and stay readable for cffi.

Readable: no inline functions, no macros with arguments, no conditional parts but the guard and extern "C",
and every exported prototype opens with DTP_API, the only macro inside a declaration.
"""
import re
import shutil
import subprocess
import sys

import source

ALLOWED_IF = re.compile(r"#\s*(ifndef DTP_[A-Z_]+_H|ifndef DTP_API|ifdef __cplusplus|endif)\b")
PROTOTYPE = re.compile(r"^(?!\s|typedef|#|\}|\{|enum|struct)([^;{}#]*?)\b(dtp\w*)\s*\([^;{]*\)\s*;", re.M)


def joined(text):
    return text.replace("\\\n", " \n")


def rules(path, text):
    text = joined(source.without_comments(text))
    problems = []

    def bad(at, what):
        problems.append(f"{path}:{source.line_of(text, at)}: {what}")

    for m in re.finditer(r"\binline\b", text):
        bad(m.start(), "an inline function")
    macros = set()
    for m in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(?)", text, re.M):
        macros.add(m[1])
        if m[2]:
            bad(m.start(1), f"macro {m[1]} takes arguments")
    for m in re.finditer(r"^[ \t]*(#[ \t]*(?:if|ifdef|ifndef|elif|else)\b.*)$", text, re.M):
        if not ALLOWED_IF.match(m[1]):
            bad(m.start(1), f"a conditional part: {m[1]}")
    code = re.sub(r"^[ \t]*#.*$", lambda m: source.blank(m[0]), text, flags=re.M)
    for m in re.finditer(r"__attribute__|__extension__|__restrict", code):
        bad(m.start(), f"{m[0]} in a declaration")
    for m in re.finditer(r"\b[A-Z][A-Z0-9_]+\b", code):
        if m[0] in macros and m[0] != "DTP_API":
            bad(m.start(), f"macro {m[0]} in a declaration")
    for m in PROTOTYPE.finditer(code):
        if not m[1].lstrip().startswith("DTP_API"):
            bad(m.start(2), f"{m[2]} is declared without DTP_API")
    return problems


def compilers():
    found = []
    cc = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if cc:
        found.append(("C", [cc, "-x", "c", "-std=c11"]))
    for cxx in ("g++", "clang++", "c++"):
        if shutil.which(cxx):
            found.append(("C++", [cxx, "-x", "c++", "-std=c++11"]))
            break
    return found


def alone(root, path, language, command):
    text = f"#include <{path[len('include/'):]}>\n"
    run = subprocess.run(command + ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{root}/include", "-"],
                         input=text + text, capture_output=True, text=True)
    return [f"{path}: does not compile alone as {language}: {run.stderr.strip().splitlines()[0]}"] if run.returncode else []


def check(root):
    paths = source.find(root, ["include"], (".h",))
    problems = []
    for path in paths:
        problems += rules(path, source.read(root, path))
        for language, command in compilers():
            problems += alone(root, path, language, command)
    return problems, len(paths)


if __name__ == "__main__":
    source.finish("headers", *check(sys.argv[1]))
