# SPDX-License-Identifier: Apache-2.0
"""Contexts, statuses as exceptions, handles."""

from __future__ import annotations

import builtins
import os
import pickle
import select

import dtp
import pytest
from dtp._check import check, exception, new_error
from dtp._ffi import lib


def test_version_is_the_librarys() -> None:
    assert dtp.__version__[0].isdigit()


def test_every_status_has_its_exception() -> None:
    names = [n for n in dir(lib) if n.startswith("DTP_ERR_")]
    classes = {type(exception(getattr(lib, n), new_error())) for n in names}
    assert len(names) == 24
    assert len(classes) == 24 and dtp.Error not in classes


@pytest.mark.parametrize(
    ("ours", "builtin"),
    [
        (dtp.TimeoutError, builtins.TimeoutError),
        (dtp.PeerError, ConnectionError),
        (dtp.NotFoundError, LookupError),
        (dtp.CorruptError, ValueError),
        (dtp.PermError, PermissionError),
        (dtp.NoMemoryError, MemoryError),
        (dtp.NoSpaceError, OSError),
    ],
)
def test_exceptions_are_also_builtins(ours: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(ours, builtin) and issubclass(ours, dtp.Error)


def test_detail_becomes_attributes() -> None:
    err = new_error()
    err.status, err.rank, err.sys_errno = lib.DTP_ERR_PEER, 2, 0
    err.noun, err.text = b"group", b"rank 2 of 4 died"
    with pytest.raises(dtp.PeerError, match="^rank 2 of 4 died$") as info:
        check(lib.DTP_ERR_PEER, err)
    e = info.value
    assert (e.status, e.status_name, e.rank, e.noun) == (-21, "DTP_ERR_PEER", 2, "group")
    again = pickle.loads(pickle.dumps(e))
    assert (type(again), str(again), again.rank) == (dtp.PeerError, "rank 2 of 4 died", 2)


def test_without_detail_the_status_speaks() -> None:
    assert str(exception(lib.DTP_ERR_TIMEOUT, new_error())) == "the deadline passed"
    assert type(exception(-99, new_error())) is dtp.Error


def test_dispatch_of_an_idle_context_does_nothing() -> None:
    with dtp.Context() as ctx:
        assert ctx.dispatch(0) is False
        assert ctx.dispatch(1) is False


def test_wake_makes_the_descriptor_readable() -> None:
    with dtp.Context() as ctx:
        assert select.select([ctx], [], [], 0)[0] == []
        ctx.wake()
        assert select.select([ctx], [], [], 1)[0] == [ctx]


def test_a_closed_context_says_so() -> None:
    ctx = dtp.Context()
    ctx.close()
    ctx.close()
    with pytest.raises(ValueError, match="the context is closed"):
        ctx.dispatch(0)


def test_a_forked_child_is_told() -> None:
    with dtp.Context() as ctx:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                ctx.dispatch(0)
            except dtp.ForkedError:
                code = 42
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
        assert ctx.dispatch(0) is False


def test_ctrl_c_ends_a_wait(start_ranks) -> None:  # type: ignore[no-untyped-def]
    ranks = start_ranks(
        1,
        """
        import os, signal, threading, time, dtp
        with dtp.Context() as ctx:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            began = time.monotonic()
            try:
                while True:
                    ctx.dispatch(-1)
            except KeyboardInterrupt:
                print("interrupted", time.monotonic() - began < 20)
        """,
    )
    assert ranks.wait()[0].out == "interrupted True\n"


def test_errors_are_known_by_their_public_name() -> None:
    assert {cls.__module__ for cls in (dtp.Error, *dtp.Error.__subclasses__())} == {"dtp"}
