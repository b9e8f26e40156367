# SPDX-License-Identifier: Apache-2.0
"""For PyTorch: a torch.distributed.Store over a group's keys, so that no port is needed, and
storage for torch.distributed.checkpoint.

    group = dtp.init()
    torch.distributed.init_process_group(
        "gloo", store=dtp.torch.Store(group), rank=group.rank, world_size=group.size
    )
    torch.distributed.checkpoint.save(
        state, storage_writer=dtp.torch.StorageWriter("ckpt", step, group=group)
    )

Imported by itself (`import dtp.torch`); dtp alone never imports torch.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from dtp._check import Error, NotFoundError, TimeoutError
from dtp._torch_ckpt import StorageReader, StorageWriter
from dtp.group import Group

__all__ = ["StorageReader", "StorageWriter", "Store"]

T = TypeVar("T")

_PREFIX = "torch/"
_MADE = "torch.stores"  # the ranks that have made one
_KEY_MAX = 255  # bytes of a group's key
_SLICE_MS = 3_600_000  # of a wait without a limit


def _name(key: str) -> str:
    """The group's key for one of torch's, which may be longer."""
    name = _PREFIX + key
    raw = name.encode()
    if len(raw) <= _KEY_MAX:
        return name
    return raw[:128].decode(errors="ignore") + "#" + hashlib.sha256(raw).hexdigest()


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


_kept: list[Store] = []


def _keep(store: Store) -> None:
    """torch keeps only the C++ half of a store; the Python half must live as long."""
    _kept[:] = [s for s in _kept if not s.closed] + [store]


def _ranks(ranks: list[int]) -> str:
    """Ascending ranks as text: "ranks 17, 40-47"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:16])
    more = f", ... and {len(runs) - 16} more" if len(runs) > 16 else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {shown}{more}"


class Store(dist.Store):  # type: ignore[misc,name-defined]
    """A torch.distributed.Store whose keys the group keeps; any thread may use it. What waits for a
    key ends with DistStoreError after the store's timeout, and at once with dtp.PeerError, which
    names the rank, when a rank dies. The group must stay open as long as torch uses the store."""

    def __init__(self, group: Group, timeout: timedelta = timedelta(minutes=5)) -> None:
        super().__init__()
        self._group = group
        self._ctx = group.ctx
        self._ctx.share()
        self.set_timeout(timeout)
        if not any(s._group is group for s in _kept):
            group.append(_MADE, f"{group.rank} ".encode())
        _keep(self)

    def _call(self, fn: Callable[[int], T], what: str, timeout: timedelta | None = None) -> T:
        """Calls `fn` with a time in ms, with the context kept open."""
        limit = self.timeout if timeout is None else timeout
        ms = max(1, round(limit.total_seconds() * 1000)) if limit else _SLICE_MS
        self._ctx.hold()
        try:
            return fn(min(ms, 2**31 - 1))
        except TimeoutError as e:
            raise dist.DistStoreError(f"{what}: {e}{self._absent()}") from e
        finally:
            self._ctx.release()

    def _absent(self) -> str:
        """Which ranks have not come as far as to make a store."""
        try:
            made = {int(rank) for rank in self._group.get(_MADE, wait=False).split()}
        except Error:
            return ""
        absent = [rank for rank in range(self._group.size) if rank not in made]
        return f"; without a store: {_ranks(absent)} of {self._group.size}" if absent else ""

    # ---- what every store has ----

    def set(self, key: str, value: bytes | str) -> None:
        self._call(lambda ms: self._group.set(_name(key), _bytes(value), ms), "set")

    def get(self, key: str) -> bytes:
        return self._call(lambda ms: self._group.get(_name(key), ms), "get")

    def add(self, key: str, value: int) -> int:
        return self._call(lambda ms: self._group.add(_name(key), value, ms), "add")

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        old, new = _bytes(expected), _bytes(desired)
        try:
            return self._call(
                lambda ms: self._group.compare_set(_name(key), old, new, ms), "compare_set"
            )
        except NotFoundError:
            return old  # as TCPStore answers

    def check(self, keys: list[str]) -> bool:
        try:
            for key in keys:
                self._call(lambda ms, k=key: self._group.get(_name(k), wait=False), "check")  # type: ignore[misc]
        except NotFoundError:
            return False
        return True

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        limit = self.timeout if timeout is None else timeout
        end = time.monotonic() + limit.total_seconds()
        for key in keys:
            left = timedelta(seconds=max(end - time.monotonic(), 0.001)) if limit else limit
            self._call(lambda ms, k=key: self._group.get(_name(k), ms), "wait", left)  # type: ignore[misc]

    def delete_key(self, key: str) -> bool:
        try:
            self._call(lambda ms: self._group.unset(_name(key), ms), "delete_key")
        except NotFoundError:
            return False
        return True

    def num_keys(self) -> int:
        """Keys of the group, other users' too."""
        return self._call(lambda ms: self._group.n_keys(ms), "num_keys")

    # torch calls two of them from C++ by another name.
    deleteKey = delete_key
    getNumKeys = num_keys

    def clone(self) -> Store:
        return self  # any thread may use it

    @property
    def closed(self) -> bool:
        return self._group.closed

    # ---- what extended stores have ----

    def has_extended_api(self) -> bool:
        return True

    def append(self, key: str, value: bytes | str) -> None:
        self._call(lambda ms: self._group.append(_name(key), _bytes(value), ms), "append")

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: Any) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    # ---- queues: a counter of what was put in, a key for each item, and who took the last one ----

    def queue_push(self, key: str, value: bytes | str) -> None:
        self.set(f"{key}/{self.add(f'{key}/pushed', 1)}", value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        end = time.monotonic() + self.timeout.total_seconds()
        while True:
            last = self._value(f"{key}/popped")
            item = f"{key}/{_count(last) + 1}"
            if self.check([item]):
                taken = f"{_count(last) + 1} {uuid.uuid4()}".encode()  # tells takers apart
                if self.compare_set(f"{key}/popped", last, taken) == taken:
                    value = self.get(item)
                    self.delete_key(item)
                    return value
            elif block:
                self._wait_item(item, end)
            elif self._value(f"{key}/popped") == last:  # nobody took it meanwhile
                raise dist.QueueEmptyError(f"queue '{key}' is empty")

    def _wait_item(self, item: str, end: float) -> None:
        """Not for long at a time: somebody else may take it."""
        left = end - time.monotonic()
        try:
            self.wait([item], timedelta(seconds=max(0.001, min(left, 1))))
        except dist.DistStoreError:
            if left <= 1:
                raise

    def queue_len(self, key: str) -> int:
        return max(self.add(f"{key}/pushed", 0) - _count(self._value(f"{key}/popped")), 0)

    def _value(self, key: str) -> bytes:
        """The value, empty where there is none."""
        try:
            return self._call(lambda ms: self._group.get(_name(key), wait=False), "get")
        except NotFoundError:
            return b""


def _count(last: bytes) -> int:
    return int(last.split()[0]) if last else 0
