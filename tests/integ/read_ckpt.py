#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second reader of checkpoints, written from docs/formats/ckpt.md alone: reads and checks a step.

usage: read_ckpt.py STEP_DIR      prints name, dtype, shape and a sum of each tensor, or what is wrong
Sums are compared where the package xxhash is installed; codecs zstd and planes need the package zstandard.
"""

import base64
import json
import math
import struct
import sys
from pathlib import Path

import numpy as np

try:
    import xxhash
except ImportError:
    xxhash = None

WIDTH = dict(f64=8, f32=4, f16=2, bf16=2, i64=8, i32=4, i16=2, i8=1, u64=8, u32=4, u16=2, u8=1, bool=1, f8_e4m3=1, f8_e5m2=1, f8_e8m0=1, f8_e4m3fnuz=1, f8_e5m2fnuz=1, c64=8)


class Bad(Exception):
    pass


class Shards(list):
    step_dir = None


def want(truth, text):
    if not truth:
        raise Bad(text)


def xxh3(data):
    return xxhash.xxh3_64_intdigest(data) if xxhash else None


def same(data, expected, text):
    want(xxhash is None or xxh3(data) == expected, f"{text}: checksum mismatch")


def no_twins(pairs):
    want(len(dict(pairs)) == len(pairs), "a member is there twice")
    return dict(pairs)


def numbers(text, code):
    raw = base64.b64decode(text, validate=True)
    return [v for (v,) in struct.iter_unpack("<" + code, raw)]


def read_manifest(step_dir):
    raw = (step_dir / "manifest.json").read_bytes()
    tail = raw[-32:]
    want(tail[:13] == b',"checksum":"' and tail[-3:] == b'"}\n', "manifest.json is truncated")
    same(raw[:-32], int(tail[13:29], 16), "manifest.json")
    m = json.loads(raw.decode("utf-8"), object_pairs_hook=no_twins)
    want(m["format"] == "dtp-ckpt" and m["version"] in (1, 2), "not a manifest of version 1 or 2")
    want(step_dir.name == "step-%020d" % m["step"], "the manifest of another step")
    if m["version"] == 2:
        for t in m["tensors"]:
            t["boxes"] = [box_of_2(b, len(t["shape"])) for b in t["boxes"]]
        for i, f in enumerate(m["files"]):
            mine = [(t, b) for t in m["tensors"] for b in t["boxes"] if b["file"] == i]
            place_boxes(step_dir, m, f, mine)
    return m


def box_of_2(b, n):
    """A box of version 2 as one of version 1, without its place."""
    want(len(b) - 1 - 2 * n in (0, 1), "a box of the wrong length")
    out = {"file": b[0], "offset": b[1 : 1 + n], "extent": b[1 + n : 1 + 2 * n]}
    return out | {"key": b[-1]} if len(b) == 2 + 2 * n else out


def place_boxes(step_dir, m, f, boxes):
    """Reads the part of a file: where its boxes lie."""
    raw = (step_dir / f["part"]).read_bytes()
    want(len(raw) == f["part_bytes"], f"{f['part']} has {len(raw)} bytes instead of {f['part_bytes']}")
    same(raw, int(f["part_sum"], 16), f["part"])
    same(raw[:-8], int.from_bytes(raw[-8:], "little"), f["part"])
    magic, version, chunk_bytes, step, id_, rank, world, n_boxes, n_ranges, n_sums, n_sizes, n_files, n_text = struct.unpack_from("<8sIIQQIIQQQQII", raw)
    want(magic == b"dtp-part" and version == 1, f"{f['part']}: not a part of version 1")
    want((chunk_bytes, step, id_, rank, world) == (m["chunk_bytes"], m["step"], int(m["id"], 16), f["rank"], m["world_size"]), f"{f['part']}: of another shard")
    want(len(raw) == 80 + 48 * n_ranges + 32 * n_files + 8 * n_sums + 4 * n_sizes + n_text + 8, f"{f['part']}: counts")
    want(n_boxes == len(boxes), f"{f['part']}: boxes")
    at_files = 80 + 48 * n_ranges
    at_sums = at_files + 32 * n_files
    sums = struct.unpack_from(f"<{n_sums}Q", raw, at_sums)
    sizes = struct.unpack_from(f"<{n_sizes}I", raw, at_sums + 8 * n_sums)
    text = raw[at_sums + 8 * n_sums + 4 * n_sizes : -8]
    ranges = [struct.unpack_from("<IIQQQQQ", raw, 80 + 48 * i) for i in range(n_ranges)]
    others = [struct.unpack_from("<QQQII", raw, at_files + 32 * i) for i in range(n_files)]
    places = [(m["step"], f["name"], f["header_bytes"])]
    places += [(step, text[at : at + n].decode(), header) for step, _, header, at, n in others]

    def link(i, n):
        file, base, begin, end, sums_at, sizes_at, plain_at = ranges[i]
        chunks = -(-n // chunk_bytes)
        out = {"place": places[file], "bytes": [begin, end], "sums": sums[sums_at : sums_at + chunks], "own": file == 0}
        if sizes_at != 2**64 - 1:
            out["sizes"] = sizes[sizes_at : sizes_at + chunks]
        out["plain"] = sums[plain_at : plain_at + chunks] if plain_at else None
        if base != 2**32 - 1:
            want(n_boxes <= base < n_ranges and base > i, f"{f['part']}: base")
            out["base"] = link(base, n)
            out["alone"] = [size >> 31 for size in out.get("sizes", [0] * chunks)]
            if "sizes" in out:
                out["sizes"] = [size & 2**31 - 1 for size in out["sizes"]]
        return out

    for i, (t, b) in enumerate(boxes):
        b.update(link(i, math.prod(b["extent"]) * WIDTH[t["dtype"]]))


def read_shard(step_dir, f):
    """The data of a shard behind its header, and its entries."""
    raw = (step_dir / f["name"]).read_bytes()
    want(len(raw) == f["bytes"], f"{f['name']} has {len(raw)} bytes instead of {f['bytes']}")
    head = raw[: f["header_bytes"]]
    want(int.from_bytes(head[:8], "little") + 8 == f["header_bytes"], f"{f['name']}: header length")
    want(f["header_bytes"] % 4096 == 0, f"{f['name']}: data is not aligned")
    same(head, int(f["header_sum"], 16), f"{f['name']}: header")
    return raw[f["header_bytes"] :], json.loads(head[8:].decode("utf-8"), object_pairs_hook=no_twins)


def decode(codec, stored, n):
    if len(stored) == n:
        return stored
    if codec == "planes":
        return decode_planes(stored, n)
    want(codec == "zstd", f"unknown codec {codec}")
    return unzstd(stored, n)


def unzstd(stored, n):
    import zstandard

    return zstandard.ZstdDecompressor().decompress(stored, max_output_size=n)


def decode_planes(stored, n, depth=0):
    want(stored[0] < 16, "planes: unknown kind of unit")
    return decode_sparse(stored, n, depth) if stored[0] & 8 else decode_dense(stored, n)


def decode_sparse(stored, n, depth):
    """Bits say which units are there; the units follow."""
    want(depth < 3, "planes: sparse bits of sparse bits")
    width = 1 << (stored[0] & 3)
    units, cut = n // width, 5 + int.from_bytes(stored[1:5], "little")
    n_bits = -(-units // 8)
    bits = stored[5:cut] if cut - 5 == n_bits else decode_planes(stored[5:cut], n_bits, depth + 1)
    there = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    want(not there[units:].any(), "planes: a bit behind the last unit")
    n_values, rest = int(there.sum()) * width, stored[cut:]
    values = rest if len(rest) == n_values else decode_planes(rest, n_values, 3)
    out = np.zeros((units, width), np.uint8)
    out[there[:units] == 1] = np.frombuffer(values, np.uint8).reshape(-1, width)
    return out.tobytes()


def decode_dense(stored, n):
    width, turned, at, out = 1 << (stored[0] & 3), stored[0] & 4, 1, bytearray()
    while len(out) < n:
        units, heads, planes = min(131072, (n - len(out)) // width), at, []
        at += 4 * width
        for k in range(width):
            tag, number = stored[heads + 4 * k], int.from_bytes(stored[heads + 4 * k + 1 : heads + 4 * k + 4], "little")
            want(tag < 3, "planes: unknown tag")
            took = 0 if tag == 1 else number
            piece = stored[at : at + took]
            planes.append(bytes([number]) * units if tag == 1 else piece if tag == 0 else unzstd(piece, units))
            at += took
        for i in range(units):
            v = int.from_bytes(bytes(p[i] for p in planes), "little")
            if turned:
                v = v >> 1 | (v & 1) << (8 * width - 1)
            out += v.to_bytes(width, "little")
    want(at == len(stored), "planes: bytes behind the last block")
    return bytes(out)


def read_box(m, t, b, shards, chunks):
    """The plain bytes of a box; its chunks' places and sums go to `chunks`."""
    if m["version"] == 2:
        n = math.prod(b["extent"]) * WIDTH[t["dtype"]]
        check_entry(t, b, shards)
        if b["own"]:
            chunks |= {(b["file"], at, known) for at, known in places_of(m, b, n)}
        return read_link(m, t, b, n, shards)
    return read_box_of_1(m, t, b, shards, chunks)


def sizes_of(m, b, n):
    plain = [min(m["chunk_bytes"], n - at) for at in range(0, n, m["chunk_bytes"])]
    return plain, b.get("sizes", plain)


def places_of(m, b, n):
    at = b["bytes"][0]
    for size, known in zip(sizes_of(m, b, n)[1], b["sums"]):
        yield at, known
        at += size


def check_entry(t, b, shards):
    """A box whose bytes are in its own shard is there under its key, unless it shares them."""
    entry = shards[b["file"]][1].get(b.get("key", t["name"]))
    if b["own"] and entry:
        want(entry["data_offsets"] == b["bytes"], f"{t['name']}: header and part differ")
        if "sizes" not in b:
            want(entry["dtype"].lower() == t["dtype"] and entry["shape"] == b["extent"], f"{t['name']}: dtype or extent")


def read_link(m, t, b, n, shards):
    """Stored bytes, decoded, and those that do not stand alone XORed with those of their base."""
    step, name, header = b["place"]
    plain, sizes = sizes_of(m, b, n)
    want(len(plain) == len(sizes) == len(b["sums"]), f"{t['name']}: sums and chunks differ in number")
    want(sum(sizes) == b["bytes"][1] - b["bytes"][0], f"{t['name']}: sizes and bytes differ")
    base = read_link(m, t, b["base"], n, shards) if "base" in b else None
    out, at = [], 0
    with open(shards.step_dir.parent / ("step-%020d" % step) / name, "rb") as file:
        file.seek(header + b["bytes"][0])
        for i, (size, total, known) in enumerate(zip(sizes, plain, b["sums"])):
            stored = file.read(size)
            same(stored, known, f"{t['name']}: chunk {i}")
            chunk = decode(m["codec"], stored, total)
            if base is not None and not b["alone"][i]:
                chunk = bytes(np.frombuffer(chunk, np.uint8) ^ np.frombuffer(base[at : at + total], np.uint8))
            if b["plain"]:
                same(chunk, b["plain"][i], f"{t['name']}: plain chunk {i}")
            out.append(chunk)
            at += total
    return b"".join(out)


def read_box_of_1(m, t, b, shards, chunks):
    n = math.prod(b["extent"]) * WIDTH[t["dtype"]]
    sums = numbers(b["sums"], "Q")
    plain = [min(m["chunk_bytes"], n - at) for at in range(0, n, m["chunk_bytes"])]
    sizes = numbers(b["sizes"], "I") if "sizes" in b else plain
    want(len(sums) == len(sizes) == len(plain), f"{t['name']}: sums and chunks differ in number")
    data, header = shards[b["file"]]
    entry = header[b.get("key", t["name"])]
    want(entry["data_offsets"] == b["bytes"], f"{t['name']}: header and manifest differ")
    if "sizes" not in b:
        want(entry["dtype"].lower() == t["dtype"] and entry["shape"] == b["extent"], f"{t['name']}: dtype or extent")
    at, out = b["bytes"][0], []
    for size, total, known in zip(sizes, plain, sums):
        stored = data[at : at + size]
        same(stored, known, f"{t['name']}: chunk {len(out)}")
        chunks.add((b["file"], at, known))
        out.append(decode(m["codec"], stored, total))
        at += size
    want(at == b["bytes"][1], f"{t['name']}: sizes and bytes differ")
    return b"".join(out)


def read_tensor(m, t, shards, chunks):
    """The whole tensor as an array of elements that are bytes of the dtype's width."""
    cell = np.dtype(f"V{WIDTH[t['dtype']]}")
    whole = np.zeros(t["shape"], cell)
    seen = np.zeros(t["shape"], np.uint8)
    for b in t["boxes"]:
        part = np.frombuffer(read_box(m, t, b, shards, chunks), cell).reshape(b["extent"])
        where = tuple(slice(o, o + e) for o, e in zip(b["offset"], b["extent"]))
        whole[where] = part
        seen[where] += 1
    want((seen == 1).all(), f"{t['name']}: its boxes do not tile it")
    return whole


def read_step(step_dir):
    """{name: (dtype, array of raw elements)} of a step folder; raises Bad."""
    step_dir = Path(step_dir)
    m = read_manifest(step_dir)
    shards = Shards(read_shard(step_dir, f) for f in m["files"])
    shards.step_dir = step_dir
    chunks, out = set(), {}
    for t in m["tensors"]:
        want(t["name"] not in out, f"{t['name']} is there twice")
        out[t["name"]] = (t["dtype"], read_tensor(m, t, shards, chunks))
    for i, f in enumerate(m["files"]):
        sums = [known for file, _, known in sorted(chunks) if file == i]
        same(struct.pack(f"<{len(sums) + 1}Q", int(f["header_sum"], 16), *sums), int(f["digest"], 16), f"{f['name']}: digest")
    return out


if __name__ == "__main__":
    try:
        for name, (dtype, array) in read_step(sys.argv[1]).items():
            print(name, dtype, list(array.shape), sum(array.tobytes()))
    except (Bad, OSError, KeyError, ValueError) as e:
        sys.exit(f"read_ckpt: {e}")
