# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: whole tensors, shards, boxes, other world sizes, damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dtp
import numpy as np
import pytest
from conftest import RunRanks, need


@pytest.fixture
def state() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "w": rng.normal(size=(64, 32)).astype("f4"),
        "b": rng.normal(size=32),
        "step": np.array(7, "i8"),
        "empty": np.zeros((0, 3), "f4"),
        "mask": rng.integers(0, 2, 10).astype("?"),
    }


def same(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


@pytest.mark.parametrize("codec", ["none", "zstd", "planes"])
def test_a_state_comes_back_bit_for_bit(tmp_path: Path, state: dict[str, Any], codec: str) -> None:
    dtp.ckpt.save(tmp_path, 20, state, codec=codec, meta={"epoch": 3, "name": "ж"})
    assert dtp.ckpt.latest(tmp_path) == 20
    loaded = dtp.ckpt.load(tmp_path)
    assert loaded.keys() == state.keys()
    assert all(same(loaded[k], state[k]) for k in state)
    with dtp.ckpt.open(tmp_path) as ckpt:
        assert (ckpt.step, ckpt.world_size, len(ckpt)) == (20, 1, len(state))
        assert ckpt.meta == {"epoch": 3, "name": "ж"}
        assert ckpt["w"] == ("w", "f32", (64, 32)) and "w" in ckpt and "v" not in ckpt
        assert [t.name for t in ckpt] == sorted(state)
        assert ckpt.bytes == sum(a.nbytes for a in state.values())


def test_arrays_are_filled_where_they_lie(tmp_path: Path, state: dict[str, Any]) -> None:
    dtp.ckpt.save(tmp_path, 1, state)
    into = {k: np.zeros_like(v) for k, v in state.items()}
    addresses = {k: v.ctypes.data for k, v in into.items()}
    result = dtp.ckpt.load(tmp_path, 1, into=into)
    assert all(result[k] is into[k] and same(into[k], state[k]) for k in state)
    assert {k: v.ctypes.data for k, v in into.items()} == addresses


def test_torch_states_come_back_bf16_included(tmp_path: Path) -> None:
    need("torch")
    import torch

    state = {
        "w": torch.randn(8, 4, requires_grad=True),
        "h": torch.randn(5, dtype=torch.float32).to(torch.bfloat16),
        "n": torch.tensor(3),
    }
    dtp.ckpt.save(tmp_path, 1, state)
    into = {k: torch.zeros_like(v) for k, v in state.items()}
    dtp.ckpt.load(tmp_path, into=into)
    assert all(torch.equal(into[k], state[k]) for k in state)
    with pytest.raises(TypeError, match="tensor h: numpy has no bf16"):
        dtp.ckpt.load(tmp_path)
    assert same(dtp.ckpt.load(tmp_path, boxes={"w": None})["w"], state["w"].detach().numpy())


def test_boxes_are_parts(tmp_path: Path, state: dict[str, Any]) -> None:
    dtp.ckpt.save(tmp_path, 1, state)
    part = dtp.ckpt.load(tmp_path, boxes={"w": dtp.Box([10, 3], [5, 7]), "b": None})
    assert same(part["w"], state["w"][10:15, 3:10].copy()) and same(part["b"], state["b"])
    rows = np.zeros((4, 32), "f4")
    dtp.ckpt.load(tmp_path, into={"w": dtp.Shard(rows, (64, 32), (60, 0))})
    assert same(rows, state["w"][60:])


def test_several_shards_of_a_tensor_make_it_whole(tmp_path: Path) -> None:
    w = np.arange(24, dtype="i4").reshape(4, 6)
    shards = [dtp.Shard(w[i : i + 2], w.shape, (i, 0)) for i in (0, 2)]
    dtp.ckpt.save(tmp_path, 1, {"w": shards})
    assert same(dtp.ckpt.load(tmp_path)["w"], w)


@pytest.mark.parametrize(
    ("tensors", "error", "text"),
    [
        ({"w": [1.0, 1j]}, TypeError, "tensor w.1: a complex is no array"),
        ({"w": {1: 2, "1": 3}}, ValueError, "two values are called w.1"),
        ({"w": {(1, 2): 3}}, TypeError, "state w: a tuple is no key"),
        (
            {"w": {"x.y": np.ones(1), "x": {"y": np.ones(1)}}},
            ValueError,
            "two values are called w.x.y",
        ),
        ({"w": np.zeros(3, object)}, TypeError, "tensor w: elements of type 'O'"),
        ({"w": dtp.Shard(np.zeros(3), (3, 3), (0, 0))}, ValueError, "tensor w: an array of 1 dim"),
        ({"w": np.zeros((1,) * 9)}, ValueError, "tensor w: more than 8 dimensions"),
        ({"w\0": np.zeros(3)}, ValueError, "a tensor's name has a NUL"),
        ([np.zeros(3)], TypeError, "tensors: a list is no dict"),
        ({"w": dtp.Shard(np.zeros(3), (3,), (0.5,))}, TypeError, "float"),
        ({"w": dtp.Shard(np.zeros(3), (4,), (2,))}, dtp.RangeError, "w"),
        ({"w": dtp.Shard(np.zeros(3), (4,), (0,))}, dtp.CorruptError, "w"),
        ({"": np.zeros(3)}, dtp.InvalidError, "name"),
    ],
)
def test_bad_tensors_are_named(
    tmp_path: Path, tensors: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        dtp.ckpt.save(tmp_path, 1, tensors)
    assert dtp.ckpt.latest(tmp_path) is None


@pytest.mark.parametrize(
    ("offset", "extent"),
    [
        ([0, 0], [1 << 40, 1 << 40]),  # no array is made for it
        ([1 << 70, 0], [1, 1]),
        ([-1, 0], [1, 1]),
        ([0, 0], [-1, 1]),
        ([0], [1, 1]),
        ([0, 0], [1]),
    ],
)
def test_a_box_outside_is_named(tmp_path: Path, offset: list[int], extent: list[int]) -> None:
    dtp.ckpt.save(tmp_path, 1, {"w": np.zeros((3, 2))})
    with pytest.raises(dtp.RangeError, match=r"tensor w: box .* lies outside its shape \[3, 2\]"):
        dtp.ckpt.load(tmp_path, 1, boxes={"w": dtp.Box(offset, extent)})


def test_arguments_in_the_wrong_place_are_named(tmp_path: Path, state: dict[str, Any]) -> None:
    steps: list[Any] = [-1, 1 << 64, "1", 1.0]
    for step in steps:
        with pytest.raises((TypeError, ValueError)):
            dtp.ckpt.save(tmp_path, step, state)
    with pytest.raises(TypeError, match="group: a str is no"):
        dtp.ckpt.save(tmp_path, 1, state, "zstd")
    bad: list[dict[str, Any]] = [{"keep_last": -1}, {"keep_every": -1}, {"chunk_bytes": 1 << 32}]
    for options in bad:
        with pytest.raises(ValueError, match=f"{next(iter(options))} .* is not within 0 and"):
            dtp.ckpt.save(tmp_path, 1, state, **options)
    with pytest.raises(ValueError, match="keep_last -1 is not within"):
        dtp.ckpt.gc(tmp_path, -1)
    bad = [{"keep": 3}]
    with pytest.raises(TypeError, match="a save has no option keep"):
        dtp.ckpt.save(tmp_path, 1, state, **bad[0])
    with pytest.raises(TypeError, match="dir: a int is no text"):
        dtp.ckpt.save(1, 1, state)
    with pytest.raises(ValueError, match="step -1 is not"):
        dtp.ckpt.load(tmp_path, -1)
    dtp.ckpt.save(tmp_path, 1, state)
    with dtp.ckpt.open(tmp_path) as ckpt, pytest.raises(TypeError, match="a tensor's name"):
        ckpt[0]


def test_a_box_may_be_a_plain_pair(tmp_path: Path) -> None:
    w = np.arange(12.0).reshape(3, 4)
    dtp.ckpt.save(tmp_path, 1, {"w": w})
    assert same(dtp.ckpt.load(tmp_path, boxes={"w": ((1, 0), (2, 4))})["w"], w[1:])


def test_what_is_not_there_is_not_found(tmp_path: Path, state: dict[str, Any]) -> None:
    assert dtp.ckpt.latest(tmp_path / "none") is None
    with pytest.raises(dtp.NotFoundError):
        dtp.ckpt.load(tmp_path)
    dtp.ckpt.save(tmp_path, 1, state)
    with pytest.raises(dtp.NotFoundError, match="9"):
        dtp.ckpt.load(tmp_path, 9)
    with pytest.raises(dtp.NotFoundError, match="v"):
        dtp.ckpt.load(tmp_path, boxes={"v": None})
    with pytest.raises(dtp.ExistsError):
        dtp.ckpt.save(tmp_path, 1, state)


def test_what_does_not_fit_is_refused(tmp_path: Path, state: dict[str, Any]) -> None:
    dtp.ckpt.save(tmp_path, 1, state)
    for into, error in (
        ({"w": np.zeros((64, 31), "f4")}, dtp.InvalidError),
        ({"w": np.zeros((64, 32), "f8")}, dtp.InvalidError),
        ({"w": dtp.Shard(np.zeros((2, 32), "f4"), (64, 32), (63, 0))}, dtp.RangeError),
    ):
        with pytest.raises(error, match="w"):
            dtp.ckpt.load(tmp_path, into=into)
    with pytest.raises(ValueError, match="either"):
        dtp.ckpt.load(tmp_path, into={}, boxes={})


def test_damage_is_found_and_passed_over(tmp_path: Path) -> None:
    w = np.arange(1000.0)
    for step in (1, 2):
        dtp.ckpt.save(tmp_path, step, {"w": w})
    shard = max(tmp_path.rglob("*.safetensors"), key=str)
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with dtp.ckpt.open(tmp_path, 2) as ckpt, pytest.raises(dtp.CorruptError, match=shard.name):
        ckpt.verify()
    shard.write_bytes(data[:-100])
    assert dtp.ckpt.latest(tmp_path) == 1
    assert same(dtp.ckpt.load(tmp_path)["w"], w)


def test_verify_tells_how_far_it_is(tmp_path: Path) -> None:
    dtp.ckpt.save(tmp_path, 1, {"w": np.zeros(1 << 19)})
    told: list[tuple[int, int]] = []
    with dtp.ckpt.open(tmp_path) as ckpt:
        ckpt.verify(lambda done, total: told.append((done, total)))
        assert told and told[-1][0] == told[-1][1] and told == sorted(told)

        def stop(done: int, total: int) -> None:
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            ckpt.verify(stop)
        ckpt.verify()


def test_old_steps_go_when_asked(tmp_path: Path) -> None:
    for step in range(1, 5):
        dtp.ckpt.save(tmp_path, step, {"w": np.zeros(3)}, keep_last=2)
    assert dtp.ckpt.latest(tmp_path) == 4
    with pytest.raises(dtp.NotFoundError):
        dtp.ckpt.load(tmp_path, 2)
    assert len(dtp.ckpt.load(tmp_path, 3)) == 1


def test_a_wrong_state_of_one_rank_fails_on_all(tmp_path: Path, run_ranks: RunRanks) -> None:
    run_ranks(
        3,
        """
    import os
    import dtp
    import numpy as np

    path = os.environ["CKPT"]
    with dtp.init() as group:
        for save in (dtp.ckpt.save, lambda *a, **k: dtp.ckpt.async_save(*a, **k).wait()):
            for wrong in (1, 0):
                state = {"w": object() if group.rank == wrong else np.zeros(3)}
                try:
                    save(path, 1, state, group, timeout_ms=20000)
                except TypeError as e:
                    assert group.rank == wrong and "tensor w" in str(e), e
                except dtp.InvalidError as e:
                    assert group.rank != wrong and e.rank == wrong, e
                group.barrier()
        assert dtp.ckpt.latest(path) is None
        dtp.ckpt.save(path, 1, {"w": np.zeros(3)}, group)
    """,
        CKPT=str(tmp_path),
    )
    assert dtp.ckpt.latest(tmp_path) == 1


def test_many_ranks_save_and_few_load(tmp_path: Path, run_ranks: RunRanks) -> None:
    script = """
        import os, sys, dtp, numpy as np
        full = np.arange(37 * 5, dtype="f8").reshape(37, 5)
        g = dtp.init()
        a, b = (37 * r // g.size for r in (g.rank, g.rank + 1))
        directory = os.environ["DTP_TEST_DIR"]
        if os.environ["DTP_TEST_WHAT"] == "save":
            mine = dtp.Shard(full[a:b], full.shape, (a, 0))
            dtp.ckpt.save(directory, 5, {"w": mine, "all": np.arange(3)}, g, meta={"by": g.size})
        into = np.zeros((b - a, 5))
        dtp.ckpt.load(directory, into={"w": dtp.Shard(into, full.shape, (a, 0))})
        assert (into == full[a:b]).all()
        a, b = (5 * r // g.size for r in (g.rank, g.rank + 1))
        columns = np.zeros((37, b - a))
        dtp.ckpt.load(directory, into={"w": dtp.Shard(columns, full.shape, (0, a))}, group=g)
        assert (columns == full[:, a:b]).all()
    """
    run_ranks(4, script, DTP_TEST_DIR=str(tmp_path), DTP_TEST_WHAT="save")
    for n in (1, 3):
        run_ranks(n, script, DTP_TEST_DIR=str(tmp_path), DTP_TEST_WHAT="load")
    with dtp.ckpt.open(tmp_path) as ckpt:
        assert (ckpt.world_size, ckpt.meta) == (4, {"by": 4})
        assert same(ckpt.read()["all"], np.arange(3))
        ckpt.verify()


def test_shards_open_with_the_safetensors_package(tmp_path: Path, state: dict[str, Any]) -> None:
    need("safetensors")
    from safetensors.numpy import load_file

    dtp.ckpt.save(tmp_path, 1, state)
    stored: dict[str, Any] = {}
    for shard in tmp_path.rglob("*.safetensors"):
        stored |= load_file(shard)
    assert {k: v.tobytes() for k, v in stored.items() if k in state} == {
        k: v.tobytes() for k, v in state.items() if k in stored
    }
    assert "w" in stored
