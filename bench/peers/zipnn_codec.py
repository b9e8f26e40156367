# SPDX-License-Identifier: Apache-2.0
"""zipnn on the numbers of `dtp-bench ckpt codec`: zipnn_codec.py TYPE BYTES ROUNDS, one JSON line."""
import json
import statistics
import sys
import time

import numpy as np
import torch
import zipnn


def numbers(kind, n):
    rng = np.random.default_rng(1)
    normal = rng.standard_normal(n)
    if kind in ("bf16", "f16", "f32"):
        t = torch.from_numpy((0.02 * normal).astype(np.float32))
        return t.to({"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[kind])
    if kind == "adam-m":
        return torch.from_numpy((1e-4 * normal * np.exp(0.25 * rng.standard_normal(n))).astype(np.float32))
    if kind == "adam-v":
        return torch.from_numpy((1e-8 * np.exp(0.7 * normal)).astype(np.float32))
    return torch.from_numpy(rng.integers(0, 2**32, n, dtype=np.uint32).view(np.float32))


def main():
    kind, size, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    width = 2 if kind in ("bf16", "f16") else 4
    plain = bytes(numbers(kind, size // width).view(torch.uint8).numpy())
    dtype = {"bf16": "bfloat16", "f16": "float16"}.get(kind, "float32")
    z = zipnn.ZipNN(bytearray_dtype=dtype, input_format="byte", threads=1)
    encode, decode = [], []
    for i in range(rounds + 1):
        copy = bytearray(plain)  # it changes its input
        t0 = time.process_time()
        coded = z.compress(copy)
        t1 = time.process_time()
        back = z.decompress(coded)
        t2 = time.process_time()
        if bytes(back) != plain:
            sys.exit(f"zipnn {kind}: other bytes come back")
        if i:
            encode.append(t1 - t0)
            decode.append(t2 - t1)
    rate = [size / statistics.median(t) / 1e9 for t in (encode, decode)]
    print(json.dumps({"bench": "ckpt", "op": "codec", "codec": "zipnn", "type": kind, "ranks": 1, "bytes": size,
                      "ratio": round(size / len(coded), 5), "gb_per_s": rate[0], "encode_gb_per_s": rate[0],
                      "decode_gb_per_s": rate[1], "version": zipnn.__version__ if hasattr(zipnn, "__version__") else ""}))


main()
