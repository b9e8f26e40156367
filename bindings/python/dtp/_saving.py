# SPDX-License-Identifier: Apache-2.0
"""Saves of a state, waited for or in the background."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from operator import index
from typing import Any, TypedDict, Union, Unpack

from dtp import _state
from dtp._check import new_error
from dtp._context import Context, Handle, context_of, open_handle
from dtp._ffi import Options, encode, ffi, lib
from dtp._request import Request
from dtp.group import Group

Dir = Union[str, "os.PathLike[str]"]
State = Mapping[Any, Any]
CODECS = {"none": lib.DTP_CODEC_NONE, "zstd": lib.DTP_CODEC_ZSTD, "planes": lib.DTP_CODEC_PLANES}


class SaveOptions(TypedDict, total=False):
    """Options of save and async_save."""

    codec: str
    """ "none" (the default), "planes" (the best for weights and optimizers) or "zstd"."""
    meta: Mapping[str, Any] | None
    """Kept in the manifest as JSON; rank 0's counts."""
    keep_last: int
    """Older complete steps beyond this many are removed (0: none)."""
    keep_every: int
    """Steps that are multiples of it are kept all the same (0: none)."""
    delta: bool
    """What equals the newest complete step is referred to, not written again."""
    files: str | None
    """How files are written: "uring", "posix", None for what is best here."""
    sync: bool
    chunk_bytes: int
    timeout_ms: int | None


def _call(dir: Dir, step: int, state: State, group: Group | None, options: SaveOptions) -> _Call:
    try:
        return _Call(dir, step, state, group, options)
    except Exception:
        if isinstance(group, Group) and not group.closed:
            _fail_together(group, options.get("timeout_ms"))
        raise


def _fail_together(group: Group, timeout_ms: Any) -> None:
    """The other ranks wait for this one in the save: a call that is refused tells them."""
    opts = Options("dtp_ckpt_save_opts")
    if isinstance(timeout_ms, int) and 0 <= timeout_ms < 1 << 31:
        opts.ptr.timeout_ms = timeout_ms
    lib.dtp_ckpt_save(group.ctx.ptr, group.ptr, b".", 0, ffi.NULL, 1, opts.ptr, new_error())


def number_of(name: str, value: int, bits: int) -> int:
    if not 0 <= index(value) < 1 << bits:
        raise ValueError(f"{name} {value} is not within 0 and 2**{bits} - 1")
    return index(value)


def step_of(value: int) -> int:
    return number_of("step", value, 64)


def _meta(state_tree: Any, meta: Mapping[str, Any] | None) -> str | None:
    if meta is not None and _state.KEY in meta:
        raise ValueError(f"meta: {_state.KEY!r} is where the state's own values go")
    if state_tree is None:
        return None if meta is None else json.dumps(meta)
    return json.dumps({**(meta or {}), _state.KEY: state_tree})


def save(
    dir: Dir,
    step: int,
    state: State,
    group: Group | None = None,
    *,
    ctx: Context | None = None,
    **options: Unpack[SaveOptions],
) -> None:
    """Saves the state of all ranks of `group` (None: this process alone) as step `step` and returns
    when that is durable. What is no tensor in the state is kept in the manifest as JSON; rank 0's
    counts."""
    call = _call(dir, step, state, group, options)
    with context_of(ctx if group is None else group.ctx) as context:
        err = new_error()
        context.check(lib.dtp_ckpt_save(context.ptr, *call.arguments, err), err)


class Save(Handle):
    """A save on its way. To drop it leaves the save running; the group's next save then waits for
    it, and raises what went wrong."""

    def __enter__(self) -> Save:
        return self

    def wait(self, timeout_ms: int | None = None) -> None:
        """Returns when the step is durable, or raises what went wrong. dtp.TimeoutError leaves it
        running."""
        err = new_error()
        ms = -1 if timeout_ms is None else timeout_ms
        self._ctx.check(lib.dtp_op_wait(self.ptr, ms, err), err)

    def done(self) -> bool:
        """Whether it has ended; `wait` then returns at once, or raises what went wrong."""
        return bool(lib.dtp_op_status(self.ptr, ffi.NULL) != lib.DTP_PENDING)

    def cancel(self) -> None:
        """Makes it fail on all ranks, unless it was quicker."""
        lib.dtp_op_cancel(self.ptr)


def async_save(
    dir: Dir,
    step: int,
    state: State,
    group: Group | None = None,
    *,
    ctx: Context | None = None,
    **options: Unpack[SaveOptions],
) -> Save:
    """As `save`, but returns when the tensors are copied: they may change at once. The rest goes on
    in the background, beside whatever the group does; `wait()` of what is returned means that the
    step is durable. Without a group the context ends with it, which waits for it."""
    call = _call(dir, step, state, group, options)

    def make(context: Context) -> Save:
        out, err = ffi.new("dtp_op **"), new_error()
        status = lib.dtp_ckpt_save_start(context.ptr, *call.arguments, out, err)
        return Save(context.opened(status, err, out, lib.dtp_op_free), context, lib.dtp_op_free)

    return open_handle(ctx if group is None else group.ctx, make)


class _Call:
    """The arguments of both, and what they point to."""

    def __init__(
        self, dir: Dir, step: int, state: State, group: Group | None, options: SaveOptions
    ) -> None:
        flat = _state.flatten(state)
        self._request = Request()
        self._request.add_all(flat.tensors, writable=False)
        if group is not None and not isinstance(group, Group):
            raise TypeError(f"group: a {type(group).__name__} is no dtp.Group")
        for name in options.keys() - SaveOptions.__annotations__.keys():
            raise TypeError(f"a save has no option {name}")
        first = group is None or group.rank == 0
        self._options = _options(tree=flat.tree if first else None, **options)
        self.arguments = (
            ffi.NULL if group is None else group.ptr,
            encode(dir, "dir"),
            step_of(step),
            *self._request.array(),
            self._options.ptr,
        )


def _options(
    tree: Any,
    codec: str = "none",
    meta: Mapping[str, Any] | None = None,
    keep_last: int = 0,
    keep_every: int = 0,
    delta: bool = False,
    files: str | None = None,
    sync: bool = True,
    chunk_bytes: int = 0,
    timeout_ms: int | None = None,
) -> Options:
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r} is none of {', '.join(CODECS)}")
    opts = Options("dtp_ckpt_save_opts")
    o = opts.ptr
    o.codec, o.no_sync, o.delta = CODECS[codec], not sync, delta
    o.keep_last = number_of("keep_last", keep_last, 32)
    o.keep_every = number_of("keep_every", keep_every, 64)
    o.chunk_bytes = number_of("chunk_bytes", chunk_bytes, 32)
    o.timeout_ms = timeout_ms or 0
    opts.set_text("meta_json", _meta(tree, meta))
    opts.set_text("files", files)
    return opts
