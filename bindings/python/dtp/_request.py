# SPDX-License-Identifier: Apache-2.0
"""What a save or a load is asked for: the C library's array of tensors, from the caller's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

from dtp import _dtensor
from dtp._buffer import PACKED, Buffer, through_copy, unpacked
from dtp._ffi import encode, ffi, lib
from dtp._state import Shard

Tensors = Mapping[str, Any]


class Request:
    """An array of dtp_ckpt_tensor, with all that it points to."""

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._names: list[bytes] = []
        self._numbers: list[int] = []  # of each tensor its shape, offset and extent
        self._kept: list[Any] = []
        self._backs: list[Callable[[], None]] = []

    def add(
        self,
        name: str,
        buffer: Buffer,
        shape: Sequence[int] | None = None,
        offset: Sequence[int] | None = None,
    ) -> None:
        """The tensor `name`, whole, or its box of the buffer's shape at `offset` of `shape`."""
        shape = buffer.shape if shape is None else tuple(shape)
        offset = (0,) * len(shape) if offset is None else tuple(offset)
        if not len(shape) == len(offset) == len(buffer.shape):
            raise ValueError(
                f"tensor {name}: an array of {len(buffer.shape)} dimensions at offset "
                f"{list(offset)} of shape {list(shape)}"
            )
        if len(shape) > lib.DTP_CKPT_MAX_DIMS:
            raise ValueError(f"tensor {name}: more than {lib.DTP_CKPT_MAX_DIMS} dimensions")
        self._buffers.append(buffer)
        self._names.append(encode(name, "a tensor's name"))
        for numbers in (shape, offset, buffer.shape):
            self._numbers.extend(map(index, numbers))

    def add_value(self, name: str, value: Any, writable: bool) -> None:
        """A tensor, a part of one, or a list of parts."""
        what = f"tensor {name}"
        if _dtensor.is_dtensor(value):
            value = _dtensor.parts(value, what)
        for part in value if isinstance(value, list) else [value]:
            array, shape, offset = part if isinstance(part, Shard) else (part, None, None)
            buffer, back = through_copy(array, what, writable)
            if buffer.dtype in PACKED and shape is not None and offset is not None:
                shape, offset = (unpacked(buffer.dtype, x) for x in (shape, offset))
            self.add(name, buffer, shape, offset)
            if back is not None:
                self._backs.append(back)

    def add_all(self, tensors: Tensors, writable: bool) -> None:
        for name, value in tensors.items():
            self.add_value(name, value, writable)

    def done(self) -> None:
        """The memory is filled: what went through a copy gets it."""
        for back in self._backs:
            back()

    def array(self) -> tuple[Any, int]:
        n = len(self._buffers)
        tensors = ffi.new("dtp_ckpt_tensor[]", n)
        names = ffi.new("char[]", b"\0".join(self._names) + b"\0")
        numbers = ffi.new("int64_t[]", [*self._numbers, 0])
        size = ffi.sizeof("dtp_ckpt_tensor")
        name_at = at = 0
        for i, (buffer, name) in enumerate(zip(self._buffers, self._names, strict=True)):
            t, n_dims = tensors[i], len(buffer.shape)
            t.size, t.dtype, t.n_dims, t.data = size, buffer.dtype, n_dims, buffer.ptr
            t.name = names + name_at
            t.shape, t.offset = numbers + at, numbers + (at + n_dims)
            t.extent = numbers + (at + 2 * n_dims)
            name_at += len(name) + 1
            at += 3 * n_dims
        self._kept += [names, numbers]
        return tensors, n
