# SPDX-License-Identifier: Apache-2.0
"""The extension's two objects; nothing else in the package imports the extension."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from dtp import _dtp  # type: ignore[attr-defined]

ffi: Any = _dtp.ffi
lib: Any = _dtp.lib

F = TypeVar("F", bound=Callable[..., Any])


def callback(name: str, onerror: Callable[..., None], error: Any = None) -> Callable[[F], F]:
    """Makes a function the body of one of build_ffi.py's CALLBACKS; `error` is its result when it
    raises, `onerror` gets the exception."""

    def decorate(fn: F) -> F:
        ffi.def_extern(name=name, error=error, onerror=onerror)(fn)
        return fn

    return decorate


def text(pointer: Any) -> str | None:
    """A C string, None for NULL."""
    return None if pointer == ffi.NULL else str(ffi.string(pointer), "utf-8", "replace")


def take_text(pointer: Any) -> str:
    """A C string that is ours to free."""
    try:
        return str(ffi.string(pointer), "utf-8", "replace")
    finally:
        lib.dtp_text_free(pointer)


def encode(value: Any, what: str) -> bytes:
    """Bytes for a C string: str, bytes, or a path; NUL inside would cut it short."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{what}: a {type(value).__name__} is no text")
    data = os.fspath(value)
    data = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    if b"\0" in data:
        raise ValueError(f"{what} has a NUL in it: {value!r}")
    return data


def lend_bytes(value: Any, what: str) -> Any:
    """The memory of bytes, or of what is like bytes."""
    if isinstance(value, str):
        raise TypeError(f"{what}: a str is no bytes: encode() it")
    return ffi.from_buffer(value)


class Options:
    """An option struct with its `size` set, which keeps the strings that it points to."""

    def __init__(self, ctype: str) -> None:
        self.ptr = ffi.new(f"{ctype} *")
        self.ptr.size = ffi.sizeof(ctype)
        self._kept: list[Any] = []

    def set_text(self, name: str, value: Any) -> None:
        if value is not None:
            setattr(self.ptr, name, self.keep(ffi.new("char[]", encode(value, name))))

    def set_texts(self, name: str, values: Any) -> None:
        """A NULL-terminated array of strings."""
        if value_list := None if values is None else list(values):
            texts = [self.keep(ffi.new("char[]", encode(v, name))) for v in value_list]
            setattr(self.ptr, name, self.keep(ffi.new("char *[]", [*texts, ffi.NULL])))

    def keep(self, cdata: Any) -> Any:
        self._kept.append(cdata)
        return cdata
