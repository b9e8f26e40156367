# SPDX-License-Identifier: Apache-2.0
"""Which steps count, which stay, and what others get."""

from __future__ import annotations

from pathlib import Path

import dtp
import numpy as np
import pytest


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    for step in (1, 2, 3):
        dtp.ckpt.save(tmp_path, step, {"w": np.full(5000, step, "f4")})
    return tmp_path


def shard_of(steps: Path, step: int) -> Path:
    found = [p for p in steps.rglob("*.safetensors") if f"{step}" in p.parent.name]
    assert len(found) == 1
    return found[0]


def test_a_damaged_step_is_passed_over_and_explained(steps: Path) -> None:
    told: list[tuple[int, str]] = []
    shard = shard_of(steps, 3)
    data = bytearray(shard.read_bytes())
    data[-1000] ^= 1
    shard.write_bytes(data)
    assert dtp.ckpt.latest_valid(steps, lambda *what: told.append(what)) == 3 and told == []
    assert dtp.ckpt.latest_valid(steps, lambda *what: told.append(what), every_byte=True) == 2
    assert len(told) == 1 and told[0][0] == 3 and "checksum" in told[0][1]
    assert dtp.ckpt.latest_valid(steps / "none") is None


def test_what_a_report_raises_ends_the_call(steps: Path) -> None:
    shard_of(steps, 3).unlink()

    def report(step: int, what: str) -> None:
        raise KeyError(step)

    with pytest.raises(KeyError, match="3"):
        dtp.ckpt.latest_valid(steps, report)


def test_pinned_steps_stay(steps: Path) -> None:
    dtp.ckpt.pin(steps, 1)
    assert dtp.ckpt.gc(steps, dry_run=True) == [2]
    assert dtp.ckpt.gc(steps) == [2]
    dtp.ckpt.pin(steps, 1, False)
    assert dtp.ckpt.gc(steps) == [1] and dtp.ckpt.latest(steps) == 3
    with pytest.raises(dtp.NotFoundError):
        dtp.ckpt.pin(steps, 2)


def test_a_step_becomes_a_model_of_hugging_face(steps: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with dtp.ckpt.open(steps, 2) as ckpt:
        assert ckpt.format == "dtp-ckpt" and ckpt.has_checksums
        ckpt.export(tmp_path / "model", progress=lambda *n: told.append(n))
    assert told and told[-1][0] == told[-1][1]
    with dtp.ckpt.open_path(tmp_path / "model") as model:
        assert model.format == "safetensors" and not model.has_checksums
        assert (model.read()["w"] == 2).all()
