# SPDX-License-Identifier: Apache-2.0
"""Saves in the background: what they promise to the thread that goes on."""

from __future__ import annotations

import gc
from pathlib import Path

import dtp
import numpy as np
import pytest
from conftest import RunRanks


def test_tensors_may_change_while_they_are_saved(tmp_path: Path) -> None:
    state = {"w": np.arange(1 << 20, dtype="f4"), "lr": 0.5}
    save = dtp.ckpt.async_save(tmp_path, 1, state, codec="planes", meta={"run": 2})
    state["w"][:] = -1  # type: ignore[index]
    save.wait()
    assert save.done()
    save.wait()
    save.close()
    loaded = dtp.ckpt.load(tmp_path)
    assert loaded["lr"] == 0.5 and (loaded["w"] == np.arange(1 << 20)).all()


def test_what_goes_wrong_is_raised_by_wait(tmp_path: Path) -> None:
    dtp.ckpt.save(tmp_path, 1, {"w": np.ones(3)})
    with pytest.raises(dtp.ExistsError, match="step 1 is already complete"):
        dtp.ckpt.async_save(tmp_path, 1, {"w": np.ones(3)}).wait()
    with pytest.raises(TypeError, match="tensor w: a complex"):
        dtp.ckpt.async_save(tmp_path, 2, {"w": 1j})


def test_a_save_that_is_dropped_goes_on(tmp_path: Path) -> None:
    dtp.ckpt.async_save(tmp_path, 1, {"w": np.ones(1 << 18)})
    gc.collect()  # closes the context, which waits for it
    assert dtp.ckpt.latest(tmp_path) == 1


def test_a_group_works_while_it_saves(tmp_path: Path, run_ranks: RunRanks) -> None:
    run_ranks(
        2,
        """
    import os
    import dtp
    import numpy as np

    path = os.environ["CKPT"]
    with dtp.init() as group:
        w = np.zeros(1 << 18, "f4")
        part = dtp.Shard(w.reshape(1, -1), (2, 1 << 18), (group.rank, 0))
        for step in range(1, 6):
            w += group.rank + 1
            save = dtp.ckpt.async_save(path, step, {"w": part}, group, keep_last=2)
            for _ in range(5):
                assert group.allreduce(np.ones(8))[0] == 2
                group.barrier()
        save.wait()
        assert dtp.ckpt.latest(path) == 5
        group.barrier()
    """,
        CKPT=str(tmp_path),
    )
    loaded = dtp.ckpt.load(tmp_path)["w"]
    assert (loaded[0] == 5).all() and (loaded[1] == 10).all()
