# SPDX-License-Identifier: Apache-2.0
"""The steps of a folder: which is there, which is whole, which stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtp._check import NotFoundError, new_error
from dtp._context import Context, context_of, keep
from dtp._ffi import Options, callback, encode, ffi, lib, text
from dtp._saving import Dir, number_of, step_of


class Told:
    """A function that the C library calls; what it raises is kept until the call has ended."""

    def __init__(self, fn: Callable[..., None]) -> None:
        self.fn = fn
        self.kept: BaseException | None = None
        self.handle = ffi.new_handle(self)

    def __call__(self, *arguments: Any) -> None:
        if self.kept is None:
            self.fn(*arguments)

    def check(self) -> None:
        if self.kept is not None:
            raise self.kept


@callback("dtp_python_ckpt_report", keep)
def _report(user: Any, step: int, status: int, what: Any) -> None:
    ffi.from_handle(user)(step, text(what))


@callback("dtp_python_ckpt_gone", keep)
def _gone(user: Any, step: int) -> None:
    ffi.from_handle(user)(step)


def latest_of(ctx: Context, path: bytes) -> int:
    out, err = ffi.new("uint64_t *"), new_error()
    ctx.check(lib.dtp_ckpt_latest(ctx.ptr, path, out, err), err)
    return int(out[0])


def latest(dir: Dir, ctx: Context | None = None) -> int | None:
    """The newest complete step under `dir`; None where there is none, or no such folder."""
    with context_of(ctx) as context:
        try:
            return latest_of(context, encode(dir, "dir"))
        except NotFoundError:
            return None


def latest_valid(
    dir: Dir,
    report: Callable[[int, str], None] | None = None,
    *,
    every_byte: bool = False,
    ctx: Context | None = None,
) -> int | None:
    """As `latest`; `report(step, text)` is told what is wrong with each step that is passed over.
    `every_byte`: a step counts when all of it is read and verified."""
    told = Told(report or (lambda step, what: None))
    with context_of(ctx) as context:
        out, err = ffi.new("uint64_t *"), new_error()
        status = lib.dtp_ckpt_latest_valid(
            context.ptr,
            encode(dir, "dir"),
            int(every_byte),
            lib.dtp_python_ckpt_report,
            told.handle,
            out,
            err,
        )
        told.check()
        try:
            context.check(status, err)
        except NotFoundError:
            return None
        return int(out[0])


def pin(dir: Dir, step: int, pinned: bool = True, ctx: Context | None = None) -> None:
    """Pins a complete step: `keep_last` and `gc` spare it; `pinned=False` takes the pin away."""
    with context_of(ctx) as context:
        err = new_error()
        path = encode(dir, "dir")
        context.check(lib.dtp_ckpt_pin(context.ptr, path, step_of(step), pinned, err), err)


def gc(
    dir: Dir,
    keep_last: int = 1,
    *,
    keep_every: int = 0,
    dry_run: bool = False,
    ctx: Context | None = None,
) -> list[int]:
    """Removes old steps, but not the newest complete ones, multiples of `keep_every`, pinned ones
    and what these refer to. Returns the steps that went (`dry_run`: would go)."""
    gone: list[int] = []
    told, opts = Told(gone.append), Options("dtp_ckpt_gc_opts")
    o = opts.ptr
    o.keep_last, o.dry_run = number_of("keep_last", keep_last, 32), dry_run
    o.keep_every = number_of("keep_every", keep_every, 64)
    o.report, o.report_user = lib.dtp_python_ckpt_gone, told.handle
    with context_of(ctx) as context:
        err = new_error()
        context.check(lib.dtp_ckpt_gc(context.ptr, encode(dir, "dir"), o, err), err)
    return gone
