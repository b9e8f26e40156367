# SPDX-License-Identifier: Apache-2.0
"""`pip install .` into a fresh virtual environment, and what it installed works alone. Takes
minutes: only with DTP_TEST_LONG=1 (./dev test --long)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

SMOKE = """
import array, sys, dtp
assert dtp.__file__.startswith(sys.prefix), dtp.__file__
with dtp.topo.load() as topo:
    assert topo.cpus.machine
with dtp.init() as group:
    a = array.array("d", [1.0, 2.0])
    assert group.allreduce(a) is a
    dtp.ckpt.save("ckpt", 1, {"a": a}, group)
    b = array.array("d", [0.0, 0.0])
    dtp.ckpt.load("ckpt", into={"a": b})
    assert a == b
print("wheel ok", dtp.__version__)
"""


@pytest.mark.skipif(os.environ.get("DTP_TEST_LONG") != "1", reason="takes minutes: DTP_TEST_LONG=1")
def test_the_wheel_works_in_a_fresh_environment(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DTP_"))}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", str(ROOT)], check=True, env=env)
    done = subprocess.run(
        [python, "-c", SMOKE], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("wheel ok"), done.stdout + done.stderr
