# SPDX-License-Identifier: Apache-2.0
"""libdtp's checkpoints behind torch.distributed.checkpoint: its planners say which rank has which
box, libdtp writes and reads them. Nothing is pickled: what is no tensor is kept as JSON, each value
a tensor of bytes called NAME#json, and where names came from in nested states is in the metadata.
"""

from __future__ import annotations

import base64
import io
import json
import os
from typing import Any, TypeVar, Unpack

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader as TorchReader
from torch.distributed.checkpoint.storage import StorageWriter as TorchWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from dtp import ckpt
from dtp._buffer import NAMES, PACKED, dtype_name
from dtp._check import InvalidError, NotFoundError
from dtp._saving import Dir
from dtp.ckpt import SaveOptions, Shard
from dtp.group import Group

T = TypeVar("T")

KEY = "dtp.torch"  # among the metadata
_JSON = "#json"  # ends the names of values that are no tensors
_BYTES = "$bytes"  # of an object that stands for bytes
_TYPES: dict[str, torch.dtype] = {  # by our names
    dtype_name(code): getattr(torch, name) for name, code in NAMES.items() if hasattr(torch, name)
}


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def _to_json(fqn: str, value: Any) -> bytes:
    def check(v: Any) -> Any:
        if isinstance(v, (bytes, bytearray)):
            return {_BYTES: base64.b64encode(v).decode()}
        if isinstance(v, tuple):
            return {"$tuple": [check(e) for e in v]}
        if isinstance(v, list):
            return [check(e) for e in v]
        if isinstance(v, dict) and all(isinstance(k, str) and k[:1] != "$" for k in v):
            return {k: check(e) for k, e in v.items()}
        if v is None or isinstance(v, (bool, int, float, str)):
            return v
        raise TypeError(
            f"{fqn}: a {type(v).__name__} is no tensor, number, text, bytes, list or dict of them; "
            "libdtp pickles nothing"
        )

    return json.dumps(check(value)).encode()


def _from_json(data: bytes) -> Any:
    def back(v: dict[str, Any]) -> Any:
        if v.keys() == {_BYTES}:
            return base64.b64decode(v[_BYTES])
        return tuple(v["$tuple"]) if v.keys() == {"$tuple"} else v

    return json.loads(data, object_hook=back)


class StorageWriter(TorchWriter):
    """For torch.distributed.checkpoint.save(state, storage_writer=dtp.torch.StorageWriter(...)).

    `path` is a folder of steps. `step` None is the one after the newest there; `self.step` says
    which it was. The ranks of `group` are those of torch's process group, in the same order; one
    process needs none. The options are those of dtp.ckpt.save."""

    def __init__(
        self,
        path: Dir,
        step: int | None = None,
        *,
        group: Group | None = None,
        **options: Unpack[SaveOptions],
    ) -> None:
        super().__init__()
        self._path, self._wanted, self._group = path, step, group
        self._options = options
        self._paths: dict[str, tuple[Any, ...]] = {}
        self.step = step

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._path = checkpoint_id

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        _check_ranks(self._group, "StorageWriter")
        if self._group is not None and is_coordinator != (self._group.rank == 0):
            raise ValueError("StorageWriter: rank 0 of the group must be torch's coordinator")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        for plan in plans:
            self._paths.update(plan.planner_data or {})
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        self._paths.update(plan.planner_data or {})
        state: dict[str, list[Shard]] = {}
        failure: Exception | None = None
        try:
            for item in plan.items:
                name, value = _to_write(item, planner)
                state.setdefault(name, []).append(value)
            free = self._free_step()
        except Exception as e:
            failure, free = e, -1
        self.step = self._agree(free, failure)
        own = {"paths": {k: list(v) for k, v in self._paths.items()}}
        options = self._options.copy()
        options["meta"] = {**(options.get("meta") or {}), KEY: own}
        ckpt.save(self._path, self.step, state, self._group, **options)
        return _done([_result(item) for item in plan.items])

    def _free_step(self) -> int:
        if self._wanted is not None:
            return self._wanted
        if self._group is not None and self._group.rank != 0:
            return 0
        newest = ckpt.latest(self._path)
        return 0 if newest is None else newest + 1

    def _agree(self, free: int, failure: Exception | None) -> int:
        """Rank 0's step. A rank that cannot save says so before others wait for its part."""
        steps = [free]
        if self._group is not None:
            steps = [int(s) for s in self._group.allgather(str(free).encode())]
        if failure is not None:
            raise failure
        if -1 in steps:
            rank = steps.index(-1)
            raise InvalidError(f"rank {rank} has a state that cannot be saved", rank, "ckpt")
        return steps[0]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """The step was complete when the last rank was done."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=os.fspath(self._path))


def _check_ranks(group: Group | None, who: str) -> None:
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return
    ours = (0, 1) if group is None else (group.rank, group.size)
    theirs = dist.get_rank(), dist.get_world_size()
    if ours != theirs:
        raise ValueError(
            f"{who}: torch's rank {theirs[0]} of {theirs[1]} is "
            f"rank {ours[0]} of {ours[1]} of `group`"
        )


def _to_write(item: WriteItem, planner: SavePlanner) -> tuple[str, Shard]:
    fqn = item.index.fqn
    if item.type != WriteItemType.BYTE_IO:
        data = item.tensor_data
        assert data is not None
        tensor: Any = planner.resolve_data(item)
        return fqn, Shard(tensor.detach(), tuple(data.size), tuple(data.chunk.offsets))
    look_up = getattr(planner, "lookup_object", None)
    if look_up is None:
        raise TypeError(f"{fqn}: a {type(planner).__name__} gives no value that is not pickled")
    text = torch.frombuffer(bytearray(_to_json(fqn, look_up(item.index))), dtype=torch.uint8)
    return fqn + _JSON, Shard(text, tuple(text.shape), (0,))


def _result(item: WriteItem) -> WriteResult:
    return WriteResult(item.index, item.tensor_storage_size() or 0, None)


class StorageReader(TorchReader):
    """For torch.distributed.checkpoint.load(state, storage_reader=dtp.torch.StorageReader(...)).

    Reads what StorageWriter, dtp.ckpt.save or the C library wrote, with any number of ranks; each
    rank reads its own boxes. `step` None is the newest complete one. After a load `self.meta` has
    what the writer was given as `meta`."""

    def __init__(self, path: Dir, step: int | None = None) -> None:
        super().__init__()
        self._path, self._wanted = path, step
        self._ckpt: ckpt.Ckpt | None = None
        self.step, self.meta = step, None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self._close()
        if checkpoint_id is not None:
            self._path = checkpoint_id

    def _close(self) -> None:
        if self._ckpt is not None:
            self._ckpt.close()
            self._ckpt = None

    def _open(self) -> ckpt.Ckpt:
        if self._ckpt is None:
            self._ckpt = ckpt.open(self._path, self._wanted)
            self.step = self._ckpt.step
        return self._ckpt

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        opened = self._open()
        meta = opened.meta
        own = meta.pop(KEY, {}) if isinstance(meta, dict) else {}
        self.meta = meta
        entries: dict[str, Any] = {}
        for info in opened:
            if info.name.endswith(_JSON):
                entries[info.name.removesuffix(_JSON)] = BytesStorageMetadata()
            else:
                entries[info.name] = _metadata_of(info)
        paths = own.get("paths", {})
        return Metadata(
            state_dict_metadata=entries,
            planner_data={name: tuple(paths.get(name, [name])) for name in entries},
        )

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        opened, after = self._open(), []
        state: dict[str, list[Shard]] = {}
        shapes = {info.name: info for info in opened}
        for item in plan.items:
            fqn = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                continue
            info = shapes.get(fqn)
            if info is None:
                raise NotFoundError(f"tensor {fqn} is not in step {self.step}", noun="ckpt")
            target = planner.resolve_tensor(item).detach()
            stored = _torch_type(info)
            into = target if target.dtype == stored else torch.empty(target.shape, dtype=stored)
            # read_metadata tells of one box, the whole tensor: offsets in it are offsets in all.
            state.setdefault(fqn, []).append(
                Shard(into, _size_of(info), tuple(item.storage_offsets))
            )
            after.append((item, target, into))
        opened.read_into(state)
        for item, target, into in after:
            if into is not target:
                target.copy_(into)
            planner.commit_tensor(item, target)
        self._read_values(plan, planner)
        self._close()
        return _done(None)

    def _read_values(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        items = [i for i in plan.items if i.type == LoadItemType.BYTE_IO]
        names = dict.fromkeys(i.storage_index.fqn + _JSON for i in items)
        texts = self._open().read(names) if names else {}
        for item in items:
            # The planner unpickles what it gets: what is pickled here, from a value of JSON.
            pickled = io.BytesIO()
            torch.save(_from_json(texts[item.storage_index.fqn + _JSON].tobytes()), pickled)
            pickled.seek(0)
            planner.load_bytes(item, pickled)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return True


def _torch_type(info: ckpt.TensorInfo) -> torch.dtype:
    found = _TYPES.get(info.dtype)
    if found is None:
        raise TypeError(f"tensor {info.name}: torch has no {info.dtype}")
    return found


def _size_of(info: ckpt.TensorInfo) -> torch.Size:
    """Its shape as torch counts elements."""
    each = next((n for code, n in PACKED.items() if dtype_name(code) == info.dtype), 1)
    if each == 1:
        return torch.Size(info.shape)
    if not info.shape or info.shape[-1] % each:
        raise TypeError(f"tensor {info.name}: torch has no {info.dtype} of shape {info.shape}")
    return torch.Size((*info.shape[:-1], info.shape[-1] // each))


def _metadata_of(info: ckpt.TensorInfo) -> TensorStorageMetadata:
    size = _size_of(info)
    chunk = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
    return TensorStorageMetadata(TensorProperties(dtype=_torch_type(info)), size, [chunk])
