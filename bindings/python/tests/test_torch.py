# SPDX-License-Identifier: Apache-2.0
"""dtp.torch.Store under the real torch: gloo needs no port, and failures name ranks."""

from __future__ import annotations

import pytest
from conftest import Ended, RunRanks, StartRanks, need


@pytest.fixture(autouse=True)
def _torch() -> None:
    need("torch")


HEAD = """
    import os, sys, threading, time
    from datetime import timedelta
    import dtp, dtp.torch, torch
    import torch.distributed as dist

    group = dtp.init()

    def start(**options):
        store = dtp.torch.Store(group)
        dist.init_process_group(
            "gloo", store=store, rank=group.rank, world_size=group.size, **options
        )
"""


def run_all(start_ranks: StartRanks, n: int, script: str) -> list[Ended]:
    return start_ranks(n, HEAD + script).wait(timeout=120)


def test_gloo_runs_over_a_group(run_ranks: RunRanks) -> None:
    run_ranks(
        3,
        HEAD
        + """
    start()
    x = torch.full((4,), group.rank + 1.0)
    dist.all_reduce(x)
    assert x.tolist() == [6.0] * 4
    half = dist.new_group([0, 1])
    if group.rank < 2:
        y = torch.ones(1)
        dist.all_reduce(y, group=half)
        assert y.item() == 2.0
    dist.monitored_barrier()
    dist.barrier()
    names = [None] * 3
    dist.all_gather_object(names, f"rank {group.rank}")
    assert names == ["rank 0", "rank 1", "rank 2"]
    group.barrier()  # the group goes on beside it
    dist.destroy_process_group()
    group.close()
    """,
    )


def test_a_store_does_what_torch_asks_of_one(run_ranks: RunRanks) -> None:
    run_ranks(
        2,
        HEAD
        + """
    store = dtp.torch.Store(group, timedelta(seconds=20))
    prefixed = dist.PrefixStore("p", store)  # calls through C++
    for s in (store, prefixed, dist.PrefixStore("a long prefix " * 30, store)):
        a = str(group.rank)
        assert s.add("n" + a, 5) == 5 and s.add("n" + a, -2) == 3
        assert s.get("n" + a) == b"3"
        assert not s.check(["none"]) and s.check(["n" + a])
        assert s.compare_set("c" + a, "", "one") == b"one"
        assert s.compare_set("c" + a, "two", "three") == b"one"
        assert s.compare_set("c" + a, "one", "two") == b"two"
        assert s.compare_set("absent", "old", "new") == b"old"
        s.append("l" + a, "x")
        s.append("l" + a, "yz")
        s.multi_set(["m" + a, "o" + a], ["1", "2"])
        assert s.multi_get(["l" + a, "m" + a, "o" + a]) == [b"xyz", b"1", b"2"]
        assert s.delete_key("m" + a) and not s.delete_key("m" + a)
        assert s.has_extended_api() and s.num_keys() > 0
        s.set("bytes" + a, bytes(range(256)).decode("latin-1"))
        try:
            s.wait(["n" + a, "none"], timedelta(milliseconds=50))
            raise AssertionError("waited for nothing")
        except dist.DistStoreError as e:
            assert "was not set in time" in str(e), e
        s.clone().set("by the clone" + a, "x")
        assert s.check(["by the clone" + a])

    # Another thread sets what this one waits for; many threads at once.
    timer = threading.Timer(0.05, lambda: store.set(f"late {group.rank}", "now"))
    timer.start()
    assert store.get(f"late {group.rank}") == b"now"
    timer.join()
    threads = [
        threading.Thread(target=lambda: [store.add("count", 1) for _ in range(100)])
        for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    group.barrier()
    assert store.get("count") == b"800"

    # Each item is taken once.
    for i in range(20):
        store.queue_push("q", f"{group.rank}.{i}")
    group.barrier()
    mine = [store.queue_pop("q") for _ in range(10)]
    mine += [store.queue_pop("q", block=False) for _ in range(10)]
    group.barrier()
    assert store.queue_len("q") == 0
    both = group.allgather(b" ".join(mine))
    assert len(set(b" ".join(both).split())) == 40
    try:
        store.queue_pop("q", block=False)
        raise AssertionError("took from an empty queue")
    except dist.QueueEmptyError:
        pass
    group.close()
    try:
        store.get("n0")
        raise AssertionError("the group is closed")
    except ValueError:
        pass
    """,
    )


def test_a_rank_that_stays_away_is_named(start_ranks: StartRanks) -> None:
    ended = run_all(
        start_ranks,
        3,
        """
    if group.rank == 1:
        group.get("over")
        sys.exit(0)
    try:
        start(timeout=timedelta(seconds=1))
    except dist.DistStoreError as e:
        assert "without a store: rank 1 of 3" in str(e), e
    else:
        raise AssertionError("came up without rank 1")
    if group.add("n over", 1) == 2:
        group.set("over", b"")
    """,
    )
    for end in ended:
        assert end.code == 0, end.err


def test_a_rank_that_dies_is_named(start_ranks: StartRanks) -> None:
    ended = run_all(
        start_ranks,
        3,
        """
    if group.rank == 1:
        os._exit(3)
    began = time.monotonic()
    try:
        start()
    except dtp.PeerError as e:
        assert "rank 1 of 3" in str(e) and "died" in str(e), e
        assert group.failed == [1] and time.monotonic() - began < 60
    else:
        raise AssertionError("came up without rank 1")
    """,
    )
    assert [end.code for end in ended] == [0, 3, 0], [end.err for end in ended]
