# SPDX-License-Identifier: Apache-2.0
"""Finds the package in the build tree unless one is on the path, and starts groups of processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("DTP_TEST_BUILD", ROOT / "build"))

try:
    import dtp  # noqa: F401
except ImportError:
    sys.path.insert(0, str(BUILD / "bindings" / "python"))
    import dtp  # noqa: F401

PACKAGE_DIR = str(Path(dtp.__file__).parents[1])
# A shell without job control starts what it puts into the background with it ignored, and a program inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _python_path() -> str:
    return os.pathsep.join(p for p in (PACKAGE_DIR, os.environ.get("PYTHONPATH")) if p)


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Ranks:
    """Processes of one group, told where it is by DTP_* variables as a launcher would."""

    def __init__(self, n: int, script: str, env: Mapping[str, str]) -> None:
        job = f"t{uuid.uuid4().hex[:12]}"
        self.processes = []
        for rank in range(n):
            told = {
                "DTP_JOB": job,
                "DTP_RANK": str(rank),
                "DTP_WORLD_SIZE": str(n),
                "DTP_LOCAL_RANK": str(rank),
                "DTP_LOCAL_SIZE": str(n),
                "DTP_INSECURE": "1",
                "DTP_TIMEOUT_MS": "20000",
                "PYTHONPATH": _python_path(),
                "PYTHONUNBUFFERED": "1",
            }
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(script)],
                    env={**os.environ, **ONE_THREAD, **told, **env},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def wait(self, timeout: float = 60) -> list[Ended]:
        ended = []
        for process in self.processes:
            out, err = process.communicate(timeout=timeout)
            ended.append(Ended(process.returncode, out, err))
        return ended

    def kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


StartRanks = Callable[..., Ranks]
RunRanks = Callable[..., list[Ended]]


@pytest.fixture
def start_ranks() -> Iterator[StartRanks]:
    """start_ranks(n, script, **env): what is still running at the end of the test is killed."""
    started: list[Ranks] = []

    def start(n: int, script: str, **env: str) -> Ranks:
        started.append(Ranks(n, script, env))
        return started[-1]

    yield start
    for ranks in started:
        ranks.kill()


@pytest.fixture
def run_ranks(start_ranks: StartRanks) -> RunRanks:
    """Runs the script in n ranks, all of which must end with 0."""

    def run(n: int, script: str, **env: str) -> list[Ended]:
        ended = start_ranks(n, script, **env).wait()
        for rank, end in enumerate(ended):
            assert end.code == 0, f"rank {rank} of {n}: exit code {end.code}\n{end.out}{end.err}"
        return ended

    return run


def need(module: str) -> None:
    """Skips where an optional package is absent."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed (./dev setup --with {module})")
