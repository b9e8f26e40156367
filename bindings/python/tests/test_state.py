# SPDX-License-Identifier: Apache-2.0
"""Nested states: what comes back, and where it comes back to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import dtp
import numpy as np
import pytest
from conftest import need


@pytest.fixture
def state() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "model": {"layer.0.w": rng.normal(size=(8, 6)), "layer.0.b": rng.normal(size=6)},
        "optim": {
            "state": {0: {"step": np.float32(7), "m": rng.normal(size=(8, 6))}, 1: {}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, math.inf), "name": "ж", "amsgrad": None}],
        },
        "rng": b"\0\xff\x01",
        "epoch": 2**63,
        "done": False,
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "tobytes"):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    return bool(a == b and type(a) is type(b))


def test_a_nested_state_comes_back_as_it_was(tmp_path: Path, state: dict[str, Any]) -> None:
    dtp.ckpt.save(tmp_path, 1, state, meta={"note": "x"})
    assert same(dtp.ckpt.load(tmp_path), state)
    with dtp.ckpt.open(tmp_path) as ckpt:
        assert ckpt.meta == {"note": "x"}
        assert "model.layer.0.w" in ckpt and "optim.state.0.m" in ckpt


def test_a_state_nests_thirty_levels(tmp_path: Path) -> None:
    state: Any = {"last": 1}
    for _ in range(29):
        state = {"in": state}
    dtp.ckpt.save(tmp_path, 1, state)
    assert dtp.ckpt.load(tmp_path) == state
    with pytest.raises(ValueError, match=r"state in\.in.* nested more than 30 levels"):
        dtp.ckpt.save(tmp_path, 2, {"in": state})
    state["itself"] = state
    with pytest.raises(ValueError, match="within itself"):
        dtp.ckpt.save(tmp_path, 2, state)


def test_a_state_is_filled_where_it_lies(tmp_path: Path, state: dict[str, Any]) -> None:
    dtp.ckpt.save(tmp_path, 1, state)
    w, group = np.zeros((8, 6)), {"lr": 0, "betas": (0, 0), "name": "", "amsgrad": 1}
    into = {
        "model": {"layer.0.w": w, "layer.0.b": np.zeros(6)},
        "optim": {
            "state": {0: {"step": np.float32(0), "m": np.zeros((6, 8)).T}, 1: {}},
            "param_groups": [group],
        },
        "rng": b"",
        "epoch": 0,
        "done": None,
    }
    loaded = dtp.ckpt.load(tmp_path, into=into)
    assert same(loaded, state) and same(into, state)
    assert into["model"]["layer.0.w"] is w and into["optim"]["param_groups"][0] is group  # type: ignore[index]


def test_a_value_that_is_missing_is_named(tmp_path: Path, state: dict[str, Any]) -> None:
    dtp.ckpt.save(tmp_path, 9, state)
    with pytest.raises(dtp.NotFoundError, match="value optim.lr is not in step 9"):
        dtp.ckpt.load(tmp_path, into={"optim": {"lr": 1}})
    with pytest.raises(dtp.NotFoundError, match="tensor model.x is not in step 9"):
        dtp.ckpt.load(tmp_path, into={"model": {"x": np.zeros(3)}})


@pytest.mark.parametrize(
    "tree",
    [{"version": 2, "tree": ["d", {}]}, 7, {"version": 1, "tree": ["x"]}]
    + [{"version": 1, "tree": t} for t in (["l", []], ["d", {"a": ["d", 3]}], ["d", {"a": {}}])],
)
def test_a_tree_that_makes_no_sense_is_refused(tree: Any) -> None:
    with pytest.raises(ValueError, match="dtp.state"):
        dtp.ckpt._state.unflatten(tree, {})


def test_the_tree_has_a_place_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dtp.state"):
        dtp.ckpt.save(tmp_path, 1, {"w": np.ones(1)}, meta={"dtp.state": 1})


def test_arrays_that_are_not_dense_go_through_a_copy(tmp_path: Path) -> None:
    a = np.arange(24.0).reshape(4, 6)
    dtp.ckpt.save(tmp_path, 1, {"t": a.T, "every": a[:, ::2]})
    assert same(dtp.ckpt.load(tmp_path)["t"], a.T.copy())
    into = np.zeros((4, 12))
    dtp.ckpt.load(tmp_path, into={"every": into[:, ::4]})
    assert same(into[:, ::4].copy(), a[:, ::2].copy()) and into.sum() == a[:, ::2].sum()


def test_torch_states_come_back_with_all_their_types(tmp_path: Path) -> None:
    need("torch")
    import torch

    types = (
        "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool"
    )
    types += " float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz complex64"
    state = {
        "types": {n: torch.arange(6).reshape(2, 3).to(getattr(torch, n)) for n in types.split()},
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "conj": torch.tensor([1 + 2j], dtype=torch.complex64).conj(),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "pairs": torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2),
        "lr": 0.5,
    }
    dtp.ckpt.save(tmp_path, 1, state)
    with dtp.ckpt.open(tmp_path) as ckpt:
        assert ckpt["pairs"].shape == (2, 6) and ckpt["pairs"].dtype == "f4"
    loaded = dtp.ckpt.load(tmp_path, framework="torch")
    assert loaded["lr"] == 0.5 and list(loaded) == list(state)
    for name in types.split():
        want, have = state["types"][name], loaded["types"][name]
        assert have.dtype == want.dtype and torch.equal(
            have.view(torch.uint8), want.view(torch.uint8)
        )
    assert torch.equal(loaded["transposed"], state["transposed"])
    assert torch.equal(loaded["pairs"].view(torch.uint8), state["pairs"].view(torch.uint8))
    row = torch.zeros(1, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    dtp.ckpt.load(tmp_path, into={"pairs": dtp.Shard(row, (2, 3), (1, 0))})
    assert row.view(torch.uint8).tolist() == [[3, 4, 5]]
    into = {"transposed": torch.zeros(2, 3).T, "conj": torch.zeros(1, dtype=torch.complex64).conj()}
    dtp.ckpt.load(tmp_path, into=into)
    assert torch.equal(into["transposed"], state["transposed"])
    assert torch.equal(into["conj"].resolve_conj(), torch.tensor([1 - 2j], dtype=torch.complex64))
    with pytest.raises(ValueError, match="tensor m is on meta"):
        dtp.ckpt.save(tmp_path, 2, {"m": torch.empty(1, device="meta")})
    with pytest.raises(ValueError, match=r"tensor s is torch\.sparse_coo, not dense"):
        dtp.ckpt.save(tmp_path, 2, {"s": torch.eye(2).to_sparse()})
