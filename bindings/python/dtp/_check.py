# SPDX-License-Identifier: Apache-2.0
"""Turns a status into an exception: one class per status, each also the builtin it resembles."""

from __future__ import annotations

import builtins
from typing import Any

from dtp._ffi import ffi, lib


class Error(Exception):
    """A failed call. `status` is the number in dtp/base.h, `noun` the part that failed ("group"),
    `rank` the rank concerned or None, `sys_errno` the system's number or 0."""

    status: int = 0
    rank: int | None = None
    noun: str = ""
    sys_errno: int = 0

    def __init__(
        self,
        text: str,
        rank: int | None = None,
        noun: str = "",
        sys_errno: int = 0,
        status: int | None = None,
    ) -> None:
        super().__init__(text)
        self.rank = rank
        self.noun = noun
        self.sys_errno = sys_errno
        if status is not None:
            self.status = status

    @property
    def status_name(self) -> str:
        """Such as "DTP_ERR_TIMEOUT"."""
        return str(ffi.string(lib.dtp_status_name(self.status)).decode())

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.rank, self.noun, self.sys_errno, self.status)


class InvalidError(Error, ValueError):
    status = lib.DTP_ERR_INVAL


class NoMemoryError(Error, MemoryError):
    status = lib.DTP_ERR_NOMEM


class IOError(Error, OSError):  # noqa: A001 (the noun of DTP_ERR_IO)
    status = lib.DTP_ERR_IO


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001
    status = lib.DTP_ERR_TIMEOUT


class BusyError(Error, RuntimeError):
    status = lib.DTP_ERR_BUSY


class CanceledError(Error, RuntimeError):
    status = lib.DTP_ERR_CANCELED


class AbortedError(Error, ConnectionAbortedError):
    status = lib.DTP_ERR_ABORTED


class ForkedError(Error, RuntimeError):
    status = lib.DTP_ERR_FORKED


class NotFoundError(Error, LookupError):
    status = lib.DTP_ERR_NOT_FOUND


class ExistsError(Error, FileExistsError):
    status = lib.DTP_ERR_EXISTS


class UnsupportedError(Error, NotImplementedError):
    status = lib.DTP_ERR_UNSUPPORTED


class PermError(Error, PermissionError):
    status = lib.DTP_ERR_PERM


class AuthError(Error, PermissionError):
    status = lib.DTP_ERR_AUTH


class FormatError(Error, ValueError):
    status = lib.DTP_ERR_FORMAT


class TruncatedError(Error, EOFError):
    status = lib.DTP_ERR_TRUNCATED


class CorruptError(Error, ValueError):
    status = lib.DTP_ERR_CORRUPT


class RangeError(Error, IndexError):
    status = lib.DTP_ERR_RANGE


class NoSpaceError(Error, OSError):
    status = lib.DTP_ERR_NOSPC


class ProtocolError(Error, RuntimeError):
    status = lib.DTP_ERR_PROTO


class VersionError(Error, RuntimeError):
    status = lib.DTP_ERR_VERSION


class PeerError(Error, ConnectionError):
    status = lib.DTP_ERR_PEER


class LimitError(Error, RuntimeError):
    status = lib.DTP_ERR_LIMIT


class ExecError(Error, OSError):
    status = lib.DTP_ERR_EXEC


class InterruptedError(Error, builtins.InterruptedError):  # noqa: A001
    status = lib.DTP_ERR_INTERRUPTED


for _class in (Error, *Error.__subclasses__()):
    _class.__module__ = "dtp"  # where users find it, and tracebacks name it

_CLASSES: dict[int, type[Error]] = {cls.status: cls for cls in Error.__subclasses__()}


def new_error() -> Any:
    """Room for the detail of one call."""
    return ffi.new("dtp_error *")


def exception(status: int, err: Any) -> Error:
    """The exception for a failed call, with the detail that `err` holds for it."""
    if err.status == status and err.text[0] != b"\0":
        message = ffi.string(err.text).decode("utf-8", "replace")
        noun = ffi.string(err.noun).decode("utf-8", "replace")
        rank, sys_errno = (err.rank if err.rank >= 0 else None), err.sys_errno
    else:
        message, noun = ffi.string(lib.dtp_status_text(status)).decode(), ""
        rank, sys_errno = None, 0
    return _CLASSES.get(status, Error)(message, rank, noun, sys_errno, status)


def check(status: int, err: Any) -> int:
    """Passes what is not a failure, raises what is. Blocking calls use Context.check."""
    if status < 0:
        raise exception(status, err)
    return status
