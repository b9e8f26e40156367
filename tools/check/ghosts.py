#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ghosts.py ROOT - comments and documents name only what exists.

A dtp_* or dtpi_* name in a comment or a document must occur somewhere in code (a name that ends in _ or is
followed by * is a prefix), and a relative link in a document must lead to a file.
"""
import os
import re
import sys

import source

CODE = ["include", "lib", "tools", "bench", "tests", "bindings", "docs/examples"]
NAME = re.compile(r"(?<![\w./-])(dtpi?_[a-z0-9_]*[a-z0-9_])(\*|<)?")
# What cgo reads from comments: exported functions and the C text above import "C".
CGO = re.compile(r'^//export \w+|/\*(?:(?!\*/).)*\*/\s*import "C"|(?:^//[^\n]*\n)+import "C"', re.M | re.S)
FENCE = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def known_names(root):
    """Every name in code, and the prefixes that macros complete (dtpi_module_##ident)."""
    names, prefixes = set(), set()
    for path in source.find(root, CODE + ["meson.build"], (".c", ".h", ".py", ".go", ".in", "meson.build")):
        if path.endswith(".go"):
            text = source.read(root, path)
            text = source.without_comments(text) + "".join(CGO.findall(text))
        elif path.endswith((".c", ".h", ".in")):
            text = source.without_comments(source.read(root, path))
        elif path.startswith("tools/check/"):
            continue
        else:
            text = re.sub(r"#.*", "", source.read(root, path))
        names |= set(re.findall(r"\bdtpi?_\w+", text))
        prefixes |= set(re.findall(r"\b(dtpi?_\w+_)(?=\s*##)", text))
    return names, tuple(prefixes)


def ghosts_in(path, text, names, prefixes):
    problems = []
    for m in NAME.finditer(text):
        name, mark = m[1], m[2]
        if mark or name.endswith("_"):
            if any(n.startswith(name) for n in names) or mark == "<":
                continue
        elif name in names or name.startswith(prefixes):
            continue
        problems.append(f"{path}:{source.line_of(text, m.start())}: {name}{mark or ''} does not exist")
    return problems


def dead_links(root, path, text):
    problems = []
    text = FENCE.sub(lambda m: source.blank(m[0]), text)
    for m in LINK.finditer(text):
        if not os.path.exists(os.path.join(root, os.path.dirname(path), m[1])):
            problems.append(f"{path}:{source.line_of(text, m.start())}: link to {m[1]}, which is not there")
    return problems


def check(root):
    names, prefixes = known_names(root)
    problems = []
    commented = [p for p in source.find(root, CODE, (".c", ".h", ".go")) if not p.startswith("tools/check/")]
    for path in commented:
        problems += ghosts_in(path, source.only_comments(source.read(root, path)), names, prefixes)
    documents = source.find(root, ["README.md", "CONTRIBUTING.md", "docs"], (".md",))
    for path in documents:
        text = source.read(root, path)
        problems += ghosts_in(path, text, names, prefixes)
        problems += dead_links(root, path, text)
    return problems, len(commented) + len(documents)


if __name__ == "__main__":
    source.finish("ghosts", *check(sys.argv[1]))
