# SPDX-License-Identifier: Apache-2.0
"""Sharded checkpoints: save with N ranks, load with M; any rank asks for any box of any tensor.

A state is a dict, nested as you like, of arrays (numpy, torch, anything with a buffer) and of
numbers, texts and None, which go into the manifest as JSON. Where a rank has only a part of a
tensor, the value is a Shard, a list of them, or a DTensor. Dense arrays in host memory are not
copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dtp import _state
from dtp._buffer import NAMES, NUMPY_NAMES, PACKED, borrow, dtype_name
from dtp._check import NotFoundError, RangeError, check, new_error
from dtp._context import Context, Handle, keep, open_handle
from dtp._ffi import Options, callback, encode, ffi, lib, text
from dtp._request import Request
from dtp._saving import Dir, Save, SaveOptions, State, async_save, save, step_of
from dtp._state import Shard
from dtp._steps import Told, gc, latest, latest_of, latest_valid, pin
from dtp.group import Group

__all__ = [
    "Box",
    "Ckpt",
    "Save",
    "SaveOptions",
    "Shard",
    "TensorInfo",
    "async_save",
    "gc",
    "latest",
    "latest_valid",
    "load",
    "open",
    "open_path",
    "pin",
    "save",
]


class Box(NamedTuple):
    """A part of a stored tensor to load: `extent` elements from `offset` in each dimension."""

    offset: Sequence[int]
    extent: Sequence[int]


class TensorInfo(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]


class Ckpt(Handle):
    """A step opened for reading."""

    def __enter__(self) -> Ckpt:
        return self

    def _info(self) -> Any:
        out, err = Options("dtp_ckpt_info"), new_error()
        check(lib.dtp_ckpt_get_info(self.ptr, out.ptr, err), err)
        return out.ptr

    @property
    def step(self) -> int:
        return int(self._info().step)

    @property
    def world_size(self) -> int:
        """Ranks that saved it."""
        return int(self._info().world_size)

    @property
    def bytes(self) -> int:
        """Of tensor data, before the codec."""
        return int(self._info().bytes)

    @property
    def stored_bytes(self) -> int:
        return int(self._info().stored_bytes)

    @property
    def format(self) -> str:
        """ "dtp-ckpt", or what others wrote: "safetensors", "huggingface"."""
        return text(self._info().format) or ""

    @property
    def has_checksums(self) -> bool:
        """Whether what is read is verified."""
        return bool(self._info().has_checksums)

    @property
    def meta(self) -> Any:
        """What was given as `meta`."""
        meta = self._all_meta()
        if isinstance(meta, dict):
            meta.pop(_state.KEY, None)
        return meta

    def _all_meta(self) -> Any:
        return json.loads(text(self._info().meta_json) or "{}")

    def _tree(self) -> Any:
        meta = self._all_meta()
        return meta.get(_state.KEY) if isinstance(meta, dict) else None

    def __len__(self) -> int:
        return int(self._info().n_tensors)

    def __iter__(self) -> Iterator[TensorInfo]:
        return (self._at(i)[1] for i in range(len(self)))

    def __contains__(self, name: str) -> bool:
        try:
            self._find(name)
        except NotFoundError:
            return False
        return True

    def __getitem__(self, name: str) -> TensorInfo:
        return self._find(name)[1]

    def _find(self, name: str) -> tuple[int, TensorInfo]:
        out, err = ffi.new("uint32_t *"), new_error()
        check(lib.dtp_ckpt_find(self.ptr, encode(name, "a tensor's name"), out, err), err)
        return self._at(out[0])

    def _at(self, i: int) -> tuple[int, TensorInfo]:
        out, err = Options("dtp_ckpt_tensor"), new_error()
        check(lib.dtp_ckpt_get_tensor(self.ptr, i, out.ptr, err), err)
        t = out.ptr
        shape = tuple(t.shape[d] for d in range(t.n_dims))
        return t.dtype, TensorInfo(text(t.name) or "", dtype_name(t.dtype), shape)

    def read_into(self, state: State) -> None:
        """Fills arrays and tensors of the caller, whole ones or parts, where they lie; numbers and
        texts are replaced in their dicts and lists."""
        request, fresh, wanted = Request(), {}, []
        if not isinstance(state, Mapping):
            raise TypeError(f"into: a {type(state).__name__} is no dict of tensors and values")
        for name, value in _state.leaves(state):
            if _state.is_scalar(value):
                wanted.append(name)
            elif isinstance(value, bytes) or _is_numpy_scalar(value):
                fresh[name] = (value, self._new(request, name, None, "numpy"))
            else:
                request.add_value(name, value, writable=True)
        values = self._scalars(wanted)
        self._read(request)
        for name, (old, array) in fresh.items():
            values[name] = array.tobytes() if isinstance(old, bytes) else array[()]
        _state.replace(state, values)

    def _scalars(self, names: Sequence[str]) -> dict[str, Any]:
        if not names:
            return {}
        stored = _state.scalars(self._tree())
        for name in names:
            if name not in stored:
                raise NotFoundError(f"value {name} is not in step {self.step}", noun="ckpt")
        return {name: stored[name] for name in names}

    def read(
        self, boxes: Mapping[str, Box | None] | None = None, framework: str = "numpy"
    ) -> dict[str, Any]:
        """Reads into new arrays ("numpy" or "torch"): the boxes given (None: the whole tensor) by
        name, or everything, nested as it was saved."""
        if framework not in ("numpy", "torch"):
            raise ValueError(f"framework {framework!r} is neither numpy nor torch")
        wanted = dict.fromkeys(t.name for t in self) if boxes is None else boxes
        request, arrays = Request(), {}
        for name, box in wanted.items():
            arrays[name] = self._new(request, name, None if box is None else Box(*box), framework)
        self._read(request)
        return arrays if boxes is not None else _state.unflatten(self._tree(), arrays)

    def _new(self, request: Request, name: str, box: Box | None, framework: str) -> Any:
        """A new array that the request fills."""
        dtype, info = self._find(name)
        if box is not None and not _lies_within(box, info.shape):
            raise RangeError(
                f"tensor {name}: box {list(box.offset)} + {list(box.extent)} lies outside its shape "
                f"{list(info.shape)}",
                noun="ckpt",
            )
        shape = info.shape if box is None else box.extent
        array = _NEW[framework](dtype, info, tuple(shape))
        request.add(name, borrow(array), info.shape, None if box is None else box.offset)
        return array

    def _read(self, request: Request) -> None:
        array, n = request.array()
        err = new_error()
        self._ctx.check(lib.dtp_ckpt_read(self.ptr, array, n, err), err)
        request.done()

    def share(self, group: Group) -> None:
        """From now on reads together with the other ranks of this node that have opened the step: a
        chunk of which several want parts is read once. Collective over the group."""
        if not isinstance(group, Group):
            raise TypeError(f"group: a {type(group).__name__} is no dtp.Group")
        err = new_error()
        self._ctx.check(lib.dtp_ckpt_share(self.ptr, group.ptr, err), err)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Reads and checks every byte; `progress(done, total)` is told on the way."""
        err = new_error()
        told, fn, user = _told(progress)
        status = lib.dtp_ckpt_verify(self.ptr, fn, user, err)
        told.check()
        self._ctx.check(status, err)

    def export(
        self,
        dir: Dir,
        max_shard_bytes: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Writes all tensors to `dir` as a Hugging Face model: safetensors of at most so many bytes
        (0: 5 GB), and their index where there are several."""
        opts, err = Options("dtp_ckpt_export_opts"), new_error()
        told, opts.ptr.progress, opts.ptr.user = _told(progress)
        opts.ptr.max_shard_bytes = max_shard_bytes
        status = lib.dtp_ckpt_export(self.ptr, encode(dir, "dir"), opts.ptr, err)
        told.check()
        self._ctx.check(status, err)


def _told(progress: Callable[[int, int], None] | None) -> tuple[Told, Any, Any]:
    told = Told(progress or (lambda done, total: None))
    return told, ffi.NULL if progress is None else lib.dtp_python_progress, told.handle


@callback("dtp_python_progress", keep)
def _progress(user: Any, done: int, total: int) -> None:
    ffi.from_handle(user)(done, total)


def _lies_within(box: Box, shape: tuple[int, ...]) -> bool:
    if not len(box.offset) == len(box.extent) == len(shape):
        return False
    return all(
        0 <= offset and 0 <= extent and offset + extent <= size
        for offset, extent, size in zip(box.offset, box.extent, shape, strict=True)
    )


def _is_numpy_scalar(value: Any) -> bool:
    return (
        hasattr(value, "__array_interface__")
        and hasattr(value, "item")
        and not hasattr(value, "ctypes")
    )


def _new_numpy(dtype: int, info: TensorInfo, shape: tuple[int, ...]) -> Any:
    import numpy

    name = NUMPY_NAMES.get(dtype)
    if name is None:
        raise TypeError(
            f"tensor {info.name}: numpy has no {info.dtype}; "
            "give a tensor as `into`, or framework='torch'"
        )
    return numpy.empty(shape, name)


def _new_torch(dtype: int, info: TensorInfo, shape: tuple[int, ...]) -> Any:
    import torch

    found = next((getattr(torch, n, None) for n, code in NAMES.items() if code == dtype), None)
    if found is None:
        raise TypeError(f"tensor {info.name}: torch has no {info.dtype}")
    if dtype in PACKED:
        if not shape or shape[-1] % PACKED[dtype]:
            raise ValueError(
                f"tensor {info.name}: torch has {info.dtype} in pairs, not {list(shape)}"
            )
        shape = (*shape[:-1], shape[-1] // PACKED[dtype])
    return torch.empty(shape, dtype=found)


_NEW = {"numpy": _new_numpy, "torch": _new_torch}


def open(dir: Dir, step: int | None = None, ctx: Context | None = None) -> Ckpt:
    """Opens a step (None: the newest complete one) for reading."""

    def make(context: Context) -> Ckpt:
        path, out, err = encode(dir, "dir"), ffi.new("dtp_ckpt **"), new_error()
        wanted = latest_of(context, path) if step is None else step_of(step)
        return _opened(context, lib.dtp_ckpt_open(context.ptr, path, wanted, out, err), out, err)

    return open_handle(ctx, make)


def open_path(path: Dir, ctx: Context | None = None) -> Ckpt:
    """Opens what lies at `path`: the folder of a step, a safetensors file, or what others wrote (a
    Hugging Face model, a folder of torch.distributed.checkpoint, a file of torch.save;
    `Ckpt.format` says which). Pickles are read as data, nothing in them is executed."""

    def make(context: Context) -> Ckpt:
        out, err = ffi.new("dtp_ckpt **"), new_error()
        status = lib.dtp_ckpt_open_path(context.ptr, encode(path, "path"), out, err)
        return _opened(context, status, out, err)

    return open_handle(ctx, make)


def _opened(context: Context, status: int, out: Any, err: Any) -> Ckpt:
    ptr = context.opened(status, err, out, lib.dtp_ckpt_close)
    return Ckpt(ptr, context, lib.dtp_ckpt_close)


def load(
    dir: Dir,
    step: int | None = None,
    *,
    into: State | None = None,
    boxes: Mapping[str, Box | None] | None = None,
    framework: str = "numpy",
    group: Group | None = None,
    ctx: Context | None = None,
) -> dict[Any, Any]:
    """Loads a step (None: the newest complete one). With `into` it fills those arrays and tensors,
    replaces numbers and texts, and returns all; else new arrays of the `boxes`, or of everything,
    as `framework` ("numpy" or "torch") has them. With `group`, all of whose ranks must call it with
    the same step, ranks of a node read together what several of them want parts of."""
    if into is not None and boxes is not None:
        raise ValueError("either `into` or `boxes`: a Shard in `into` says where it lies")
    with open(dir, step, ctx if group is None else group.ctx) as ckpt:
        if group is not None:
            ckpt.share(group)
        if into is None:
            return ckpt.read(boxes, framework)
        ckpt.read_into(into)
        return dict(into)
