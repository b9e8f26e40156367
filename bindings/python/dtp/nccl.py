# SPDX-License-Identifier: Apache-2.0
"""NCCL's unique ids spread by a group, and communicators of its ranks (include/dtp/nccl.h).

ids = dtp.nccl.unique_ids(group)            # one id, made by rank 0, the same on every rank
with dtp.nccl.init(group) as comm:          # an ncclComm_t in comm.pointer
    ...
"""

from __future__ import annotations

from typing import Any

from dtp._check import new_error
from dtp._context import Context, Handle
from dtp._ffi import Options, ffi, lib
from dtp.group import Group

ID_BYTES: int = lib.DTP_NCCL_ID_BYTES


def unique_ids(group: Group, ranks_per_id: int = 0, timeout_ms: int | None = None) -> list[bytes]:
    """Unique ids, the same on every rank: one, or one for each `ranks_per_id` ranks, made by the
    first of them, for ncclCommInitRankScalable. Collective."""
    out, n, err = ffi.new("void **"), ffi.new("uint32_t *"), new_error()
    ptr = group.ctx.opened(
        lib.dtp_nccl_unique_ids(group.ptr, ranks_per_id, out, n, timeout_ms or 0, err),
        err,
        out,
        lib.dtp_group_free,
    )
    try:
        joined = bytes(ffi.buffer(ptr, n[0] * ID_BYTES))
    finally:
        lib.dtp_group_free(ptr)
    return [joined[at : at + ID_BYTES] for at in range(0, len(joined), ID_BYTES)]


class Comm(Handle):
    """An NCCL communicator of all ranks of a group; from init()."""

    def __init__(self, ptr: Any, ctx: Context) -> None:
        self._end = _End(ctx)
        super().__init__(ptr, ctx, self._end)

    @property
    def pointer(self) -> int:
        """The ncclComm_t, for ctypes and the like."""
        return int(ffi.cast("uintptr_t", self.ptr))

    def abort(self) -> None:
        """Ends it without waiting for the others, after a failure."""
        self._end.aborts = 1
        self.close()

    def __enter__(self) -> Comm:
        return self


class _End:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.aborts = 0

    def __call__(self, ptr: Any) -> None:
        lib.dtp_nccl_comm_close(self._ctx.ptr, ptr, self.aborts)


def init(
    group: Group,
    *,
    ranks_per_id: int = 0,
    blocking: bool = False,
    timeout_ms: int | None = None,
) -> Comm:
    """Makes a communicator of all ranks on the current CUDA device. Collective. Without `blocking`
    it is a non-blocking one, and a deadline, a death or an abort ends the call everywhere."""
    opts, out, err = Options("dtp_nccl_opts"), ffi.new("void **"), new_error()
    opts.ptr.ranks_per_id = ranks_per_id
    opts.ptr.timeout_ms = timeout_ms or 0
    opts.ptr.blocking = blocking
    ctx = group.ctx

    def close(ptr: Any) -> None:
        lib.dtp_nccl_comm_close(ctx.ptr, ptr, 1)

    ptr = ctx.opened(lib.dtp_nccl_comm_init(group.ptr, opts.ptr, out, err), err, out, close)
    return Comm(ptr, ctx)
