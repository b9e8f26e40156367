# SPDX-License-Identifier: Apache-2.0
"""A job: a gang of ranks started, watched, restarted and ended as one.

The ranks belong to a small process of their own: a program that ends leaves the job running, and
`attach` takes it over again. Nothing moves by itself: wait(), or poll job.ctx and dispatch.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dtp._check import check, new_error
from dtp._context import Context, Handle, context_of, keep, open_handle
from dtp._ffi import Options, callback, ffi, lib, take_text, text
from dtp.topo import Topo


class State(enum.IntEnum):
    STARTING = lib.DTP_JOB_STARTING
    RUNNING = lib.DTP_JOB_RUNNING
    STOPPING = lib.DTP_JOB_STOPPING
    DONE = lib.DTP_JOB_DONE
    FAILED = lib.DTP_JOB_FAILED
    CANCELED = lib.DTP_JOB_CANCELED


class EventType(enum.IntEnum):
    STATE = lib.DTP_JOB_EV_STATE
    OUTPUT = lib.DTP_JOB_EV_OUTPUT
    EXIT = lib.DTP_JOB_EV_EXIT
    CAUSE = lib.DTP_JOB_EV_CAUSE


class Event(NamedTuple):
    """What happened; the fields are those of dtp_job_event (include/dtp/job.h)."""

    type: EventType
    state: State | None
    attempt: int
    rank: int | None
    stream: int
    exit_code: int
    signal: int
    text: str | None


class Info(NamedTuple):
    name: str
    state: State
    attempt: int
    n_ranks: int
    exit_code: int
    cause: str | None
    log_dir: str | None


EventFn = Callable[["Event"], None]


class _Listener:
    """What the callback gets as `user`: the function, and the context that keeps exceptions."""

    def __init__(self, fn: EventFn, ctx: Context) -> None:
        self.fn = fn
        self.ctx = ctx

    @property
    def kept(self) -> BaseException | None:
        return self.ctx.kept

    @kept.setter
    def kept(self, value: BaseException) -> None:
        self.ctx.kept = value


@callback("dtp_python_job_event", keep)
def _on_event(user: Any, job: Any, event: Any) -> None:
    listener = ffi.from_handle(user)
    if listener.ctx.kept is None:  # after an exception nothing more is told until it was raised
        listener.fn(
            Event(
                EventType(event.type),
                State(event.state) if event.state else None,
                event.attempt,
                event.rank if event.rank >= 0 else None,
                event.stream,
                event.exit_code,
                event.signal,
                text(event.text),
            )
        )


class Job(Handle):
    """A started or attached job; `close` lets go of it, the job goes on."""

    def __init__(self, ptr: Any, ctx: Context, kept: Any) -> None:
        self._callback = kept  # the C side calls it as long as the handle is open
        super().__init__(ptr, ctx, lambda p: (lib.dtp_job_close(p), kept)[0])

    def __enter__(self) -> Job:
        return self

    @property
    def ctx(self) -> Context:
        return self._ctx

    @property
    def info(self) -> Info:
        out, err = Options("dtp_job_info"), new_error()
        check(lib.dtp_job_get_info(self.ptr, out.ptr, err), err)
        i = out.ptr
        return Info(
            text(i.name) or "",
            State(i.state),
            i.attempt,
            i.n_ranks,
            i.exit_code,
            text(i.cause),
            text(i.log_dir),
        )

    def wait(self, timeout_ms: int | None = None) -> Info:
        """Runs the job's events until it has ended (None: for ever). A failed job is no exception:
        look at `exit_code` and `cause`."""
        err = new_error()
        ms = -1 if timeout_ms is None else timeout_ms
        self._ctx.check(lib.dtp_job_wait(self.ptr, ms, err), err)
        return self.info

    def cancel(self) -> None:
        """Ends the gang: SIGTERM, grace, SIGKILL, descendants included."""
        lib.dtp_job_cancel(self.ptr)


def start(
    argv: Sequence[str],
    n_ranks: int,
    *,
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    env_base: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    min_ranks: int = 0,
    max_restarts: int = 0,
    gpus_per_rank: int = 0,
    cores_per_rank: int = 0,
    bind: bool = True,
    ckpt_dir: str | os.PathLike[str] | None = None,
    grace_ms: int = 0,
    reform_ms: int = 0,
    on_event: EventFn | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    shim: str | os.PathLike[str] | None = None,
    topo: Topo | None = None,
    ctx: Context | None = None,
) -> Job:
    """Places, locks and starts a gang; the arguments are those of dtp_job_spec and dtp_job_opts.
    `env_base` None inherits this process's environment."""
    spec = Options("dtp_job_spec")
    s = spec.ptr
    s.n_ranks, s.min_ranks, s.max_restarts = n_ranks, min_ranks, max_restarts
    s.gpus_per_rank, s.cores_per_rank, s.no_bind = gpus_per_rank, cores_per_rank, not bind
    s.grace_ms, s.reform_ms = grace_ms, reform_ms
    spec.set_text("name", name)
    spec.set_text("cwd", None if cwd is None else os.fspath(cwd))
    spec.set_text("ckpt_dir", None if ckpt_dir is None else os.fspath(ckpt_dir))
    spec.set_texts("argv", argv)
    spec.set_texts("env", None if env is None else [f"{k}={v}" for k, v in env.items()])
    base = os.environ if env_base is None else env_base
    spec.set_texts("env_base", [f"{k}={v}" for k, v in base.items()])
    return _open(
        lambda c, opts, out, err: lib.dtp_job_start(c, s, opts, out, err),
        on_event,
        run_dir,
        shim,
        topo,
        ctx,
    )


def attach(
    name: str,
    *,
    on_event: EventFn | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    shim: str | os.PathLike[str] | None = None,
    ctx: Context | None = None,
) -> Job:
    """Takes a running (or just ended) job over again by its name."""
    c_name = ffi.new("char[]", name.encode())
    return _open(
        lambda c, opts, out, err: lib.dtp_job_attach(c, c_name, opts, out, err),
        on_event,
        run_dir,
        shim,
        None,
        ctx,
    )


def names(run_dir: str | os.PathLike[str] | None = None, ctx: Context | None = None) -> list[str]:
    """Names of the jobs that have a record under the run directory."""
    with context_of(ctx) as context:
        out, err = ffi.new("char **"), new_error()
        check(lib.dtp_job_list(context.ptr, _opts(run_dir, None, None).ptr, out, err), err)
        return take_text(out[0]).splitlines()


def _opts(run_dir: Any, shim: Any, topo: Topo | None) -> Options:
    opts = Options("dtp_job_opts")
    opts.set_text("run_dir", None if run_dir is None else os.fspath(run_dir))
    opts.set_text("shim", None if shim is None else os.fspath(shim))
    opts.ptr.topo = ffi.NULL if topo is None else topo.ptr
    return opts


def _open(
    call: Callable[..., int],
    on_event: EventFn | None,
    run_dir: Any,
    shim: Any,
    topo: Topo | None,
    ctx: Context | None,
) -> Job:
    def make(context: Context) -> Job:
        opts, out, err = _opts(run_dir, shim, topo), ffi.new("dtp_job **"), new_error()
        handle = None
        if on_event is not None:
            handle = ffi.new_handle(_Listener(on_event, context))
            opts.ptr.on_event, opts.ptr.user = lib.dtp_python_job_event, handle
        status = call(context.ptr, opts.ptr, out, err)
        return Job(context.opened(status, err, out, lib.dtp_job_close), context, (handle, topo))

    return open_handle(ctx, make)
