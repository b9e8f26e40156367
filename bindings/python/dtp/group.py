# SPDX-License-Identifier: Apache-2.0
"""The process group: who takes part, and collectives on the memory of arrays and tensors.

Every call has a deadline: `timeout_ms` None is the group's default. A failure raises dtp.PeerError,
dtp.TimeoutError or dtp.AbortedError on every rank, and names the ranks.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from dtp._buffer import Buffer, borrow, dtype_name
from dtp._check import Error, check, exception, new_error
from dtp._context import Context, Handle, open_handle
from dtp._ffi import Options, encode, ffi, lend_bytes, lib, text
from dtp.topo import Topo

OPS = {
    "sum": lib.DTP_SUM,
    "min": lib.DTP_MIN,
    "max": lib.DTP_MAX,
    "prod": lib.DTP_PROD,
    "avg": lib.DTP_AVG,
}
RANK_NEW: int = lib.DTP_RANK_NEW
Array = TypeVar("Array")


class Member(NamedTuple):
    """One row of the table of ranks."""

    rank: int
    local_rank: int
    node: int
    pid: int
    host: str
    identity: int  # number in the first generation


class _Pending:
    """An operation and the memory lent to it; it outlives a Work that was dropped."""

    def __init__(self, op: Any, buffers: tuple[Buffer, ...]) -> None:
        self.op = op
        self.buffers = buffers
        self.error: Error | None = None

    def running(self) -> bool:
        return self.op is not None and lib.dtp_op_status(self.op, ffi.NULL) == lib.DTP_PENDING

    def end(self) -> None:
        """Frees an operation that has ended and keeps how it did."""
        if self.op is None:
            return
        err = new_error()
        status = lib.dtp_op_status(self.op, err)
        self.error = exception(status, err) if status < 0 else None
        lib.dtp_op_free(self.op)
        self.op, self.buffers = None, ()


class Work:
    """A collective on its way. It moves while somebody waits for it or dispatches the context; its
    arrays must be left alone until it is done."""

    def __init__(self, group: Group, pending: _Pending, result: Any) -> None:
        self._group = group
        self._pending = pending
        self._result = result

    def wait(self, timeout_ms: int | None = None) -> Any:
        """Waits (None: for ever) and returns the array that has the result. dtp.TimeoutError leaves
        it running."""
        pending, err = self._pending, new_error()
        if pending.running():
            ms = -1 if timeout_ms is None else timeout_ms
            status = lib.dtp_op_wait(pending.op, ms, err)
            if pending.running() or self._group.ctx.kept is not None:
                self._group.ctx.check(status, err)
        self._group.forget(pending)
        if pending.error is not None:
            raise pending.error
        return self._result

    def done(self) -> bool:
        """Whether it has ended; `wait` then returns at once, or raises what went wrong."""
        return not self._pending.running()

    def cancel(self) -> None:
        """Asks it to end early; `wait` then raises dtp.CanceledError."""
        if self._pending.running():
            lib.dtp_op_cancel(self._pending.op)


class Group(Handle):
    """A process group; from dtp.init(), dtp.join() or split()."""

    def __init__(self, ptr: Any, ctx: Context) -> None:
        self._pending: set[_Pending] = set()
        self._closer = _Closer(self._pending)
        super().__init__(ptr, ctx, self._closer)

    @property
    def ctx(self) -> Context:
        return self._ctx

    @property
    def rank(self) -> int:
        return int(lib.dtp_group_rank(self.ptr))

    @property
    def size(self) -> int:
        return int(lib.dtp_group_size(self.ptr))

    @property
    def local_rank(self) -> int:
        return int(lib.dtp_group_local_rank(self.ptr))

    @property
    def local_size(self) -> int:
        return int(lib.dtp_group_local_size(self.ptr))

    @property
    def attempt(self) -> int:
        """Start of the gang, counted by the job: 0, and one more after each restart."""
        return int(lib.dtp_group_attempt(self.ptr))

    @property
    def generation(self) -> int:
        return int(lib.dtp_group_generation(self.ptr))

    @property
    def n_waiting(self) -> int:
        """Newcomers (rank RANK_NEW) that wait for a reform(), as far as this node knows."""
        return int(lib.dtp_group_n_waiting(self.ptr))

    @property
    def failed(self) -> list[int]:
        """The ranks that failed, ascending."""
        n = lib.dtp_group_failed(self.ptr, ffi.NULL, 0)
        ranks = ffi.new("int32_t[]", max(n, 1))
        return list(ranks[0 : min(n, lib.dtp_group_failed(self.ptr, ranks, n))])

    def member(self, rank: int) -> Member:
        out, err = Options("dtp_group_member"), new_error()
        check(lib.dtp_group_get(self.ptr, rank, out.ptr, err), err)
        m = out.ptr
        return Member(m.rank, m.local_rank, m.node, m.pid, text(m.host) or "", m.identity)

    def topo(self, rank: int | None = None, timeout_ms: int | None = None) -> Topo:
        """The topology of the node of `rank` (None: of this one), discovered once per node. That of
        another node is there once a rank of that node has asked for its own."""
        out, err = ffi.new("dtp_topo **"), new_error()
        of = self.rank if rank is None else rank
        status = lib.dtp_group_topo(self.ptr, of, out, ffi.NULL, timeout_ms or 0, err)
        ptr = self._ctx.opened(status, err, out, lib.dtp_topo_close)
        return Topo(ptr, self._ctx, lib.dtp_topo_close)

    def topo_id(self, rank: int | None = None, timeout_ms: int | None = None) -> int:
        """A number that nodes with equal topologies share."""
        out, err = ffi.new("uint64_t *"), new_error()
        of = self.rank if rank is None else rank
        status = lib.dtp_group_topo(self.ptr, of, ffi.NULL, out, timeout_ms or 0, err)
        self._ctx.check(status, err)
        return int(out[0])

    # ---- control: small messages ----

    def barrier(self, timeout_ms: int | None = None) -> None:
        """All ranks have called it when it returns."""
        err = new_error()
        self._ctx.check(lib.dtp_group_barrier(self.ptr, timeout_ms or 0, err), err)

    def allgather(self, data: Any, timeout_ms: int | None = None) -> list[bytes]:
        """Gathers bytes of each rank, of any lengths (at most 1 MiB together), on all ranks."""
        mine, err = lend_bytes(data, "data"), new_error()
        out, total = ffi.new("void **"), ffi.new("size_t *")
        sizes = ffi.new("size_t[]", self.size)
        self._ctx.opened(
            lib.dtp_group_allgather(
                self.ptr, mine, len(mine), out, sizes, total, timeout_ms or 0, err
            ),
            err,
            out,
            lib.dtp_group_free,
        )
        joined = _take_bytes(out[0], total[0])
        parts, at = [], 0
        for bytes_ in sizes:
            parts.append(joined[at : at + bytes_])
            at += bytes_
        return parts

    def broadcast_bytes(
        self, data: Any = b"", root: int = 0, timeout_ms: int | None = None
    ) -> bytes:
        """Gives the bytes of `root` to all; what the others pass is not looked at."""
        if not 0 <= root < self.size:
            raise ValueError(f"root {root} is no rank of a group of {self.size}")
        return self.allgather(data if self.rank == root else b"", timeout_ms)[root]

    def set(self, key: str, value: Any, timeout_ms: int | None = None) -> None:
        """Sets a key for the whole group; a second set replaces."""
        data, err = lend_bytes(value, "value"), new_error()
        status = lib.dtp_group_set(
            self.ptr, encode(key, "key"), data, len(data), timeout_ms or 0, err
        )
        self._ctx.check(status, err)

    def get(self, key: str, timeout_ms: int | None = None, wait: bool = True) -> bytes:
        """Reads a key, waiting until it is set. `wait` False: dtp.NotFoundError where it is not."""
        out, n, err = ffi.new("void **"), ffi.new("size_t *"), new_error()
        ms = (timeout_ms or 0) if wait else -1
        self._ctx.opened(
            lib.dtp_group_lookup(self.ptr, encode(key, "key"), out, n, ms, err),
            err,
            out,
            lib.dtp_group_free,
        )
        return _take_bytes(out[0], n[0])

    def add(self, key: str, delta: int, timeout_ms: int | None = None) -> int:
        """Adds to a number in a key, in one step for all ranks, and returns the sum. A key that is
        not set counts as 0; the value is decimal text."""
        out, err = ffi.new("int64_t *"), new_error()
        status = lib.dtp_group_add(self.ptr, encode(key, "key"), delta, out, timeout_ms or 0, err)
        self._ctx.check(status, err)
        return int(out[0])

    def compare_set(
        self, key: str, expected: Any, desired: Any, timeout_ms: int | None = None
    ) -> bytes:
        """Sets `desired` where the value equals `expected` (empty: where the key is not set, or
        empty), and returns the value afterwards. dtp.NotFoundError: not set, but expected."""
        old, new = lend_bytes(expected, "expected"), lend_bytes(desired, "desired")
        out, n, err = ffi.new("void **"), ffi.new("size_t *"), new_error()
        self._ctx.opened(
            lib.dtp_group_compare_set(
                self.ptr,
                encode(key, "key"),
                old,
                len(old),
                new,
                len(new),
                out,
                n,
                timeout_ms or 0,
                err,
            ),
            err,
            out,
            lib.dtp_group_free,
        )
        return _take_bytes(out[0], n[0])

    def append(self, key: str, value: Any, timeout_ms: int | None = None) -> None:
        """Appends to the value of a key; one that is not set counts as empty."""
        data, err = lend_bytes(value, "value"), new_error()
        status = lib.dtp_group_append(
            self.ptr, encode(key, "key"), data, len(data), timeout_ms or 0, err
        )
        self._ctx.check(status, err)

    def unset(self, key: str, timeout_ms: int | None = None) -> None:
        """Removes a key. dtp.NotFoundError where it is not set."""
        err = new_error()
        self._ctx.check(
            lib.dtp_group_unset(self.ptr, encode(key, "key"), timeout_ms or 0, err), err
        )

    def n_keys(self, timeout_ms: int | None = None) -> int:
        """How many keys are set."""
        out, err = ffi.new("uint64_t *"), new_error()
        self._ctx.check(lib.dtp_group_n_keys(self.ptr, out, timeout_ms or 0, err), err)
        return int(out[0])

    def split(self, color: int, key: int = 0, timeout_ms: int | None = None) -> Group | None:
        """Ranks with the same `color` form a group of their own, ordered by `key`, then rank; a
        negative color joins none and gets None. Collective."""
        out, err = ffi.new("dtp_group **"), new_error()
        ptr = self._ctx.opened(
            lib.dtp_group_split(self.ptr, color, key, timeout_ms or 0, out, err),
            err,
            out,
            lib.dtp_group_close,
        )
        return None if ptr == ffi.NULL else Group(ptr, self._ctx)

    def reform(self, timeout_ms: int | None = None, min_size: int = 0) -> Group:
        """The survivors go on without those that were lost: a new group, one generation later, with
        the ranks in their order and numbered anew. Collective over the live ranks. This group, and
        what was split from it, is over then: close it, and split the new one."""
        opts, out, err = Options("dtp_reform_opts"), ffi.new("dtp_group **"), new_error()
        opts.ptr.timeout_ms = timeout_ms or 0
        opts.ptr.min_size = min_size
        ptr = self._ctx.opened(
            lib.dtp_group_reform(self.ptr, opts.ptr, out, err), err, out, lib.dtp_group_close
        )
        return Group(ptr, self._ctx)

    def abort(self, reason: str) -> None:
        """Ends the group for all ranks: each blocked or later call raises dtp.AbortedError."""
        lib.dtp_group_abort(self.ptr, encode(reason, "reason"))

    # ---- collectives on arrays and tensors ----

    def allreduce(
        self, array: Array, op: str = "sum", out: Array | None = None, timeout_ms: int | None = None
    ) -> Array:
        """Reduces `array` over all ranks, in place or into `out`, and returns where the result is.
        The same bits on every rank and in every run."""
        a, b, result = _in_out(array, out)
        err = new_error()
        self._ctx.check(
            lib.dtp_allreduce(
                self.ptr, a.ptr, b.ptr, a.count, a.dtype, _redop(op), timeout_ms or 0, err
            ),
            err,
        )
        return result

    def reduce_scatter(
        self, array: Any, out: Array, op: str = "sum", timeout_ms: int | None = None
    ) -> Array:
        """Reduces `array` (size blocks of the length of `out`) and leaves block `rank` in `out`."""
        a, b = self._scatter(array, out)
        err = new_error()
        self._ctx.check(
            lib.dtp_reduce_scatter(
                self.ptr, a.ptr, b.ptr, b.count, b.dtype, _redop(op), timeout_ms or 0, err
            ),
            err,
        )
        return out

    def allgather_into(self, array: Any, out: Array, timeout_ms: int | None = None) -> Array:
        """Gathers `array` of every rank into `out`, size blocks in rank order."""
        a, b = self._gather(array, out)
        err = new_error()
        self._ctx.check(
            lib.dtp_allgather(self.ptr, a.ptr, b.ptr, a.count, a.dtype, timeout_ms or 0, err), err
        )
        return out

    def broadcast(self, array: Array, root: int = 0, timeout_ms: int | None = None) -> Array:
        """Gives the array of `root` to all, in place."""
        a, err = borrow(array, writable=True), new_error()
        self._ctx.check(
            lib.dtp_broadcast(self.ptr, a.ptr, a.count, a.dtype, root, timeout_ms or 0, err), err
        )
        return array

    def _scatter(self, array: Any, out: Any) -> tuple[Buffer, Buffer]:
        a, b = borrow(array), borrow(out, "out", writable=True)
        _same_type(a, b)
        _one_of_many(b, a, self.size, ("out", "array"))
        return a, b

    def _gather(self, array: Any, out: Any) -> tuple[Buffer, Buffer]:
        a, b = borrow(array), borrow(out, "out", writable=True)
        _same_type(a, b)
        _one_of_many(a, b, self.size, ("array", "out"))
        return a, b

    # ---- the same as operations ----

    def allreduce_async(self, array: Any, op: str = "sum", out: Any = None) -> Work:
        a, b, result = _in_out(array, out)
        return self._start(
            lib.dtp_allreduce_start, (a.ptr, b.ptr, a.count, a.dtype, _redop(op)), result, (a, b)
        )

    def reduce_scatter_async(self, array: Any, out: Any, op: str = "sum") -> Work:
        a, b = self._scatter(array, out)
        return self._start(
            lib.dtp_reduce_scatter_start, (a.ptr, b.ptr, b.count, b.dtype, _redop(op)), out, (a, b)
        )

    def allgather_into_async(self, array: Any, out: Any) -> Work:
        a, b = self._gather(array, out)
        return self._start(lib.dtp_allgather_start, (a.ptr, b.ptr, a.count, a.dtype), out, (a, b))

    def broadcast_async(self, array: Any, root: int = 0) -> Work:
        a = borrow(array, writable=True)
        return self._start(lib.dtp_broadcast_start, (a.ptr, a.count, a.dtype, root), array, (a,))

    def _start(
        self,
        start: Callable[..., int],
        args: tuple[Any, ...],
        result: Any,
        buffers: tuple[Buffer, ...],
    ) -> Work:
        for pending in [p for p in self._pending if not p.running()]:
            self.forget(pending)
        out, err = ffi.new("dtp_op **"), new_error()
        self._ctx.check(start(self.ptr, *args, out, err), err)
        pending = _Pending(out[0], buffers)
        self._pending.add(pending)
        return Work(self, pending, result)

    def forget(self, pending: _Pending) -> None:
        """Gives back an operation that has ended."""
        pending.end()
        self._pending.discard(pending)

    # ---- the end ----

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *exc: object) -> None:
        """Leaves the group, unless the block raised: see _InFlight."""
        value = exc[1]
        if value is None or self.closed or (isinstance(value, SystemExit) and not value.code):
            self.close()
            return
        self._closer.failing = True
        if isinstance(value, BaseException) and not isinstance(value, SystemExit):
            value.__dict__["_dtp_in_flight"] = _InFlight(self, f"{type(value).__name__}: {value}")


class _InFlight:
    """Rides on the exception that left a `with` block. Where nobody catches that, the program ends,
    and its death tells the others which rank failed and how; an abort would make them end first.
    Where it is caught, this goes with it, and aborts the group."""

    def __init__(self, group: Group, reason: str) -> None:
        self._group = group
        self._reason = reason.replace("\0", " ")

    def __del__(self) -> None:
        if not self._group.closed and not _exiting:
            self._group.abort(self._reason)
            self._group.close()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return object, ()  # exceptions travel between processes, groups do not


class _Closer:
    """Leaves the group; what is still on its way is cancelled first."""

    def __init__(self, pending: set[_Pending]) -> None:
        self._pending = pending
        self.failing = False

    def __call__(self, ptr: Any) -> None:
        # At the end of a program that failed the group is not left, so that its death is news.
        if _exiting and (self.failing or getattr(sys, "last_value", None) is not None):
            return
        for pending in list(self._pending):
            if pending.running():
                lib.dtp_op_cancel(pending.op)
                lib.dtp_op_wait(pending.op, _CANCEL_MS, ffi.NULL)
            if pending.running():
                _lost.append(pending.buffers)
            pending.end()
        self._pending.clear()
        lib.dtp_group_close(ptr)


_CANCEL_MS = 1000
_lost: list[Any] = []  # memory of operations that did not end in time: it must outlive them
_exiting = False


def _note_exit() -> None:
    global _exiting
    _exiting = True


# Functions registered later run earlier; the first finalize registers what closes handles at exit.
weakref.finalize(Group, lambda: None)
atexit.register(_note_exit)


# ---- arguments ----


def _take_bytes(pointer: Any, n_bytes: int) -> bytes:
    try:
        return bytes(ffi.buffer(pointer, n_bytes)) if n_bytes else b""
    finally:
        lib.dtp_group_free(pointer)


def _redop(op: str) -> int:
    try:
        return int(OPS[op])
    except KeyError:
        raise ValueError(f"op {op!r} is none of {', '.join(OPS)}") from None


def _in_out(array: Array, out: Array | None) -> tuple[Buffer, Buffer, Array]:
    """Input, output and what to return: the array itself where there is no `out`."""
    a = borrow(array, "array", writable=out is None)
    if out is None:
        return a, a, array
    b = borrow(out, "out", writable=True)
    _same_type(a, b)
    if a.count != b.count:
        raise ValueError(f"array has {a.count} elements, out {b.count}")
    return a, b, out


def _same_type(a: Buffer, b: Buffer) -> None:
    if a.dtype != b.dtype:
        raise ValueError(f"array is {dtype_name(a.dtype)}, out {dtype_name(b.dtype)}")


def _one_of_many(one: Buffer, many: Buffer, size: int, names: tuple[str, str]) -> None:
    if many.count != one.count * size:
        raise ValueError(
            f"{names[1]} has {many.count} elements, not {size} times the {one.count} of {names[0]}"
        )


# ---- joining ----


def init(ctx: Context | None = None) -> Group:
    """Joins the group that the environment describes (dtp run, torchrun, Slurm, MPI launchers); a
    group of one where there is no launcher."""

    def make(context: Context) -> Group:
        out, err = ffi.new("dtp_group **"), new_error()
        status = lib.dtp_group_join_from_env(context.ptr, out, err)
        return Group(context.opened(status, err, out, lib.dtp_group_close), context)

    return open_handle(ctx, make)


def join(
    rank: int = 0,
    world_size: int = 0,
    *,
    local_rank: int | None = None,
    local_size: int = 0,
    job: str | None = None,
    attempt: int = 0,
    root: str | None = None,
    agent: str | None = None,
    secret: bytes | None = None,
    insecure: bool = False,
    timeout_ms: int = 0,
    net: str | None = None,
    node: int = 0,
    n_nodes: int = 0,
    radix: int = 0,
    parent: str | None = None,
    listen: str | None = None,
    encrypt: bool = False,
    munge: str | None = None,
    ctx: Context | None = None,
) -> Group:
    """Joins a group that the arguments describe (dtp_group_opts in include/dtp/group.h); by
    default a group of one. With rank RANK_NEW it waits to be taken in by a group's reform()."""
    if secret is not None and len(secret) != lib.DTP_SECRET_BYTES:
        raise ValueError(f"a secret has {lib.DTP_SECRET_BYTES} bytes, not {len(secret)}")
    opts = Options("dtp_group_opts")
    o = opts.ptr
    o.rank, o.world_size, o.local_size = rank, world_size, local_size
    o.local_rank = max(rank, 0) if local_rank is None else local_rank
    o.attempt, o.insecure, o.timeout_ms = attempt, insecure, timeout_ms
    o.node, o.n_nodes, o.radix, o.encrypt = node, n_nodes, radix, encrypt
    texts = {"job": job, "root": root, "agent": agent, "net": net, "munge": munge}
    for name, value in {**texts, "parent": parent, "listen": listen}.items():
        opts.set_text(name, value)
    if secret is not None:
        o.secret = opts.keep(ffi.new("uint8_t[]", secret))

    def make(context: Context) -> Group:
        out, err = ffi.new("dtp_group **"), new_error()
        status = lib.dtp_group_join(context.ptr, o, out, err)
        return Group(context.opened(status, err, out, lib.dtp_group_close), context)

    return open_handle(ctx, make)
