# SPDX-License-Identifier: Apache-2.0
"""Training that goes on while its checkpoints are written, and begins again at the last one.

dtp run -n 2 --ckpt DIR -- python train_async.py [STEPS]
"""

import os
import sys

import dtp
import numpy as np

STEPS = int([*sys.argv, 60][1])
DIR = os.environ.get("DTP_CKPT_DIR", "ckpt")

rng = np.random.default_rng(0)
truth = rng.normal(size=(64, 8))
state = {
    "model": {"w": np.zeros((64, 8))},
    "optim": {"momentum": np.zeros((64, 8)), "lr": 0.2},
    "step": 0,
}

with dtp.init() as group:
    rows = slice(64 * group.rank // group.size, 64 * (group.rank + 1) // group.size)

    def my_part():
        """What this rank saves: its rows of the tensors, and all that is no tensor."""
        w, m = state["model"]["w"], state["optim"]["momentum"]
        cut = [dtp.Shard(a[rows], a.shape, [rows.start, 0]) for a in (w, m)]
        return {
            "model": {"w": cut[0]},
            "optim": {"momentum": cut[1], "lr": state["optim"]["lr"]},
            "step": state["step"],
        }

    def complain(step, why):
        print(f"step {step} is not whole: {why}", flush=True)

    if (last := dtp.ckpt.latest_valid(DIR, complain)) is not None:
        dtp.ckpt.load(DIR, last, into=state)
    w, momentum, saving = state["model"]["w"], state["optim"]["momentum"], None
    for step in range(state["step"] + 1, STEPS + 1):
        x = np.random.default_rng([step, group.rank]).normal(size=(32, 64))
        error = x @ (w - truth)
        gradient = group.allreduce(x.T @ error / len(x), op="avg")
        momentum *= 0.5
        momentum += gradient
        w -= state["optim"]["lr"] * momentum  # while the last checkpoint is still being written
        state["step"] = step
        if step % 10 == 0:
            saving = dtp.ckpt.async_save(DIR, step, my_part(), group, keep_last=2, codec="planes")
    if saving is not None:
        saving.wait()  # durable
    if group.rank == 0:
        print(f"step {state['step']}: off by {np.abs(w - truth).max():.3g}")
