# SPDX-License-Identifier: Apache-2.0
"""Groups: alone, several ranks, failures, Ctrl-C, forked children."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import dtp
import numpy as np
import pytest
from conftest import RunRanks, StartRanks, need


def test_a_group_of_one_needs_no_launcher() -> None:
    with dtp.init() as group:
        assert (group.rank, group.size, group.local_rank, group.local_size) == (0, 1, 0, 1)
        assert (group.attempt, group.failed) == (0, [])
        group.barrier()
        assert group.allgather(b"abc") == [b"abc"]
        assert group.broadcast_bytes(b"xyz") == b"xyz"
        group.set("key", b"value")
        assert group.get("key") == b"value"
        assert group.member(0).pid == os.getpid()


def test_allreduce_is_in_place_and_without_a_copy() -> None:
    with dtp.init() as group:
        a = np.arange(1000, dtype="f4")
        before = a.ctypes.data
        assert group.allreduce(a) is a and a.ctypes.data == before
        out = np.empty_like(a)
        assert group.allreduce(a, out=out) is out
        assert np.array_equal(a, out)


def test_torch_tensors_are_reduced_in_place() -> None:
    need("torch")
    import torch

    with dtp.init() as group:
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            t = torch.arange(10).to(dtype)
            address = t.data_ptr()
            assert group.allreduce(t) is t and t.data_ptr() == address
            assert torch.equal(t, torch.arange(10).to(dtype))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda g: g.allreduce(b"abc"), ValueError, "array is read-only"),
        (lambda g: g.allreduce(3), TypeError, "a int is no array"),
        (lambda g: g.allreduce(np.zeros(2), "mean"), ValueError, "op 'mean' is none of sum"),
        (lambda g: g.allreduce(np.zeros(2), out=np.zeros(3)), ValueError, "2 elements, out 3"),
        (
            lambda g: g.allreduce(np.zeros(2), out=np.zeros(2, "f4")),
            ValueError,
            "array is f64, out f32",
        ),
        (lambda g: g.reduce_scatter(np.zeros(3), np.zeros(2)), ValueError, "not 1 times the 2"),
        (lambda g: g.allreduce(np.zeros(2, "?")), dtp.UnsupportedError, "bool"),
        (lambda g: g.get("nothing", wait=False), dtp.NotFoundError, "nothing"),
        (lambda g: g.member(1), dtp.RangeError, "1"),
        (lambda g: g.broadcast(np.zeros(2), root=5), dtp.Error, "5"),
        (lambda g: g.broadcast_bytes(b"", root=5), ValueError, "root 5"),
        (lambda g: g.set("a\0b", b""), ValueError, "NUL"),
        (lambda g: g.set(3, b""), TypeError, "key: a int is no text"),
        (lambda g: g.set("a", "b"), TypeError, "value: a str is no bytes"),
        (lambda g: g.allgather("b"), TypeError, "data: a str is no bytes"),
    ],
)
def test_bad_arguments_are_named(call: Any, error: type[Exception], text: str) -> None:
    with dtp.init() as group, pytest.raises(error, match=text):
        call(group)


def test_a_closed_group_says_so() -> None:
    group = dtp.init()
    group.close()
    group.close()
    assert group.closed
    with pytest.raises(ValueError, match="the group is closed"):
        group.barrier()


def test_a_sub_group_outlives_the_group_it_came_from() -> None:
    with dtp.init() as group:
        half = group.split(0)
        assert half is not None
    assert group.closed and half.allreduce(np.ones(3)).tolist() == [1, 1, 1]
    half.close()
    assert half.ctx.n_open == 0
    with pytest.raises(ValueError, match="the context is closed"):
        half.ctx.dispatch(0)


def test_what_is_closed_or_dropped_leaves_no_descriptor() -> None:
    def n_descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = n_descriptors()
    for _ in range(3):
        with dtp.init() as group:
            group.allreduce(np.ones(3))
        dropped = dtp.init()
        dropped.allreduce_async(np.ones(3))
        del dropped
    assert n_descriptors() == before


def test_operations_end_and_give_their_array() -> None:
    with dtp.init() as group:
        arrays = [np.full(100, i, "f8") for i in range(5)]
        works = [group.allreduce_async(a) for a in arrays]
        for i, work in enumerate(works):
            assert work.wait(5000) is arrays[i]
            assert work.done() and arrays[i][0] == i
        assert works[0].wait() is arrays[0]


def test_dropped_operations_keep_their_memory() -> None:
    with dtp.init() as group:
        for _ in range(20):
            group.allreduce_async(np.ones(1000))
        group.allreduce(np.ones(1000))


def test_ranks_agree(run_ranks: RunRanks) -> None:
    ended = run_ranks(
        3,
        """
        import dtp, numpy as np
        with dtp.init() as g:
            assert (g.size, g.local_size) == (3, 3)
            assert g.allgather(b"x" * g.rank) == [b"", b"x", b"xx"]
            assert g.broadcast_bytes(b"from %d" % g.rank, root=1) == b"from 1"
            g.set(f"key{g.rank}", bytes([g.rank]))
            g.barrier()
            assert [g.get(f"key{r}") for r in range(3)] == [b"\\0", b"\\1", b"\\2"]
            for dtype in ("f8", "f4", "f2", "i8", "i4", "u1"):
                a = np.full(1001, g.rank + 1, dtype)
                assert (g.allreduce(a) == 6).all(), dtype
                assert (g.allreduce(np.full(5, g.rank + 1, dtype), "max") == 3).all()
                assert (g.allreduce(np.full(5, g.rank + 1, dtype), "min") == 1).all()
                assert (g.allreduce(np.full(5, g.rank + 1, dtype), "prod") == 6).all()
                assert (g.allreduce(np.full(5, g.rank + 1, dtype), "avg") == 2).all()
            out = np.empty(6, "i4")
            g.allgather_into(np.array([g.rank, -g.rank], "i4"), out)
            assert out.tolist() == [0, 0, 1, -1, 2, -2]
            out = np.empty(2, "f4")
            g.reduce_scatter(np.arange(6, dtype="f4"), out)
            assert out.tolist() == [6.0 * g.rank, 6.0 * g.rank + 3]
            assert g.broadcast(np.full(3, g.rank, "i8"), root=2).tolist() == [2, 2, 2]
            works = [g.allreduce_async(np.full(10000, float(i))) for i in range(4)]
            assert [w.wait()[0] for w in works] == [0, 3, 6, 9]
            half = g.split(g.rank % 2, key=-g.rank)
            assert (half.rank, half.size) == ((0, 1) if g.rank == 1 else (1 - g.rank // 2, 2))
            assert half.allreduce(np.ones(1))[0] == half.size
            half.close()
            assert g.split(-1 if g.rank else 0) is None or g.rank == 0
            rng = np.random.default_rng(g.rank)
            print(g.allreduce(rng.normal(size=100000)).tobytes().hex()[:64])
        """,
    )
    assert len({end.out for end in ended}) == 1


def test_torch_ranks_agree(run_ranks: RunRanks) -> None:
    need("torch")
    run_ranks(
        2,
        """
        import dtp, torch
        with dtp.init() as g:
            for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
                t = torch.full((7, 3), g.rank + 1).to(dtype)
                assert torch.equal(g.allreduce(t), torch.full((7, 3), 3).to(dtype))
        """,
    )


def test_a_dead_rank_is_named(start_ranks: StartRanks) -> None:
    ranks = start_ranks(
        3,
        """
        import os, signal, time, dtp, numpy as np
        g = dtp.init()
        g.barrier()
        if g.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                g.allreduce(np.ones(10))
        except dtp.PeerError as e:
            print(e.status_name, g.failed, "rank 1" in str(e))
        """,
    )
    ended = ranks.wait()
    assert ended[1].code == -signal.SIGKILL
    for rank in (0, 2):
        assert ended[rank].out == "DTP_ERR_PEER [1] True\n", ended[rank]


def test_survivors_reform(start_ranks: StartRanks) -> None:
    ranks = start_ranks(
        4,
        """
        import os, signal, dtp, numpy as np
        g = dtp.init()
        g.barrier()
        if g.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                g.allreduce(np.ones(10))
        except dtp.PeerError:
            new = g.reform(timeout_ms=10000, min_size=2)
        g.close()
        x = new.allreduce(np.ones(3))
        print(new.generation, new.rank, new.size, x[0], new.member(2).identity)
        new.close()
        """,
    )
    ended = ranks.wait()
    assert ended[2].code == -signal.SIGKILL
    for rank, new in ((0, 0), (1, 1), (3, 2)):
        assert ended[rank].out == f"2 {new} 3 3.0 3\n", ended[rank]


def test_a_reform_takes_a_newcomer_in(run_ranks: RunRanks) -> None:
    ended = run_ranks(
        3,
        """
        import os, dtp
        rank, job = int(os.environ["DTP_RANK"]), os.environ["DTP_JOB"]
        where = {"world_size": 2, "job": job, "insecure": True, "timeout_ms": 20000}
        if rank == 2:
            g = dtp.join(dtp.RANK_NEW, local_rank=2, **where)
        else:
            old = dtp.join(rank, **where)
            g = old.reform(min_size=3)
            old.close()
        g.barrier()
        print(g.generation, g.rank, g.size, g.n_waiting, g.member(2).identity)
        g.close()
        """,
    )
    assert [end.out for end in ended] == [f"2 {rank} 3 0 2\n" for rank in range(3)]


def test_an_exception_that_ends_the_program_is_a_death(start_ranks: StartRanks) -> None:
    ranks = start_ranks(
        2,
        """
        import sys, dtp
        with dtp.init() as g:
            g.barrier()
            if g.rank == 1:
                sys.exit(3)
            try:
                g.barrier()
            except dtp.PeerError as e:
                print(g.failed, e)
        """,
    )
    ended = ranks.wait()
    assert ended[1].code == 3
    assert ended[0].out.startswith("[1]"), ended


def test_an_exception_in_a_with_block_reaches_the_others(start_ranks: StartRanks) -> None:
    ranks = start_ranks(
        2,
        """
        import dtp
        try:
            with dtp.init() as g:
                g.barrier()
                if g.rank == 1:
                    raise KeyError("no such column")
                g.barrier()
        except dtp.AbortedError as e:
            print(e)
        except KeyError:
            pass
        """,
    )
    ended = ranks.wait()
    assert "rank 1: KeyError: 'no such column'" in ended[0].out, ended


def test_a_rank_that_failed_is_no_rank_that_left(start_ranks: StartRanks) -> None:
    ranks = start_ranks(
        2,
        """
        import dtp
        g = dtp.init()
        g.barrier()
        if g.rank == 1:
            raise SystemError("broken")
        try:
            g.barrier()
        except dtp.PeerError as e:
            print(g.failed)
        """,
    )
    ended = ranks.wait()
    assert ended[1].code == 1 and "broken" in ended[1].err
    assert ended[0].out == "[1]\n", ended


def test_a_rank_that_never_comes_is_named(start_ranks: StartRanks) -> None:
    ranks = start_ranks(
        2,
        """
        import os, dtp
        if os.environ["DTP_RANK"] == "0":
            try:
                dtp.init()
            except dtp.Error as e:
                print(type(e).__name__, e)
        """,
        DTP_TIMEOUT_MS="300",
    )
    out = ranks.wait()[0].out
    assert out.startswith(("PeerError", "TimeoutError")) and "1" in out, out


def test_ctrl_c_ends_a_wait_for_others(start_ranks: StartRanks) -> None:
    ranks = start_ranks(
        2,
        """
        import dtp, signal, time
        with dtp.init() as g:
            g.barrier()
            if g.rank == 0:
                try:
                    print("waiting", flush=True)
                    g.barrier()
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
            else:
                time.sleep(60)
        """,
    )
    waiting = ranks.processes[0]
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "waiting\n"
    began = time.monotonic()
    waiting.send_signal(signal.SIGINT)
    assert waiting.stdout.readline() == "interrupted\n"
    assert time.monotonic() - began < 20


def test_a_signal_handler_of_the_program_runs_during_a_wait(start_ranks: StartRanks) -> None:
    ranks = start_ranks(
        2,
        """
        import dtp, signal, time
        class Stop(Exception): pass
        def handler(number, frame):
            raise Stop("save now")
        signal.signal(signal.SIGUSR1, handler)
        g = dtp.init()
        g.barrier()
        if g.rank == 1:
            time.sleep(60)
        try:
            print("waiting", flush=True)
            g.barrier()
        except Stop as e:
            print(e, flush=True)
        """,
    )
    waiting = ranks.processes[0]
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "waiting\n"
    waiting.send_signal(signal.SIGUSR1)
    assert waiting.stdout.readline() == "save now\n"


def test_a_forked_child_disturbs_nobody(run_ranks: RunRanks) -> None:
    run_ranks(
        2,
        """
        import os, sys, dtp, numpy as np
        g = dtp.init()
        work = g.allreduce_async(np.ones(10))
        pid = os.fork()
        if pid == 0:
            try:
                g.barrier()
            except dtp.ForkedError:
                sys.exit(7)          # runs finalizers: they must not leave the group
            sys.exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert work.wait()[0] == 2
        g.barrier()
        assert g.allreduce(np.ones(1))[0] == 2
        """,
    )


def test_data_loader_workers_disturb_nobody(run_ranks: RunRanks) -> None:
    run_ranks(
        2,
        """
        import multiprocessing, dtp, numpy as np
        with dtp.init() as g:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(abs, [-1, 2]) == [1, 2]
                assert g.allreduce(np.ones(1))[0] == 2
            g.barrier()
        """,
    )


def test_a_second_thread_is_told_busy(run_ranks: RunRanks) -> None:
    run_ranks(
        2,
        """
        import threading, time, dtp, numpy as np
        g = dtp.init()
        g.barrier()
        if g.rank == 0:
            thread = threading.Thread(target=g.barrier)
            thread.start()
            time.sleep(0.3)
            try:
                g.barrier()
                raise SystemError("two threads in one context")
            except dtp.BusyError:
                pass
            g2 = dtp.join()                     # a context of its own
            assert g2.allreduce(np.ones(1))[0] == 1
            g2.close()
            thread.join()
        else:
            time.sleep(1)
            g.barrier()
        g.barrier()
        """,
    )


def test_a_log_callback_that_raises_is_heard() -> None:
    def log(level: int, topic: str, text: str) -> None:
        raise RuntimeError(f"{topic}: {text}")

    ctx = dtp.Context(log=log, log_level=4)
    try:
        dtp.init(ctx=ctx).close()
    except RuntimeError as e:
        assert ": " in str(e)  # where joining alone logs anything at all
    ctx.close()


def test_a_secret_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a secret has 32 bytes, not 3"):
        dtp.join(world_size=2, secret=b"abc")


def test_each_node_is_discovered_once(run_ranks: RunRanks) -> None:
    run_ranks(
        3,
        """
        import dtp
        with dtp.init() as group:
            with group.topo() as mine, group.topo(2 - group.rank) as theirs:
                assert mine.text() == theirs.text() and mine.cpus.bound
            assert group.topo_id() == group.topo_id(0) != 0
            try:
                group.topo(3)
                raise AssertionError("rank 3 of 3")
            except dtp.RangeError:
                pass
            group.barrier()
        """,
    )
