# SPDX-License-Identifier: Apache-2.0
"""Makes the files beside it with torch (2.13.0 was used): python make.py DIR. Values are known numbers, so that
a test without torch can tell what must come out: element i of a tensor is i (modulo what its type holds)."""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

TYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 float8_e4m3fn float8_e5m2"


def plain(path):
    state = {t: torch.arange(6).to(getattr(torch, t)).reshape(2, 3) for t in TYPES.split()}
    big = torch.arange(24.0).reshape(4, 6)
    state.update(rows=big[1:3], columns=big[:, 2:4], turned=big.t(), tied=big, scalar=torch.tensor(3.5),
                 empty=torch.empty(0, 7), parameter=torch.nn.Parameter(torch.arange(3.0)))
    state["bool"] = torch.tensor([True, False])
    torch.save({"model": state, "epoch": 3, "name": "hé", "opt": {"state": {0: {"m": torch.arange(2.0)}},
                "groups": [{"betas": (0.5, 0.25)}]}, "none": None, "bytes": b"x"}, path)


def run(rank, size, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571", RANK=str(rank), WORLD_SIZE=str(size))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,))
    w = torch.arange(35.0).reshape(5, 7)
    state = {"rows": distribute_tensor(w, mesh, [Shard(0)]),
             "columns": distribute_tensor(w.bfloat16(), mesh, [Shard(1)]), "replica": torch.arange(4)}
    os.makedirs(out + "/dcp-hf", exist_ok=True)
    dcp.save(dict(state), storage_writer=HuggingFaceStorageWriter(path=out + "/dcp-hf", save_distributed=True))
    state.update(turned=torch.arange(6.0).reshape(2, 3).t(), epoch=7)
    dcp.save(state, checkpoint_id=out + "/dcp")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    plain(sys.argv[1] + "/plain.pt")
    mp.spawn(run, args=(2, sys.argv[1]), nprocs=2)
