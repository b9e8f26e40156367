#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shape.py ROOT - the tail: functions over 60 lines and files over 800.

tools/check/shape.allow lists the exceptions, one `PATH:FUNCTION reason` or `PATH reason` a line; an exception
that is not needed any more is a problem too.
"""
import re
import sys

import source

MAX_FUNCTION, MAX_FILE = 60, 800
HEAD = re.compile(r"\b(\w+)\s*\(")


def functions(text):
    """(name, first line, number of lines) of every function; they open and close with a brace in column 0."""
    lines = source.without_comments(text).split("\n")
    start = None
    for i, line in enumerate(lines):
        if line.startswith("{"):
            start = i
        elif line.startswith("}") and start is not None:
            yield name_above(lines, start), start + 1, i - start + 1
            start = None


def name_above(lines, brace):
    first = brace - 1
    while first > 0 and (lines[first][:1] in (" ", "\t") or not HEAD.search(lines[first])):
        first -= 1
    names = HEAD.findall(lines[first])
    names = [n for n in names if n not in ("__attribute__", "defined")]
    return names[0] if names else "?"


def allowed(root):
    table = {}
    for line in source.read(root, "tools/check/shape.allow").splitlines():
        if line.strip() and not line.startswith("#"):
            what, _, reason = line.partition(" ")
            table[what] = reason.strip()
    return table


def found_in(path, text):
    found = []
    n_lines = text.count("\n")
    if n_lines > MAX_FILE:
        found.append((path, f"{path}: {n_lines} lines, at most {MAX_FILE}"))
    for name, line, length in functions(text):
        if length > MAX_FUNCTION:
            found.append((f"{path}:{name}", f"{path}:{line}: {name} has {length} lines, at most {MAX_FUNCTION}"))
    return found


def check(root):
    table = allowed(root)
    problems = [f"shape.allow: {what} has no reason" for what, reason in table.items() if not reason]
    paths = source.find(root, ["include", "lib", "tools", "bench", "tests", "docs/examples", "bindings"], (".c", ".h"))
    used = set()
    for path in paths:
        for what, problem in found_in(path, source.read(root, path)):
            if what in table:
                used.add(what)
            else:
                problems.append(problem)
    problems += [f"shape.allow: {what} is not needed any more" for what in table if what not in used]
    return problems, len(paths)


if __name__ == "__main__":
    source.finish("shape", *check(sys.argv[1]))
