# SPDX-License-Identifier: Apache-2.0
"""source.py - what the checks share: finding files, telling code from comments, saying what is wrong."""
import os
import re
import sys

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def find(root, tops, suffixes):
    """Paths relative to `root`, sorted, of the files below `tops` that end in one of `suffixes`."""
    found = []
    for top in tops:
        path = os.path.join(root, top)
        if os.path.isfile(path):
            found.append(top)
        for folder, names, files in os.walk(path):
            names[:] = [n for n in names if not n.startswith(".") and n != "__pycache__"]
            found += [os.path.relpath(os.path.join(folder, f), root) for f in files if f.endswith(suffixes)]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def blank(text):
    """The text with everything but its newlines gone: lines keep their numbers."""
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    return TOKEN.sub(lambda m: blank(m[0]) if m[0].startswith("/") else m[0], text)


def only_comments(text):
    out, at = [], 0
    for m in TOKEN.finditer(text):
        out.append(blank(text[at:m.start()]))
        out.append(m[0] if m[0].startswith("/") else blank(m[0]))
        at = m.end()
    return "".join(out) + blank(text[at:])


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def finish(name, problems, looked_at):
    """Prints the problems and ends the program; nothing to look at is a problem too."""
    for p in problems:
        print(p)
    if not looked_at:
        print(f"{name}: found nothing to look at")
    else:
        print(f"{name}: {looked_at} looked at, {len(problems)} problems")
    sys.exit(1 if problems or not looked_at else 0)
