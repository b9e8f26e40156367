#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The safetensors reader beside the reference (package safetensors) on random and mutated files.

Both must take a file, and then find the same tensors at the same places, or both must refuse it. Where they
differ, the difference is one of EXPLAINED, which docs/formats/ckpt.md tells as a table; anything else fails.

usage: test_st_reference.py ST_ORACLE     DTP_TEST_SEED repeats a run, DTP_TEST_LONG=1 makes it 100 times as long
"""

import json
import os
import random
import re
import struct
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

try:
    from safetensors import SafetensorError, deserialize
except ImportError:
    venv = Path(__file__).resolve().parents[2] / ".venv/bin/python"
    if venv.exists() and Path(sys.executable) != venv and "DTP_TEST_AGAIN" not in os.environ:
        os.execve(venv, [str(venv), *sys.argv], {**os.environ, "DTP_TEST_AGAIN": "1"})
    print("skipped: the package safetensors is not here")
    sys.exit(77)

TWICE = "a name twice"

# What ours refuses and the reference takes, by our text, and the other way round, by the reference's.
OURS_REFUSES = [
    (TWICE, r"is there twice"),
    ("NUL in a string", r"a \\u escape is no code point, or NUL"),
    ("a tensor as an array", r"expected an object"),
    ("more than 64 dimensions", r"too many dimensions"),
    ("nested more than 64 levels", r"nested too deeply"),
]
REFERENCE_REFUSES = [
    ("a number out of range in a member that nobody reads", r"number out of range"),
]

BITS = dict(BOOL=8, F4=4, F6_E2M3=6, F6_E3M2=6, U8=8, I8=8, F8_E5M2=8, F8_E4M3=8, F8_E8M0=8, F8_E4M3FNUZ=8, F8_E5M2FNUZ=8,
            I16=16, U16=16, F16=16, BF16=16, I32=32, U32=32, F32=32, C64=64, F64=64, I64=64, U64=64)
NAMES = ["a", "b", "w.0", "é", "\U0001f600", "", " ", "a\"b", "x\\y", "__metadata", "tab\t", "\u007f", "long" * 30]
WORDS = [b"{", b"}", b"[", b"]", b",", b":", b"\"", b"\\", b"\\u0061", b"\\u0000", b"\\ud800", b"\\ud83d\\ude00", b"null",
         b"true", b"1", b"0", b"-1", b"00", b"1.0", b"1e2", b"1e999", b"18446744073709551615", b"18446744073709551616",
         b"9223372036854775807", b" ", b"\n", b"\t", b"\x00", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\"dtype\":\"U8\",",
         b"\"shape\":[1],", b"\"data_offsets\":[0,0],", b"\"__metadata__\":{},", b"\"__metadata__\":null,", b"\"x\":{},",
         b"\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},", b"[\"U8\",[0],[0,0]]", b"[[[[", b"1" * 70]


def shape_of(rnd):
    return [rnd.choice([0, 1, 1, 2, 3, 4, 8]) for _ in range(rnd.choice([0, 1, 1, 2, 3, 5]))]


def tensors_of(rnd):
    """Random tensors one behind the other; their names and order are any."""
    out, at = [], 0
    for name in rnd.sample(NAMES, rnd.randrange(5)):
        dtype, shape = rnd.choice(list(BITS)), shape_of(rnd)
        bits = BITS[dtype]
        for d in shape:
            bits *= d
        size = bits // 8 + rnd.choice([0] * 30 + [1])
        out.append((name, {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}))
        at += size
    rnd.shuffle(out)
    return out, at


def header_of(rnd, tensors):
    members = list(tensors)
    if rnd.randrange(3) == 0:
        meta = {k: rnd.choice(["", "pt", "\u00e9\n", "{}"]) for k in rnd.sample(["format", "x", ""], rnd.randrange(4))}
        members.insert(rnd.randrange(len(members) + 1), ("__metadata__", meta))
    text = json.dumps(dict(members), ensure_ascii=rnd.randrange(2) == 0, separators=rnd.choice([(",", ":"), (", ", ": ")]))
    return (rnd.choice(["", "", "", " ", "\n"]) + text + " " * rnd.choice([0, 0, 3, 8])).encode()


def mutate(rnd, header):
    h = bytearray(header)
    for _ in range(rnd.choice([0, 0, 1, 1, 1, 2, 4])):
        at = rnd.randrange(len(h) + 1)
        end = min(len(h), at + rnd.choice([1, 1, 2, 5, 20]))
        kind = rnd.randrange(6)
        if kind == 0 and at < len(h):
            h[at] ^= 1 << rnd.randrange(8)
        elif kind == 1:
            del h[at:end]
        elif kind == 2:
            h[at:at] = rnd.choice(WORDS)
        elif kind == 3:
            h[at:end] = rnd.choice(WORDS)
        elif kind == 4:
            h[at:at] = h[at:end]
        else:  # a number becomes another
            found = list(re.finditer(rb"\d+", bytes(h)))
            if found:
                m = rnd.choice(found)
                h[m.start() : m.end()] = rnd.choice([b"0", b"1", b"2", b"3", b"16", str(int(m[0][:18]) + 1).encode()])
    return bytes(h)


def file_of(rnd):
    tensors, size = tensors_of(rnd)
    header = mutate(rnd, header_of(rnd, tensors))
    n = len(header) + rnd.choice([0] * 40 + [1, -1, 8, 1 << 32, 1 << 63, 100000001])
    data = bytes(rnd.randrange(256) for _ in range(min(size, 64))) + bytes(max(0, size - 64))
    cut = rnd.choice([0] * 20 + [1, -1])
    data = data[:-1] if cut < 0 else data + b"x" * cut
    whole = struct.pack("<Q", n % 2**64) + header + data
    return whole[: rnd.randrange(16)] if rnd.randrange(200) == 0 else whole


def ask_reference(file):
    try:
        return {name: (t["dtype"], list(t["shape"]), bytes(t["data"])) for name, t in deserialize(file)}, ""
    except SafetensorError as e:
        return None, str(e)


def ask_ours(line, file):
    if not line.startswith("ok"):
        return None, line
    data = 8 + int.from_bytes(file[:8], "little")
    out = {}
    for part in line.split(" ")[1:]:
        name, dtype, dims, begin, end = part.split(":")
        shape = [int(d) for d in dims.split(",")] if dims else []
        out[bytes.fromhex(name).decode()] = (dtype, shape, file[data + int(begin) : data + int(end)])
    return out, ""


def has_twins(file):
    """A name stands twice: the reference looks at the last one alone."""
    twins = []

    def look(pairs):
        twins.append(len({k for k, _ in pairs}) < len(pairs))
        return dict(pairs)

    try:
        json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")], object_pairs_hook=look)
    except ValueError:
        return False
    return any(twins)


def explain(file, ours, our_text, reference, reference_text):
    """The row that tells why the two differ; "" where they do not; None where nobody knows."""
    if ours == reference:
        return "both take it" if ours is not None else "both refuse it"
    rows, text = (OURS_REFUSES, our_text) if ours is None else (REFERENCE_REFUSES, reference_text)
    if ours is not None and reference is not None:
        return None
    if ours is None and has_twins(file):
        return TWICE
    return next((name for name, pattern in rows if re.search(pattern, text)), None)


def compare(oracle, files):
    feed = b"".join(struct.pack("<I", len(f)) + f for f in files)
    with subprocess.Popen([oracle], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        writer = threading.Thread(target=lambda: (p.stdin.write(feed), p.stdin.close()))
        writer.start()
        lines = p.stdout.read().decode("utf-8", "replace").split("\n")
        writer.join()
    assert p.returncode == 0 and len(lines) == len(files) + 1, f"the oracle ended early ({p.returncode})"
    counts = Counter()
    for file, line in zip(files, lines):
        ours, our_text = ask_ours(line, file)
        reference, reference_text = ask_reference(file)
        row = explain(file, ours, our_text, reference, reference_text)
        if row is None:
            sys.exit(f"not explained: {file!r}\nours: {ours} {our_text}\nreference: {reference} {reference_text}")
        counts[row] += 1
    return counts


def main():
    seed = int(os.environ.get("DTP_TEST_SEED", "0"), 0) or random.SystemRandom().randrange(1, 2**63)
    rnd = random.Random(seed)
    rounds = 400 if os.environ.get("DTP_TEST_LONG", "0") not in ("", "0") else 4
    counts = Counter()
    print(f"seed: DTP_TEST_SEED={seed:#x}")
    for _ in range(rounds):
        counts += compare(sys.argv[1], [file_of(rnd) for _ in range(3000)])
    for row, n in counts.most_common():
        print(f"{n:9} {row}")


if __name__ == "__main__":
    main()
