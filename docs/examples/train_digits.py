# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training of an MLP 64-32-10 on scikit-learn's digits, which survives a dead rank.

dtp run -n 4 --max-restarts 3 --min-ranks 2 --ckpt DIR -- python train_digits.py [STEPS [DELAY]]
"""

import os
import sys
import time

import dtp
import numpy as np
from sklearn.datasets import load_digits

STEPS, DELAY_S = int([*sys.argv, 300][1]), float([*sys.argv, 0, 0][2])
BATCH, N_TRAIN, CKPT_DIR = 96, 1437, os.environ.get("DTP_CKPT_DIR")
images, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(images))
images, one_hot = (images[order] / 16).astype("f4"), np.eye(10, dtype="f4")[digits[order]]

rng = np.random.default_rng(1)
shapes = {"w1": (64, 32), "b1": (32,), "w2": (32, 10), "b2": (10,)}
state = {k: rng.normal(0, 0.15, s).astype("f4") for k, s in shapes.items()}
state |= {f"momentum.{k}": np.zeros(s, "f4") for k, s in shapes.items()}


def forward(x):
    hidden = np.maximum(x @ state["w1"] + state["b1"], 0)
    p = np.exp(hidden @ state["w2"] + state["b2"])
    return hidden, p / p.sum(1, keepdims=True)


def my_rows(a):  # what this rank writes of a tensor
    begin, end = (len(a) * r // group.size for r in (group.rank, group.rank + 1))
    return dtp.Shard(a[begin:end], a.shape, [begin] + [0] * (a.ndim - 1))


with dtp.init() as group:
    done = (dtp.ckpt.latest(CKPT_DIR) if CKPT_DIR else None) or 0
    if done:
        dtp.ckpt.load(CKPT_DIR, done, into=state)
    for step in range(done + 1, STEPS + 1):
        chosen = np.random.default_rng([2, step]).integers(0, N_TRAIN, BATCH)
        x, t = (a[chosen[group.rank :: group.size]] for a in (images, one_hot))
        hidden, p = forward(x)
        d2 = (p - t) / BATCH
        d1 = (d2 @ state["w2"].T) * (hidden > 0)
        loss = group.allreduce(-np.log((p * t).sum(1)).sum(keepdims=True) / BATCH)
        for k, grad in zip(shapes, [x.T @ d1, d1.sum(0), hidden.T @ d2, d2.sum(0)], strict=True):
            state[f"momentum.{k}"] = 0.9 * state[f"momentum.{k}"] + group.allreduce(grad)
            state[k] -= 0.1 * state[f"momentum.{k}"]
        time.sleep(DELAY_S)
        if CKPT_DIR and step % 20 == 0:
            dtp.ckpt.save(CKPT_DIR, step, {k: my_rows(a) for k, a in state.items()}, group)
        if group.rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss[0]:.9g}", flush=True)
    if group.rank == 0:
        right = forward(images[N_TRAIN:])[1].argmax(1) == one_hot[N_TRAIN:].argmax(1)
        print(f"test accuracy {right.mean():.2f}")
