# SPDX-License-Identifier: Apache-2.0
"""Files that torch itself writes, opened: every type, views, and states of four ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dtp
import pytest
from conftest import RunRanks, need

TYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool "
    "complex64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
).split()

SAVE = """
    import os
    import dtp, dtp.torch, torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    path = os.environ["CKPT"]
    group = dtp.init()
    store = dtp.torch.Store(group)
    dist.init_process_group("gloo", store=store, rank=group.rank, world_size=group.size)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(13, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    fully_shard(model[0])
    fully_shard(model)
    optim = torch.optim.AdamW(model.parameters(), lr=0.125)
    model(torch.ones(2, 13)).sum().backward()
    optim.step()
    weights, moments = get_state_dict(model, optim)
    both = distribute_tensor(
        torch.arange(35.0, dtype=torch.bfloat16).reshape(7, 5),
        init_device_mesh("cpu", (2, 2)), [Shard(0), Shard(1)])
    state = {"model": weights, "optim": moments, "both": both, "epoch": 7,
             "turned": torch.arange(6).reshape(2, 3).t(), "empty": torch.empty(0, 3)}
    dcp.save(state, checkpoint_id=path + "/dcp")
    flat = {"both": both, **weights}
    for name, more in (("shards", {"save_distributed": True}),
                       ("model", {"save_distributed": True, "enable_consolidation": True})):
        os.makedirs(f"{path}/{name}", exist_ok=True)
        group.barrier()
        dcp.save(dict(flat), storage_writer=HuggingFaceStorageWriter(path=f"{path}/{name}", **more))

    def whole(state, at=""):
        for key, value in state.items():
            if isinstance(value, dict):
                yield from whole(value, f"{at}{key}.")
            elif isinstance(value, torch.Tensor):
                yield at + key, value.full_tensor() if isinstance(value, DTensor) else value

    full = dict(whole(state))
    if group.rank == 0:
        torch.save(full, path + "/full.pt")
        torch.save(state["turned"], path + "/one.pt")
    group.barrier()
    dist.destroy_process_group()
    group.close()
"""


@pytest.fixture(autouse=True)
def _torch() -> None:
    need("torch")


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    with dtp.ckpt.open_path(path) as ckpt:
        names = {t.name: None for t in ckpt}
        return ckpt.read(names, "torch"), ckpt.meta, ckpt.format


def assert_same(got: dict[str, Any], want: dict[str, Any], ignore: str = "") -> None:
    import torch

    assert {n for n in got if not (ignore and n.startswith(ignore))} == set(want)
    for name, tensor in want.items():
        one = tensor.detach().contiguous()
        assert got[name].dtype == one.dtype and got[name].shape == one.shape, name
        a, b = got[name].reshape(-1).view(torch.uint8), one.reshape(-1).view(torch.uint8)
        assert torch.equal(a, b), name


def test_torch_save_of_every_type_and_view(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(2)
    state: dict[str, Any] = {}
    for name in TYPES:
        raw = torch.randint(0, 256, (6, 16), dtype=torch.uint8)
        state[name] = raw.bool() if name == "bool" else raw.view(getattr(torch, name))
    big = torch.arange(60.0).reshape(3, 4, 5)
    state.update(
        part=big[1:, 1:3, 2:],
        turned=big.permute(2, 0, 1),
        tied=big,
        same=big,
        scalar=torch.tensor(1.5),
        empty=torch.empty(0, 3),
        wide=torch.ones(3).expand(2, 3),
        parameter=torch.nn.Parameter(big[0]),
    )
    torch.save({"model": state, "list": [big[2]], "epoch": 3, "lr": 0.5}, tmp_path / "a.pt")
    got, meta, kind = read(tmp_path / "a.pt")
    want = {f"model.{name}": t for name, t in state.items()} | {"list.0": big[2]}
    assert_same(got, want)
    assert kind == "torch" and meta["values"] == {"epoch": 3, "lr": 0.5}


def test_states_of_four_ranks_are_read_by_one(tmp_path: Path, run_ranks: RunRanks) -> None:
    import torch

    run_ranks(4, SAVE, CKPT=str(tmp_path))
    full = torch.load(tmp_path / "full.pt")
    got, meta, kind = read(tmp_path / "dcp")
    assert kind == "dcp" and "epoch" in meta["raw"]
    tensors = {n: t for n, t in got.items() if n not in meta["raw"]}
    assert_same(tensors, full)
    weights = {n.removeprefix("model."): t for n, t in full.items() if n.startswith("model.")}
    weights["both"] = full["both"]
    assert_same(read(tmp_path / "shards")[0], weights)
    got, _, kind = read(tmp_path / "model")
    assert_same(got, weights)
    assert kind == "huggingface"
    assert_same(read(tmp_path / "full.pt")[0], full)
    assert_same(read(tmp_path / "one.pt")[0], {"tensor": full["turned"]})


def test_lost_and_cut_files_are_found(tmp_path: Path, run_ranks: RunRanks) -> None:
    run_ranks(4, SAVE, CKPT=str(tmp_path))
    lost = sorted((tmp_path / "shards").glob("shard-00002*"))[0]
    lost.rename(tmp_path / "lost")
    with pytest.raises(dtp.CorruptError, match="a part is missing"):
        read(tmp_path / "shards")
    data = tmp_path / "dcp" / "__2_0.distcp"
    with open(data, "r+b") as f:
        f.truncate(data.stat().st_size - 1)
    with pytest.raises(dtp.TruncatedError, match="__2_0.distcp"):
        read(tmp_path / "dcp")
    data.unlink()
    with pytest.raises(dtp.NotFoundError, match="__2_0.distcp"):
        read(tmp_path / "dcp")


def test_what_would_run_code_is_refused(tmp_path: Path) -> None:
    import torch

    class Evil:
        def __reduce__(self) -> Any:
            return (print, ("owned",))

    for value in (Evil(), {"a": torch.ones(2), "b": Evil()}, [torch.ones(2), {1: (Evil(),)}]):
        torch.save(value, tmp_path / "evil.pt")
        with pytest.raises(dtp.UnsupportedError, match="print"):
            read(tmp_path / "evil.pt")
