# SPDX-License-Identifier: Apache-2.0
"""Memory of arrays and tensors, borrowed without a copy and without importing their packages.

Three ways, tried in this order: the buffer protocol (numpy, array.array, bytes, memoryview), a data
pointer (torch, which has bf16 and the buffer protocol has not), DLPack (jax and others).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dtp._ffi import ffi, lib

# Letters of the struct module, native sizes; `l` is 64 bits on the platforms libdtp runs on.
_FORMATS = {
    "d": lib.DTP_F64,
    "f": lib.DTP_F32,
    "e": lib.DTP_F16,
    "q": lib.DTP_I64,
    "l": lib.DTP_I64,
    "i": lib.DTP_I32,
    "h": lib.DTP_I16,
    "b": lib.DTP_I8,
    "Q": lib.DTP_U64,
    "L": lib.DTP_U64,
    "I": lib.DTP_U32,
    "H": lib.DTP_U16,
    "B": lib.DTP_U8,
    "?": lib.DTP_BOOL,
    "Zf": lib.DTP_C64,
    "c": lib.DTP_U8,
}

# Names that torch ("torch.bfloat16") and ml_dtypes ("bfloat16") give their types.
NAMES = {
    "float64": lib.DTP_F64,
    "float32": lib.DTP_F32,
    "float16": lib.DTP_F16,
    "bfloat16": lib.DTP_BF16,
    "int64": lib.DTP_I64,
    "int32": lib.DTP_I32,
    "int16": lib.DTP_I16,
    "int8": lib.DTP_I8,
    "uint64": lib.DTP_U64,
    "uint32": lib.DTP_U32,
    "uint16": lib.DTP_U16,
    "uint8": lib.DTP_U8,
    "bool": lib.DTP_BOOL,
    "float8_e4m3fn": lib.DTP_F8_E4M3,
    "float8_e5m2": lib.DTP_F8_E5M2,
    "float8_e8m0fnu": lib.DTP_F8_E8M0,
    "float8_e4m3fnuz": lib.DTP_F8_E4M3FNUZ,
    "float8_e5m2fnuz": lib.DTP_F8_E5M2FNUZ,
    "float4_e2m1fn_x2": lib.DTP_F4,
    "complex64": lib.DTP_C64,
}

# How many elements torch has in one of its own, along the last dimension.
PACKED = {lib.DTP_F4: 2}

# DLPack type codes and bits.
_DLPACK = {
    (2, 64): lib.DTP_F64,
    (2, 32): lib.DTP_F32,
    (2, 16): lib.DTP_F16,
    (4, 16): lib.DTP_BF16,
    (0, 64): lib.DTP_I64,
    (0, 32): lib.DTP_I32,
    (0, 16): lib.DTP_I16,
    (0, 8): lib.DTP_I8,
    (1, 64): lib.DTP_U64,
    (1, 32): lib.DTP_U32,
    (1, 16): lib.DTP_U16,
    (1, 8): lib.DTP_U8,
    (6, 8): lib.DTP_BOOL,
    (5, 64): lib.DTP_C64,
    (10, 8): lib.DTP_F8_E4M3,
    (11, 8): lib.DTP_F8_E4M3FNUZ,
    (12, 8): lib.DTP_F8_E5M2,
    (13, 8): lib.DTP_F8_E5M2FNUZ,
    (14, 8): lib.DTP_F8_E8M0,
}
_DLPACK_HOST = (1, 3, 11)  # CPU, CUDA host, ROCm host
_DLPACK_READ_ONLY = 1

# numpy's names of our types, where it has them.
NUMPY_NAMES = {
    lib.DTP_F64: "float64",
    lib.DTP_F32: "float32",
    lib.DTP_F16: "float16",
    lib.DTP_I64: "int64",
    lib.DTP_I32: "int32",
    lib.DTP_I16: "int16",
    lib.DTP_I8: "int8",
    lib.DTP_U64: "uint64",
    lib.DTP_U32: "uint32",
    lib.DTP_U16: "uint16",
    lib.DTP_U8: "uint8",
    lib.DTP_BOOL: "bool",
    lib.DTP_C64: "complex64",
}


@dataclass(slots=True)
class Buffer:
    """Dense, row-major memory: `count` elements of `dtype` at `ptr`; `owner` keeps it alive."""

    ptr: Any
    dtype: int
    count: int
    shape: tuple[int, ...]
    read_only: bool
    owner: Any


def dtype_name(dtype: int) -> str:
    return str(ffi.string(lib.dtp_dtype_name(dtype)).decode())


def dtype_bytes(dtype: int) -> int:
    return int(lib.dtp_dtype_bytes(dtype))


def unpacked(dtype: int, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape or an offset that torch tells, in elements."""
    if dtype not in PACKED:
        return tuple(shape)
    return (*shape[:-1], shape[-1] * PACKED[dtype])


def borrow(value: Any, what: str = "array", writable: bool = False) -> Buffer:
    """The memory of an array or tensor. TypeError for what has none that we can use, ValueError
    where it is not dense, on a device, or read-only although `writable` is asked for."""
    try:
        view = memoryview(value)
    except (TypeError, ValueError, BufferError):
        buffer = _from_others(value, what)
    else:
        buffer = _from_view(view, what)
    if writable and buffer.read_only:
        raise ValueError(f"{what} is read-only")
    return buffer


def through_copy(
    value: Any, what: str, writable: bool = False
) -> tuple[Buffer, Callable[[], None] | None]:
    """As `borrow`; what is not dense, or on a device, goes through a dense copy in host memory, and
    `writable` gives what to call when that is filled."""
    if hasattr(value, "data_ptr") and hasattr(value, "new_empty"):
        return _tensor_through_copy(value, what, writable)
    flags = getattr(value, "flags", None)
    if flags is not None and hasattr(value, "__array_interface__") and not flags.c_contiguous:
        copy = value.copy(order="C")
        back = functools.partial(value.__setitem__, ..., copy)
        if writable and not flags.writeable:
            raise ValueError(f"{what} is read-only")
        return borrow(copy, what), back if writable else None
    return borrow(value, what, writable), None


def _tensor_through_copy(
    value: Any, what: str, writable: bool
) -> tuple[Buffer, Callable[[], None] | None]:
    """The same for a torch tensor."""
    lazy = value.is_conj() or value.is_neg()
    on_host = value.device.type == "cpu"
    if value.device.type == "meta" or (on_host and value.is_contiguous() and not lazy):
        return borrow(value, what, writable), None
    if str(value.layout) != "torch.strided":
        raise ValueError(f"{what} is {value.layout}, not dense")
    plain = value.detach()
    if not writable:
        plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
        return borrow(plain, what), None
    copy = plain.new_empty(plain.shape, device="cpu")
    return borrow(copy, what), functools.partial(plain.copy_, copy)


def _from_others(value: Any, what: str) -> Buffer:
    if hasattr(value, "__array_interface__") and hasattr(value, "ctypes"):
        return _from_numpy(value, what)
    if hasattr(value, "data_ptr"):
        return _from_pointer(value, what)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, what)
    raise TypeError(f"{what}: a {type(value).__name__} is no array or tensor")


def _from_view(view: memoryview, what: str) -> Buffer:
    if not view.c_contiguous:
        raise ValueError(f"{what} is not contiguous (row-major)")
    dtype = _FORMATS.get(view.format.lstrip("@="))
    if dtype is None or dtype_bytes(dtype) != view.itemsize:
        raise TypeError(f"{what}: elements of type {view.format!r} are not supported")
    data = ffi.from_buffer(view)
    count = view.nbytes // view.itemsize
    return Buffer(
        ffi.cast("void *", data), dtype, count, tuple(view.shape or ()), view.readonly, data
    )


def _from_numpy(value: Any, what: str) -> Buffer:
    """A numpy array of a type that ml_dtypes adds and memoryview does not know."""
    interface = value.__array_interface__
    dtype = NAMES.get(value.dtype.name)
    if dtype is None or interface["typestr"][0] == ">":
        raise TypeError(f"{what}: elements of type {value.dtype} are not supported")
    if not value.flags.c_contiguous:
        raise ValueError(f"{what} is not contiguous (row-major)")
    address, read_only = interface["data"]
    shape = interface["shape"]
    return Buffer(ffi.cast("void *", address), dtype, math.prod(shape), shape, read_only, value)


def _from_pointer(value: Any, what: str) -> Buffer:
    """A torch tensor, known by its methods."""
    if value.device.type != "cpu":
        raise ValueError(f"{what} is on {value.device}, not in host memory")
    if not value.is_contiguous():
        raise ValueError(f"{what} is not contiguous (row-major)")
    if value.is_conj() or value.is_neg():
        raise ValueError(f"{what} is a lazy view: call .resolve_conj() or .resolve_neg() first")
    dtype = NAMES.get(str(value.dtype).removeprefix("torch."))
    if dtype is None:
        raise TypeError(f"{what}: elements of type {value.dtype} are not supported")
    if dtype in PACKED and value.dim() == 0:
        raise TypeError(
            f"{what}: one element of type {value.dtype} has no shape in {dtype_name(dtype)}"
        )
    address = ffi.cast("void *", value.data_ptr())
    shape = unpacked(dtype, tuple(value.shape))
    return Buffer(address, dtype, math.prod(shape), shape, False, value)


def _from_dlpack(value: Any, what: str) -> Buffer:
    device, _ = value.__dlpack_device__()
    if int(device) not in _DLPACK_HOST:
        raise ValueError(f"{what} is on a device, not in host memory")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # made before DLPack 1.0
        capsule = value.__dlpack__()
    address = ffi.cast("void *", id(capsule))
    managed = lib.dtp_python_capsule(address, b"dltensor_versioned")
    if managed:
        managed = ffi.cast("dlpack_versioned *", managed)
        read_only = bool(managed.flags & _DLPACK_READ_ONLY)
    else:
        managed = ffi.cast("dlpack_managed *", lib.dtp_python_capsule(address, b"dltensor"))
        read_only = True  # it cannot say; better no writing than writing into a shared constant
    if not managed:
        raise TypeError(f"{what}: __dlpack__ gave no tensor")
    tensor = managed.tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    code, bits = tensor.dtype.code, tensor.dtype.bits
    dtype = _DLPACK.get((code, bits)) if tensor.dtype.lanes == 1 else None
    if dtype is None:
        raise TypeError(f"{what}: DLPack type {code} with {bits} bits is not supported")
    if not _is_dense(tensor, shape):
        raise ValueError(f"{what} is not contiguous (row-major)")
    # The capsule, never renamed, gives the tensor back when it is freed.
    data = ffi.cast("char *", tensor.data) + tensor.byte_offset
    return Buffer(ffi.cast("void *", data), dtype, math.prod(shape), shape, read_only, capsule)


def _is_dense(tensor: Any, shape: tuple[int, ...]) -> bool:
    if tensor.strides == ffi.NULL or 0 in shape:
        return True
    expected = 1
    for extent, i in zip(reversed(shape), reversed(range(len(shape))), strict=True):
        if extent != 1 and tensor.strides[i] != expected:
            return False
        expected *= extent
    return True
