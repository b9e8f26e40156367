#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch_ckpt.py OP PEER DIR RANKS TO BYTES ROUNDS - what others save and load, timed as `dtp-bench ckpt`.

OP is save, load or reshard; PEER dcp (torch.distributed.checkpoint), safetensors or torch (torch.save). The
state is dtp-bench's: bf16 tensors of 4096 columns and 64 MiB, cut along the rows; reshard loads cut along the
columns. All sync what they write (dcp by itself, the others by fsync), and load from files that are not cached,
into memory that is there (torch.load: into its own). One JSON line: the median of the rounds, of each the slowest
rank.
"""
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")
COLUMNS, TENSOR = 4096, 64 << 20


def make_state(total, dim, fill):
    """DTensors, and the part of them that is here."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    rows = min(TENSOR, total) // (2 * COLUMNS)
    state = {}
    for i in range(max(total // TENSOR, 1)):
        shape = [rows, COLUMNS]
        whole = torch.empty(shape, device="meta", dtype=torch.bfloat16)
        part = whole.tensor_split(mesh.size(), dim)[mesh.get_local_rank()]
        local = torch.zeros(part.shape, dtype=torch.bfloat16)
        if fill:
            local.copy_(torch.randn(part.shape) * 0.02)
        state[f"layer.{i}.weight"] = DTensor.from_local(
            local, mesh, [Shard(dim)], run_check=False, shape=whole.shape, stride=whole.stride()
        )
    return state, {k: v.to_local() for k, v in state.items()}


def synced(path, write):
    write(path)
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(peer, path, state, local):
    own = os.path.join(path, f"rank-{dist.get_rank()}")
    if peer == "dcp":
        import torch.distributed.checkpoint as dcp

        dcp.save(state, storage_writer=dcp.FileSystemWriter(path))
    elif peer == "safetensors":
        from safetensors.torch import save_file

        synced(own, lambda p: save_file(local, p))
    else:
        synced(own, lambda p: torch.save(local, p))


def load(peer, path, state, local):
    own = os.path.join(path, f"rank-{dist.get_rank()}")
    if peer == "dcp":
        import torch.distributed.checkpoint as dcp

        dcp.load(state, storage_reader=dcp.FileSystemReader(path))
    elif peer == "safetensors":
        from safetensors import safe_open

        with safe_open(own, "pt") as f:
            for name in f.keys():
                local[name].copy_(f.get_tensor(name))
    else:
        local.update(torch.load(own, weights_only=True))


def drop_cache(path):
    for folder, _, files in os.walk(path):
        for name in files:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def timed(fn):
    dist.barrier()
    begin = time.perf_counter()
    fn()
    took = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return float(took)


def saves(peer, path, total, rounds):
    state, local = make_state(total, 0, True)
    times = []
    for _ in range(rounds + 1):
        if dist.get_rank() == 0:
            shutil.rmtree(path, ignore_errors=True)
            os.mkdir(path)
        times.append(timed(lambda: save(peer, path, state, local)))
    return times[1:]


def loads(peer, path, total, rounds, dim):
    state, local = make_state(total, dim, False)
    times = []
    for _ in range(rounds + 1):
        if dist.get_rank() == 0:
            drop_cache(path)
        times.append(timed(lambda: load(peer, path, state, local)))
    if not all(bool(t.any()) for t in local.values()):
        sys.exit(f"{peer}: nothing came back")
    return times[1:]


def run_ranks(n, fn):
    """What fn() returns in rank 0 of n forked ranks."""
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(n):
            pid = os.fork()
            if pid == 0:
                try:
                    torch.set_num_threads(1)
                    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=n)
                    result = fn()
                    if rank == 0:
                        with open(f"{folder}/result", "w") as f:
                            json.dump(result, f)
                    dist.barrier()
                    os._exit(0)
                except BaseException as e:
                    print(f"torch_ckpt: rank {rank}: {e}", file=sys.stderr, flush=True)
                    os._exit(1)
            pids.append(pid)
        if any([os.waitpid(pid, 0)[1] for pid in pids]):
            sys.exit(1)
        with open(f"{folder}/result") as f:
            return json.load(f)


def main():
    op, peer, folder = sys.argv[1:4]
    ranks, to, total, rounds = map(int, sys.argv[4:8])
    work = tempfile.mkdtemp(prefix="peers-ckpt.", dir=folder)
    path = os.path.join(work, "step")
    try:
        times = run_ranks(ranks, lambda: saves(peer, path, total, rounds if op == "save" else 0))
        if op != "save":
            n, dim = (to, 1) if op == "reshard" else (ranks, 0)
            times = run_ranks(n, lambda: loads(peer, path, total, rounds, dim))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(json.dumps({"bench": "ckpt", "op": op, "peer": peer, "ranks": to if op == "reshard" else ranks,
                      "saved_by": ranks, "bytes": total, "type": "bf16", "codec": "none", "rounds": rounds,
                      "gb_per_s": total / statistics.median(times) / 1e9, "version": torch.__version__}))


main()
