# SPDX-License-Identifier: Apache-2.0
"""The context behind every handle, and the callbacks that libdtp makes into Python.

An exception in a callback cannot travel through C: the context keeps it, the call ends, and `check`
raises it. That is also how Ctrl-C leaves a blocking call: Python runs its signal handlers inside
`interrupted`, which libdtp asks about every 50 ms.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from dtp._check import check, exception, new_error
from dtp._ffi import Options, callback, ffi, lib

LogFn = Callable[[int, str, str], None]
T = TypeVar("T")


def keep(exc: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
    """cffi tells us that a callback raised; `user`, its first argument, is what keeps it."""
    if traceback is None:
        raise value  # cffi prints it
    ffi.from_handle(traceback.tb_frame.f_locals["user"]).kept = value


@callback("dtp_python_interrupted", keep, error=1)
def _interrupted(user: Any) -> int:
    # Python has run pending signal handlers by now; one that raised never lets us get here.
    return 1 if ffi.from_handle(user).kept is not None else 0


@callback("dtp_python_log", keep)
def _log(user: Any, level: int, topic: Any, text: Any) -> None:
    log = ffi.from_handle(user).log
    if log is not None:
        log(level, ffi.string(topic).decode(), ffi.string(text).decode("utf-8", "replace"))


class Context:
    """A libdtp context. Most programs never see one: `dtp.init()` and the others open their own.

    `log(level, topic, text)` gets libdtp's messages, on whichever thread has them; it must not call
    libdtp. A host with an event loop of its own polls `fileno()` and calls `dispatch(0)`.
    """

    def __init__(
        self, log: LogFn | None = None, log_level: int = 0, module_dir: str | None = None
    ) -> None:
        self.log = log
        self.kept: BaseException | None = None
        self._open: list[None] = []  # as many as are open; finalizers may run anywhere, so no lock
        self.ends_with_last = False  # a context that nobody sees closes with its last object
        self._handle = ffi.new_handle(self)
        opts = Options("dtp_ctx_opts")
        opts.ptr.interrupted = lib.dtp_python_interrupted
        opts.ptr.interrupted_user = self._handle
        opts.ptr.log_level = log_level
        opts.set_text("module_dir", module_dir)
        if log is not None:
            opts.ptr.log = lib.dtp_python_log
            opts.ptr.log_user = self._handle
        out, err = ffi.new("dtp_ctx **"), new_error()
        check(lib.dtp_ctx_open(opts.ptr, out, err), err)
        self._ptr: Any = out[0]
        self._alive = [None]

    @property
    def ptr(self) -> Any:
        if self._ptr is None:
            raise ValueError("the context is closed")
        return self._ptr

    def check(self, status: int, err: Any) -> int:
        """As _check.check, but an exception that a callback raised comes first."""
        if self.kept is not None:
            kept, self.kept = self.kept, None
            raise kept
        if status < 0:
            raise exception(status, err)
        return status

    def opened(self, status: int, err: Any, out: Any, close: Callable[[Any], None]) -> Any:
        """The handle that a call wrote to `out`; closed again where a callback raised meanwhile."""
        try:
            self.check(status, err)
        except BaseException:
            if status >= 0 and out[0] != ffi.NULL:
                close(out[0])
            raise
        return out[0]

    def share(self) -> None:
        """From now on a second thread waits for the first instead of getting dtp.BusyError."""
        err = new_error()
        check(lib.dtp_ctx_set_busy(self.ptr, lib.DTP_BUSY_WAIT, err), err)

    @property
    def n_open(self) -> int:
        """Objects opened on it, and calls of other threads that are under way."""
        return len(self._open)

    def hold(self) -> None:
        """It stays open until `release`."""
        self._open.append(None)

    def release(self) -> None:
        """Ends it after the last where that is how it ends."""
        self._open.pop()
        if self.ends_with_last and not self._open:
            self._end()

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return int(lib.dtp_ctx_fd(self.ptr))

    def dispatch(self, timeout_ms: int = 0) -> bool:
        """Runs what is ready, waiting at most `timeout_ms` (negative: for ever). True when
        something ran."""
        err = new_error()
        return bool(self.check(lib.dtp_ctx_dispatch(self.ptr, timeout_ms, err), err) == lib.DTP_OK)

    def wake(self) -> None:
        """Makes a dispatch or wait on another thread return soon."""
        lib.dtp_ctx_wake(self.ptr)

    def close(self) -> None:
        """Closes it; everything opened on it must be closed before. Twice is fine."""
        if self.n_open > 0:
            raise ValueError(f"{self.n_open} objects of the context are still open")
        self._end()

    def _end(self) -> None:
        if self._alive:
            with contextlib.suppress(IndexError):  # of two threads one closes
                self._alive.pop()
                ptr, self._ptr = self._ptr, None
                lib.dtp_ctx_close(ptr)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Handle:
    """A libdtp object and the context it hangs off."""

    def __init__(self, ptr: Any, ctx: Context, close: Callable[[Any], None]) -> None:
        self._ptr = ptr
        self._ctx = ctx
        ctx.hold()
        self._finalizer = weakref.finalize(self, _close, ptr, ctx, close)

    @property
    def ptr(self) -> Any:
        if not self._finalizer.alive:
            raise ValueError(f"the {type(self).__name__.lower()} is closed")
        return self._ptr

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        """Closes it. Twice is fine."""
        self._finalizer()

    def __exit__(self, *exc: object) -> None:
        self.close()


def _close(ptr: Any, ctx: Context, close: Callable[[Any], None]) -> None:
    close(ptr)
    ctx.release()


@contextlib.contextmanager
def context_of(ctx: Context | None) -> Iterator[Context]:
    """The given context, or one of its own for the length of a call."""
    if ctx is not None:
        yield ctx
        return
    with Context() as own:
        yield own


def open_handle(ctx: Context | None, make: Callable[[Context], T]) -> T:
    """Calls `make` with the given context, or with one that ends with what is opened on it."""
    if ctx is not None:
        return make(ctx)
    own = Context()
    own.ends_with_last = True
    try:
        return make(own)
    except BaseException:
        own.close()
        raise
