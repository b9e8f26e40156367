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
        self._tensors: list[dict[str, Any]] = []
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
        self._kept.append(buffer)
        self._tensors.append(
            {
                "size": ffi.sizeof("dtp_ckpt_tensor"),
                "name": self._keep(ffi.new("char[]", encode(name, "a tensor's name"))),
                "dtype": buffer.dtype,
                "n_dims": len(shape),
                "shape": self._numbers(shape),
                "offset": self._numbers(offset),
                "extent": self._numbers(buffer.shape),
                "data": buffer.ptr,
            }
        )

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
        return ffi.new("dtp_ckpt_tensor[]", self._tensors), len(self._tensors)

    def _numbers(self, values: Sequence[int]) -> Any:
        return self._keep(ffi.new("int64_t[]", [index(v) for v in values] or [0]))

    def _keep(self, cdata: Any) -> Any:
        self._kept.append(cdata)
        return cdata
