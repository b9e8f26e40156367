#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gloo_allreduce.py LABEL MIN MAX FACTOR RANKS - torch.distributed's gloo, timed as dtp-bench times.

Batches of two milliseconds, of a batch the slowest rank, of the batches the median; JSON Lines.
"""
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist

WARM, MAX_CALLS, BATCHES, BATCHES_SLOW = 5, 2000, 21, 9


def run(x, n):
    start = time.perf_counter()
    for _ in range(n):
        dist.all_reduce(x)
    return (time.perf_counter() - start) / n


def measure(label, size, rank, world):
    count = size // 4
    x = torch.zeros(count)
    each = run(x, WARM)
    plan = torch.tensor([max(1, min(MAX_CALLS, int(0.002 / each))), BATCHES_SLOW if each > 0.01 else BATCHES])
    dist.broadcast(plan, 0)
    n_calls, n_batches = plan.tolist()
    dist.barrier()
    run(x, n_calls)
    times = torch.tensor([run(x, n_calls) for _ in range(n_batches)], dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    pattern = torch.arange(count) % 1000
    x = (pattern + rank).float()
    dist.all_reduce(x)
    wrong = (x != (pattern * world + world * (world - 1) // 2).float()).sum()
    dist.all_reduce(wrong)
    if rank:
        return
    t = float(times.sort().values[n_batches // 2])
    algbw = size / t / 1e9
    print(json.dumps({"bench": "allreduce", "peer": label, "ranks": world, "size": size, "count": count,
                      "type": "f32", "redop": "sum", "time_us": t * 1e6, "min_us": float(times.min()) * 1e6,
                      "algbw_gb_per_s": algbw, "busbw_gb_per_s": algbw * 2 * (world - 1) / world,
                      "wrong": int(wrong)}), flush=True)


def main():
    label, low, high, factor, world = sys.argv[1], *map(int, sys.argv[2:6])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        children = []
        rank = 0
        for r in range(1, world):
            pid = os.fork()
            if pid == 0:
                rank, children = r, []
                break
            children.append(pid)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
        size = low
        while size <= high:
            measure(label, size, rank, world)
            size *= factor
        dist.barrier()
        if rank:
            os._exit(0)
        for pid in children:
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
