# SPDX-License-Identifier: Apache-2.0
"""torch's distributed states: DTensors, fully_shard, torch.distributed.checkpoint on our files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dtp
import numpy as np
import pytest
from conftest import StartRanks, need


@pytest.fixture(autouse=True)
def _torch() -> None:
    need("torch")


HEAD = """
    import os, sys
    import dtp, dtp.torch, torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    path = os.environ["CKPT"]
    group = dtp.init()
    dist.init_process_group(
        "gloo", store=dtp.torch.Store(group), rank=group.rank, world_size=group.size
    )
"""
TAIL = """
    dist.destroy_process_group()
    group.close()
"""

MODEL = """
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def make(seed):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(13, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
        fully_shard(model[0])
        fully_shard(model)
        optim = torch.optim.AdamW(model.parameters(), lr=0.125)
        model(torch.ones(2, 13)).sum().backward()
        optim.step()
        return model, optim

    def whole(state, path=""):
        for key, value in state.items():
            if isinstance(value, dict):
                yield from whole(value, f"{path}{key}.")
            elif isinstance(value, torch.Tensor):
                yield path + key, (value.full_tensor() if isinstance(value, DTensor) else value)
"""


def run_all(start_ranks: StartRanks, n: int, script: str, **env: str) -> None:
    """As run_ranks; torch's compiler, which fully_shard imports, takes its time."""
    for rank, end in enumerate(start_ranks(n, script, **env).wait(timeout=300)):
        assert end.code == 0, f"rank {rank} of {n}: exit code {end.code}\n{end.out}{end.err}"


def test_dtensors_are_boxes_and_reshard(tmp_path: Path, start_ranks: StartRanks) -> None:
    """Rows and columns that do not divide, replicas, two dimensions, a strided shard."""
    full = np.arange(7 * 5, dtype="f4").reshape(7, 5)
    run_all(
        start_ranks,
        4,
        HEAD
        + """
    from torch.distributed.tensor.placement_types import _StridedShard
    full = torch.arange(35.0).reshape(7, 5)
    line, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))

    def cut(mesh, *placements):
        return distribute_tensor(full, mesh, placements)

    def strided():  # what fully_shard makes of a tensor that is cut in two along the same dimension
        local = full.chunk(2)[group.rank % 2].chunk(2)
        mine = local[group.rank // 2] if group.rank // 2 < len(local) else full[:0]
        return DTensor.from_local(
            mine, square, [_StridedShard(0, split_factor=2), Shard(0)], run_check=False,
            shape=full.shape, stride=full.stride())

    state = {"rows": cut(line, Shard(0)), "columns": cut(line, Shard(-1)),
             "whole": cut(line, Replicate()), "both": cut(square, Shard(0), Shard(1)),
             "twice": cut(square, Shard(0), Shard(0)), "strided": strided(),
             "mixed": cut(square, Replicate(), Shard(1))}
    dtp.ckpt.save(path, 1, {"t": state, "lr": 0.5}, group)
    other = {"rows": cut(line, Shard(1)), "columns": cut(square, Shard(1), Shard(0)),
             "whole": cut(line, Shard(0)), "both": cut(square, Shard(1), Shard(0)),
             "twice": cut(square, Replicate(), Replicate()), "strided": cut(line, Shard(0))}
    for t in other.values():
        t.to_local().fill_(-1)
    dtp.ckpt.load(path, into={"t": other})
    for name, t in other.items():
        assert torch.equal(t.full_tensor(), full), name
    again = strided()
    again.to_local().fill_(-1)
    dtp.ckpt.load(path, into={"t": {"strided": again}})
    assert torch.equal(again.to_local(), strided().to_local())
    partial = DTensor.from_local(full, line, [Partial()])
    try:
        dtp.ckpt.save(path, 2, {"p": partial})
        raise SystemExit("a partial tensor was saved")
    except ValueError as e:
        assert "tensor p" in str(e) and "Partial" in str(e), e
    group.barrier()
    """
        + TAIL,
        CKPT=str(tmp_path),
    )
    loaded = dtp.ckpt.load(tmp_path)
    assert loaded["lr"] == 0.5 and len(loaded["t"]) == 7
    assert all((t == full).all() for t in loaded["t"].values())


def test_fsdp_saves_with_four_and_loads_with_two(tmp_path: Path, start_ranks: StartRanks) -> None:
    run_all(
        start_ranks,
        4,
        HEAD
        + MODEL
        + """
    model, optim = make(1)
    m, o = get_state_dict(model, optim)
    state = {"model": m, "optim": o, "epoch": 3, "words": ["a", (1, 2)], "raw": b"x\\0"}
    writer = dtp.torch.StorageWriter(path, group=group, meta={"run": 7}, codec="planes")
    for _ in range(2):
        dcp.save(state, storage_writer=writer)
    assert writer.step == 1
    full = dict(whole(state))
    if group.rank == 0:
        torch.save(full, path + "/expected.pt")
    """
        + TAIL,
        CKPT=str(tmp_path),
    )
    script = (
        HEAD
        + MODEL
        + """
    model, optim = make(2)
    m, o = get_state_dict(model, optim)
    state = {"model": m, "optim": o, "epoch": 0, "words": [], "raw": b""}
    reader = dtp.torch.StorageReader(path)
    dcp.load(state, storage_reader=reader)
    assert reader.step == 1 and reader.meta == {"run": 7}, (reader.step, reader.meta)
    set_state_dict(model, optim, model_state_dict=state["model"], optim_state_dict=state["optim"])
    m, o = get_state_dict(model, optim)
    expected = torch.load(path + "/expected.pt")
    full = dict(whole({"model": m, "optim": o}))
    assert full.keys() == expected.keys()
    for name, value in full.items():
        assert torch.equal(value, expected[name]), name
    assert (state["epoch"], state["words"], state["raw"]) == (3, ["a", (1, 2)], b"x\\0")
    bad = {"w": torch.ones(2), **({"thing": object()} if group.rank == 1 else {})}
    try:
        dcp.save(bad, storage_writer=dtp.torch.StorageWriter(path, 7, group=group))
        raise SystemExit("an object was saved")
    except dcp.CheckpointException as e:
        assert "thing: a object is no tensor" in str(e), e
    assert dtp.ckpt.latest(path) == 1
    """
        + TAIL
    )
    run_all(start_ranks, 2, script, CKPT=str(tmp_path))
    # What torch calls its states is what anybody else finds.
    loaded = dtp.ckpt.load(tmp_path)
    assert loaded["model.0.weight"].shape == (7, 13)
    assert json.loads(loaded["epoch#json"].tobytes()) == 3


def test_tensor_parallel_below_fsdp_comes_back(tmp_path: Path, start_ranks: StartRanks) -> None:
    """fully_shard of what is cut along the same dimension: rows 22 over 2, each 11 over 2."""
    run_all(
        start_ranks,
        4,
        HEAD
        + """
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import parallel as tp
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))

    def make(seed):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(12, 22), torch.nn.Linear(22, 6))
        tp.parallelize_module(
            model, mesh["tp"], {"0": tp.ColwiseParallel(), "1": tp.RowwiseParallel()})
        return fully_shard(model, mesh=mesh["dp"]).state_dict()

    def check(state):
        for name, tensor in state.items():
            assert torch.equal(tensor.full_tensor(), full[name]), name

    state = make(1)
    full = {name: tensor.full_tensor() for name, tensor in state.items()}
    dtp.ckpt.save(path, 1, state, group)
    dcp.save(state, storage_writer=dtp.torch.StorageWriter(path, 2, group=group))
    ours, theirs = make(2), make(3)
    dtp.ckpt.load(path, 2, into=ours)
    dcp.load(theirs, storage_reader=dtp.torch.StorageReader(path, 1))
    check(ours)
    check(theirs)
    for name, tensor in dtp.ckpt.load(path, 1, framework="torch").items():
        assert torch.equal(tensor, full[name]), name
    """
        + TAIL,
        CKPT=str(tmp_path),
    )


def save_alone(path: Path, state: dict[str, Any], **options: Any) -> Any:
    import dtp.torch as ours
    import torch.distributed.checkpoint as dcp

    writer = ours.StorageWriter(path, **options)
    dcp.save(state, storage_writer=writer)
    return writer


def test_a_state_without_a_group_comes_back(tmp_path: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp
    from dtp.torch import StorageReader

    state = {
        "w": torch.arange(6.0).reshape(2, 3).T,
        "scalar": torch.tensor(2, dtype=torch.int64),
        "empty": torch.zeros(0, 3),
        "nested": {"h": torch.ones(3, dtype=torch.bfloat16), "list": [torch.ones(2), "text", 1.5]},
    }
    assert save_alone(tmp_path, state).step == 0
    into = {
        "w": torch.zeros(3, 2, dtype=torch.float64),  # torch converts, too
        "scalar": torch.tensor(0),
        "empty": torch.zeros(0, 3),
        "nested": {"h": torch.zeros(3, dtype=torch.bfloat16), "list": [torch.zeros(2), "", 0.0]},
    }
    dcp.load(into, storage_reader=StorageReader(tmp_path))
    assert torch.equal(into["w"], state["w"].double()) and into["scalar"] == 2
    assert torch.equal(into["nested"]["h"], state["nested"]["h"])
    assert into["nested"]["list"][1:] == ["text", 1.5]
    with pytest.raises(BaseException, match="Size mismatch|size"):
        dcp.load({"w": torch.zeros(4)}, storage_reader=StorageReader(tmp_path))
    with pytest.raises(BaseException, match="Missing key"):
        dcp.load({"v": torch.zeros(4)}, storage_reader=StorageReader(tmp_path))


def test_cached_plans_serve_later_saves(tmp_path: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp
    from dtp.torch import StorageReader, StorageWriter

    writer = StorageWriter(tmp_path, keep_last=2)
    for i in range(3):
        planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
        state = {"a": {"w": torch.full((4,), float(i)), "n": i}}
        dcp.save(state, storage_writer=writer, planner=planner)
    into = {"a": {"w": torch.zeros(4), "n": -1}}
    dcp.load(into, storage_reader=StorageReader(tmp_path))
    assert writer.step == 2 and into["a"]["n"] == 2 and into["a"]["w"].tolist() == [2.0] * 4


def test_nothing_is_pickled(tmp_path: Path) -> None:
    class Thing:
        pass

    with pytest.raises(BaseException, match="thing: a Thing is no tensor, number"):
        save_alone(tmp_path, {"thing": Thing()})
    assert dtp.ckpt.latest(tmp_path) is None
    save_alone(tmp_path, {"n": {"a": 1, "b": [True, None, b"\xff"]}}, step=5)
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"\x80\x02" not in file.read_bytes()[:4096]
    with dtp.ckpt.open(tmp_path, 5) as ckpt:
        assert sorted(t.name for t in ckpt) == ["n.a#json", "n.b#json"]


def test_our_own_checkpoints_load_through_torch(tmp_path: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp
    from dtp.torch import StorageReader

    dtp.ckpt.save(tmp_path, 3, {"model": {"w": np.arange(4.0)}})
    into = {"model": {"w": torch.zeros(4, dtype=torch.float64)}}
    dcp.load(into, storage_reader=StorageReader(tmp_path, 3))
    assert into["model"]["w"].tolist() == [0, 1, 2, 3]
