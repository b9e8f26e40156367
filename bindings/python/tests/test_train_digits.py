# SPDX-License-Identifier: Apache-2.0
"""The training example: a rank dies, and the training goes on as if it had begun with fewer."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import dtp
import pytest
from conftest import BUILD, PACKAGE_DIR, ROOT, need

DTP = BUILD / "tools" / "dtp"
EXAMPLE = ROOT / "docs" / "examples" / "train_digits.py"


def command(n: int, ckpt: Path, run_dir: Path, *options: str) -> list[str]:
    return [str(DTP), "run", "-n", str(n), *options, "--ckpt", str(ckpt), "--run-dir", str(run_dir),
            "--", sys.executable, str(EXAMPLE)]  # fmt: skip


def environment() -> dict[str, str]:
    path = os.pathsep.join(p for p in (PACKAGE_DIR, os.environ.get("PYTHONPATH")) if p)
    return {**os.environ, "PYTHONPATH": path}


def losses(text: str) -> dict[int, str]:
    """Step -> loss as printed, which names each float exactly."""
    return {int(s): loss for s, loss in re.findall(r"step (\d+) loss (\S+)", text)}


def accuracy(text: str) -> float:
    found = re.findall(r"test accuracy (\S+)", text)
    assert len(found) == 1, text
    return float(found[0])


def find_rank(ckpt: Path, rank: int) -> int:
    """Pid of a rank of the job that got this checkpoint folder, by its environment."""
    for proc in Path("/proc").iterdir():
        if not proc.name.isdigit() or int(proc.name) == os.getpid():
            continue
        try:
            env = (proc / "environ").read_bytes().split(b"\0")
            argv = (proc / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        wanted = (f"DTP_CKPT_DIR={ckpt}".encode(), f"DTP_RANK={rank}".encode())
        if all(w in env for w in wanted) and str(EXAMPLE).encode() in argv:
            return int(proc.name)
    raise AssertionError(f"no process is rank {rank}")


@pytest.fixture(autouse=True)
def needs() -> None:
    need("sklearn")
    if not DTP.exists():
        pytest.skip(f"{DTP} is not built")


def test_a_killed_rank_changes_nothing_but_the_world_size(tmp_path: Path) -> None:
    ckpt, run_dir = tmp_path / "ckpt", tmp_path / "run"
    options = ("--max-restarts", "3", "--min-ranks", "2")
    job = subprocess.Popen(
        [*command(4, ckpt, run_dir, *options), "300", "0.01"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert job.stdout is not None
        first = ""
        while 100 not in losses(first):
            line = job.stdout.readline()
            assert line, first
            first += line
        os.kill(find_rank(ckpt, 2), signal.SIGKILL)
        rest, err = job.communicate(timeout=120)
    finally:
        job.kill()
    assert job.returncode == 0, first + rest + err
    assert re.search(r"rank 2 of 4 killed by signal 9 \(attempt 0\)", err), err
    assert re.search(r"attempt 1 starts with 3 ranks", err), err
    assert accuracy(rest) >= 0.95

    with_fewer = {}
    for step in range(20, 300, 20):  # the newest step that 4 ranks saved is where 3 began
        with dtp.ckpt.open(ckpt, step) as saved:
            with_fewer[step] = saved.world_size == 3
    began = max(step for step, fewer in with_fewer.items() if not fewer)
    assert began >= 100 and with_fewer[280]

    alone = tmp_path / "alone"
    for name in (p.name for p in ckpt.iterdir()):
        number = re.search(r"\d+", name)
        if number and int(number[0]) == began:
            shutil.copytree(ckpt / name, alone / name)
    undisturbed = subprocess.run(
        [*command(3, alone, run_dir), "300"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert undisturbed.returncode == 0, undisturbed.stderr
    expected = losses(undisturbed.stdout)
    assert min(expected) == began + 10 and max(expected) == 300
    # The last line that says so counts: steps after the checkpoint were printed by attempt 0 too.
    resumed = losses(rest)
    assert {s: resumed[s] for s in expected} == expected
    ours, theirs = dtp.ckpt.load(ckpt, 300), dtp.ckpt.load(alone, 300)
    assert ours.keys() == theirs.keys() and len(ours) == 8
    assert all(ours[k].tobytes() == theirs[k].tobytes() for k in ours)


def test_the_example_runs_without_a_launcher(tmp_path: Path) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "200"],
        env={**environment(), "DTP_CKPT_DIR": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert accuracy(done.stdout) >= 0.95 and len(losses(done.stdout)) == 20
    assert dtp.ckpt.latest(tmp_path) == 200
    assert time.monotonic() - began < 60
