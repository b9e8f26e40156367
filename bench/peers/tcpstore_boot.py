#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tcpstore_boot.py LABEL RANKS - torch's TCPStore: forked processes set a key, read all, pass a barrier.

The clock starts when torch is loaded and before the first fork; by address, so that no name is looked up.
"""
import json
import mmap
import os
import socket
import struct
import sys
import time
from datetime import timedelta

from torch.distributed import TCPStore


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(rank, world, port, page):
    store = TCPStore("127.0.0.1", port, world, rank == 0, timedelta(seconds=120), wait_for_workers=False)
    store.set(f"rank{rank}", f"127.0.0.1:{os.getpid()}")
    table = store.multi_get([f"rank{i}" for i in range(world)])
    assert len(table) == world and all(table)
    if store.add("barrier", 1) == world:
        store.set("through", "1")
    store.wait(["through"])
    struct.pack_into("q", page, 8 * rank, time.monotonic_ns())
    if rank == 0:                   # serves until all are through
        while 0 in struct.unpack_from(f"{world}q", page):
            time.sleep(0.001)


def main():
    label, world = sys.argv[1], int(sys.argv[2])
    page = mmap.mmap(-1, 8 * world)
    port = free_port()
    start = time.monotonic_ns()
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            run(rank, world, port, page)
            os._exit(0)
        pids.append(pid)
    ok = all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
    ends = struct.unpack_from(f"{world}q", page)
    if not ok or 0 in ends:
        sys.exit("tcpstore_boot: a process failed")
    print(json.dumps({"bench": "boot", "peer": label, "ranks": world, "total_ms": (max(ends) - start) / 1e6}))


if __name__ == "__main__":
    main()
