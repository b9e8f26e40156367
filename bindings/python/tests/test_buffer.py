# SPDX-License-Identifier: Apache-2.0
"""Borrowed memory: the pointers are the arrays' own, and what cannot be borrowed is said."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest
from conftest import need
from dtp._buffer import borrow, dtype_name
from dtp._ffi import ffi


def address(buffer: Any) -> int:
    return int(ffi.cast("uintptr_t", buffer.ptr))


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("f8", "f64"), ("f4", "f32"), ("f2", "f16"), ("i8", "i64"), ("i4", "i32"), ("i2", "i16"),
        ("i1", "i8"), ("u8", "u64"), ("u4", "u32"), ("u2", "u16"), ("u1", "u8"), ("?", "bool"),
        ("c8", "c64"),
    ],
)  # fmt: skip
def test_numpy_memory_is_lent_with_its_type(dtype: str, name: str) -> None:
    a = np.zeros((3, 4), dtype)
    b = borrow(a, writable=True)
    assert address(b) == a.ctypes.data
    assert (dtype_name(b.dtype), b.count, b.shape) == (name, 12, (3, 4))


def test_scalars_and_empty_arrays_have_their_shape() -> None:
    assert borrow(np.zeros(())).shape == () and borrow(np.zeros(())).count == 1
    assert borrow(np.zeros((0, 5))).shape == (0, 5) and borrow(np.zeros((0, 5))).count == 0


def test_buffers_of_the_standard_library_work() -> None:
    a = array.array("d", [1.0, 2.0])
    assert address(borrow(a, writable=True)) == a.buffer_info()[0]
    assert borrow(b"abc").count == 3
    assert borrow(memoryview(bytearray(5))[1:]).count == 4


def test_read_only_memory_is_not_written() -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    for value in (b"abc", frozen, np.float64(1)):
        assert borrow(value).read_only
        with pytest.raises(ValueError, match="result is read-only"):
            borrow(value, "result", writable=True)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (np.zeros((3, 3)).T, ValueError, "w is not contiguous"),
        (np.zeros(6)[::2], ValueError, "w is not contiguous"),
        (np.zeros(3, ">f4"), TypeError, "w: elements of type '>f'"),
        (np.zeros(3, "M8[s]"), TypeError, "w: elements of type datetime64"),
        (np.zeros(3, object), TypeError, "w: elements of type 'O'"),
        (3, TypeError, "w: a int is no array"),
        ("abc", TypeError, "w: a str is no array"),
        (None, TypeError, "w: a NoneType is no array"),
        ([1.0], TypeError, "w: a list is no array"),
    ],
)
def test_what_cannot_be_lent_is_named(value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        borrow(value, "w")


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64", "int64", "uint8", "bool"])
def test_torch_memory_is_lent_without_importing_torch(name: str) -> None:
    need("torch")
    import torch

    t = torch.zeros(3, 4, dtype=getattr(torch, name), requires_grad=name == "float32")
    b = borrow(t, writable=True)
    assert address(b) == t.data_ptr()
    assert (b.count, b.shape) == (12, (3, 4))
    with pytest.raises(ValueError, match="not contiguous"):
        borrow(t.T)


def test_torch_on_a_device_is_refused() -> None:
    need("torch")
    import torch

    with pytest.raises(ValueError, match="w is on meta"):
        borrow(torch.zeros(3, device="meta"), "w")


class OnlyDlpack:
    def __init__(self, inner: Any, old: bool = False) -> None:
        self.inner = inner
        self.old = old

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.inner.__dlpack_device__()  # type: ignore[no-any-return]

    def __dlpack__(self, **kwargs: Any) -> Any:
        if self.old and kwargs:
            raise TypeError("unexpected keyword")
        return self.inner.__dlpack__(**kwargs)


def test_dlpack_memory_is_lent() -> None:
    a = np.arange(12, dtype="f4").reshape(3, 4)
    b = borrow(OnlyDlpack(a), writable=True)
    assert address(b) == a.ctypes.data
    assert (dtype_name(b.dtype), b.count, b.shape) == ("f32", 12, (3, 4))


def test_dlpack_before_1_0_is_only_read() -> None:
    b = borrow(OnlyDlpack(np.arange(3), old=True))
    assert (dtype_name(b.dtype), b.count, b.read_only) == ("i64", 3, True)


def test_dlpack_that_is_read_only_or_strided_is_known() -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert borrow(OnlyDlpack(frozen)).read_only
    with pytest.raises(ValueError, match="not contiguous"):
        borrow(OnlyDlpack(np.zeros((3, 4)).T))


def test_dlpack_keeps_the_tensor_alive() -> None:
    a = np.full(1000, 7.0)
    b = borrow(OnlyDlpack(a))
    del a
    assert set(np.frombuffer(ffi.buffer(b.ptr, 8000))) == {7.0}
