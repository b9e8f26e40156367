#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""floors.py ROOT - a file includes its own folder, the floors below and include/dtp/, nothing else.

lib/FLOORS has the floors. A driver (a file that defines its family's table of operations) never includes
another driver's header, and the headers of heavy libraries are read only where HEAVY says so.
"""
import os
import re
import sys

import source

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
DRIVER = re.compile(r"^(?:static )?const (?:struct )?dtpi_\w+_ops\b[^;]*=|^DTPI_MODULE\(", re.M)
# Header prefix -> the only places that may include it.
HEAVY = {
    "ucp/": ["lib/net/ucx"], "uct/": ["lib/net/ucx"], "ucs/": ["lib/net/ucx"],
    "hwloc": ["lib/topo/hwloc"], "infiniband/": ["lib/topo/verbs"], "sqlite3.h": ["lib/db/"],
    "cuda": ["lib/gpu/"], "nvml.h": ["lib/gpu/"], "nccl.h": ["lib/gpu/"],
    "liburing": ["lib/files/uring"], "zstd": ["lib/codec/"], "yaml.h": ["lib/job/"],
}


def floors(root):
    table = {}
    for line in source.read(root, "lib/FLOORS").splitlines():
        words = line.split("#")[0].split()
        if len(words) == 2:
            table[words[0]] = int(words[1])
    return table


def check_quoted(path, header, table, drivers, sources):
    folder, own = os.path.dirname(path).split("/")[1], os.path.basename(path)
    parts = header.split("/")
    if len(parts) == 1:
        target, name = folder, parts[0]
    else:
        target, name = parts[0], parts[-1]
    if target == "dtp":
        return None
    if target not in table:
        return None if name in ("config.h",) else f"'{header}' lies in no folder of lib/FLOORS"
    if target != folder and table[target] >= table[folder]:
        return f"'{header}' is on floor {table[target]}, {folder} on floor {table[folder]}"
    twin = f"lib/{target}/{name[:-2]}.c"
    if path in drivers and twin in drivers and twin != path and twin[:-2] + ".h" in sources:
        return f"a driver includes another driver's '{header}'"
    return None


def check_system(path, header):
    for prefix, places in HEAVY.items():
        if header.startswith(prefix) and not any(path.startswith(p) for p in places):
            return f"<{header}> belongs to {' '.join(places)} alone"
    return None


def check(root):
    table, problems = floors(root), []
    sources = source.find(root, ["lib"], (".c", ".h"))
    text = {p: source.without_comments(source.read(root, p)) for p in sources}
    drivers = {p for p in sources if p.endswith(".c") and DRIVER.search(text[p])}
    for path in sources:
        folder = path.split("/")[1]
        if folder not in table:
            problems.append(f"{path}: folder {folder} is not in lib/FLOORS")
            continue
        for m in INCLUDE.finditer(text[path]):
            wrong = (check_quoted(path, m[2], table, drivers, sources) if m[1] == '"' else check_system(path, m[2]))
            if wrong:
                problems.append(f"{path}:{source.line_of(text[path], m.start(2))}: {wrong}")
    public = source.find(root, ["include", "docs/examples", "bindings"], (".c", ".h", ".go"))
    for path in public:
        for m in INCLUDE.finditer(source.read(root, path)):
            if m[2].split("/")[0] in table or (m[1] == '"' and m[2].startswith("lib/")):
                problems.append(f"{path}: includes '{m[2]}' of the library's inside")
    return problems, len(sources)


if __name__ == "__main__":
    source.finish("floors", *check(sys.argv[1]))
