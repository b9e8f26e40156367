# SPDX-License-Identifier: Apache-2.0
"""Jobs: started, watched, restarted, cancelled, attached."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dtp
import pytest
from conftest import BUILD
from dtp.job import Event, EventType, State


@pytest.fixture
def where(tmp_path: Path) -> dict[str, Any]:
    return {"run_dir": tmp_path / "run", "shim": BUILD / "tools" / "dtp-shim"}


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_and_exits_are_told(where: dict[str, Any]) -> None:
    events: list[Event] = []
    code = "import os; print('hello from', os.environ['DTP_RANK'])"
    with dtp.job.start(python(code), 2, name="hello", bind=False, on_event=events.append,
                       **where) as job:  # fmt: skip
        info = job.wait(30000)
    assert (info.name, info.state, info.exit_code) == ("hello", State.DONE, 0)
    lines = {e.text for e in events if e.type == EventType.OUTPUT}
    assert lines == {"hello from 0", "hello from 1"}
    assert sorted(e.rank or 0 for e in events if e.type == EventType.EXIT) == [0, 1]


def test_a_failed_job_is_no_exception(where: dict[str, Any]) -> None:
    with dtp.job.start(python("raise SystemExit(3)"), 1, bind=False, **where) as job:
        info = job.wait(30000)
    assert (info.state, info.exit_code) == (State.FAILED, 3)
    assert info.cause


def test_a_missing_program_is_named(where: dict[str, Any]) -> None:
    with pytest.raises(dtp.ExecError, match="no-such-program"):
        with dtp.job.start(["no-such-program"], 1, bind=False, **where) as job:
            job.wait(30000)
            raise dtp.ExecError(job.info.cause or "")


def test_an_exception_in_a_callback_ends_the_wait(where: dict[str, Any]) -> None:
    def stop(event: Event) -> None:
        if event.type == EventType.OUTPUT:
            raise RuntimeError(f"not like this: {event.text}")

    code = "import time; print('line', flush=True); time.sleep(60)"
    with dtp.job.start(python(code), 1, bind=False, on_event=stop, **where) as job:
        with pytest.raises(RuntimeError, match="not like this: line"):
            job.wait(30000)
        job.cancel()
        assert job.wait(30000).state == State.CANCELED


def test_a_job_that_was_let_go_is_attached_again(where: dict[str, Any]) -> None:
    code = "import sys, time; time.sleep(0.5); sys.exit(5)"
    dtp.job.start(python(code), 1, name="later", bind=False, **where).close()
    assert "later" in dtp.job.names(where["run_dir"])
    with dtp.job.attach("later", **where) as job:
        assert job.wait(30000).exit_code == 5
    with pytest.raises(dtp.NotFoundError, match="never"):
        dtp.job.attach("never", **where)
