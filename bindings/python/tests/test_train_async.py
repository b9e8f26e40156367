# SPDX-License-Identifier: Apache-2.0
"""The example of background saves: it learns, and goes on where it stopped with other ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import dtp
from conftest import BUILD, PACKAGE_DIR, ROOT

DTP = BUILD / "tools" / "dtp"
EXAMPLE = ROOT / "docs" / "examples" / "train_async.py"


def train(tmp_path: Path, n: int, steps: int) -> float:
    done = subprocess.run(
        [str(DTP), "run", "-n", str(n), "--ckpt", str(tmp_path / "ckpt"), "--run-dir",
         str(tmp_path / "run"), "--", sys.executable, str(EXAMPLE), str(steps)],
        env={**os.environ, "PYTHONPATH": PACKAGE_DIR}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(rf"step {steps}: off by (\S+)", done.stdout)
    assert len(found) == 1, done.stdout
    return float(found[0])


def test_training_goes_on_where_its_checkpoint_stands(tmp_path: Path) -> None:
    first = train(tmp_path, 2, 30)
    assert dtp.ckpt.latest(tmp_path / "ckpt") == 30
    again = train(tmp_path, 3, 60)
    assert again < first / 10
    assert dtp.ckpt.latest(tmp_path / "ckpt") == 60
