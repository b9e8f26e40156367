# SPDX-License-Identifier: Apache-2.0
"""Other people's checkpoints under the recorder: what a crash leaves of two saves into one place.

    peers.py RECORDER REPLAY [--states N] [--seed S]

For each peer a child saves state 1, then state 2 to the same name, as its documentation shows, and marks
each when the call has returned. A judge loads every state that a crash may leave: it has to be 1 or 2, whole,
and no older than the mark. This shows that the enumerator finds windows that are known (libdtp's own
saves are looked at by test_ckpt_recorded); peers that are not installed are skipped. Prints JSON Lines.
"""
import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile

N = 3000


def content(step):
    import numpy as np
    return {"w": np.full(N, step, np.float32), "b": np.arange(100, dtype=np.int64) + step}


def verdict(read, promised):
    """One word on what `read()` gives: a dict of arrays."""
    import numpy as np
    try:
        got = read()
    except BaseException as e:  # DCP's own is no Exception
        if promised:
            return f"lost {type(e).__name__}: {str(e)[:100]!r}"
        return "ok none"
    for step in (1, 2):
        if all(np.array_equal(got[k], v) for k, v in content(step).items()):
            return f"ok {step}" if step >= promised else "older"
    return "wrong bytes were loaded without an error"


class Safetensors:
    @staticmethod
    def save(where, step):
        from safetensors.numpy import save_file
        save_file(content(step), f"{where}/model.safetensors")

    @staticmethod
    def read(where):
        from safetensors.numpy import load_file
        return load_file(f"{where}/model.safetensors")


class Dcp:
    @staticmethod
    def save(where, step):
        import torch
        import torch.distributed.checkpoint as dcp
        state = {k: torch.from_numpy(v) for k, v in content(step).items()}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{where}/ck"), no_dist=True)

    @staticmethod
    def read(where):
        import torch
        import torch.distributed.checkpoint as dcp
        state = {k: torch.zeros_like(torch.from_numpy(v)) for k, v in content(0).items()}
        dcp.load(state, checkpoint_id=f"{where}/ck", no_dist=True)
        return {k: v.numpy() for k, v in state.items()}


class TorchSave:
    @staticmethod
    def save(where, step):
        import torch
        torch.save({k: torch.from_numpy(v) for k, v in content(step).items()}, f"{where}/model.pt")

    @staticmethod
    def read(where):
        import torch
        return {k: v.numpy() for k, v in torch.load(f"{where}/model.pt", weights_only=True).items()}


PEERS = {"safetensors.save_file": (Safetensors, "safetensors"), "torch.save": (TorchSave, "torch"),
         "torch.distributed.checkpoint": (Dcp, "torch")}


def quiet():
    import logging
    import warnings
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)


def child_save(peer, where):
    quiet()
    mark = getattr(ctypes.CDLL(None), "crash_mark")
    mark.argtypes = [ctypes.c_uint64]
    for step in (1, 2):
        PEERS[peer][0].save(where, step)
        mark(step)


def child_judge(peer, where):
    quiet()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        out.write(verdict(lambda: PEERS[peer][0].read(where), int(line)).replace("\n", " ") + "\n")
        out.flush()


def run(peer, args):
    top = tempfile.mkdtemp(prefix="dtp-peers-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    was, now, log = f"{top}/was", f"{top}/now", f"{top}/log"
    try:
        os.mkdir(was)
        os.mkdir(now)
        me = [sys.executable, os.path.abspath(__file__)]
        env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
        recorded = dict(env, LD_PRELOAD=args.recorder, DTP_CRASH_DIR=was, DTP_CRASH_LOG=log)
        subprocess.run(me + ["--save", peer, was], env=recorded, check=True, stderr=subprocess.DEVNULL)
        done = subprocess.run([args.replay, log, was, str(args.states), str(args.seed), now, *me, "--judge", peer, now],
                              env=env, check=True, stdout=subprocess.PIPE, text=True)
        counts = {"peer": peer, **json.loads(done.stdout)}
        print(json.dumps(counts), flush=True)
        return counts
    finally:
        shutil.rmtree(top)


def installed(module):
    return subprocess.run([sys.executable, "-c", f"import numpy, {module}"], stderr=subprocess.DEVNULL).returncode == 0


def main():
    if sys.argv[1:2] == ["--save"]:
        return child_save(*sys.argv[2:])
    if sys.argv[1:2] == ["--judge"]:
        return child_judge(*sys.argv[2:])
    p = argparse.ArgumentParser()
    p.add_argument("recorder")
    p.add_argument("replay")
    p.add_argument("--states", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    n = 0
    for peer, (_, module) in PEERS.items():
        if not installed(module):
            print(f"peers: {peer} is skipped: {module} is not installed", file=sys.stderr)
            continue
        counts = run(peer, args)
        n += 1
        found = counts.get("lost", 0) + counts.get("wrong", 0) + counts.get("older", 0)
        if found == 0:
            sys.exit(f"peers: the enumerator finds nothing in {peer}: is it blind, or are they better now?")
    return 0 if n else 77


if __name__ == "__main__":
    sys.exit(main())
