# SPDX-License-Identifier: Apache-2.0
"""torch's distributed tensors as boxes, known by their attributes: torch is not imported."""

from __future__ import annotations

import math
from typing import Any

from dtp._state import Shard


def is_dtensor(value: Any) -> bool:
    return all(hasattr(value, a) for a in ("device_mesh", "placements", "to_local"))


def parts(value: Any, what: str) -> list[Shard]:
    """The box that this process has of a DTensor, none where it is no part of the mesh. Replicas
    are equal boxes. ValueError for a placement that is no box."""
    mesh, shape = value.device_mesh, tuple(value.shape)
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return []
    offset, extent = [0] * len(shape), list(shape)
    for dim, mesh_dim in _cuts(value, what):
        each = math.ceil(extent[dim] / mesh.size(mesh_dim))
        begin = min(each * coordinate[mesh_dim], extent[dim])
        extent[dim] = min(each, extent[dim] - begin)
        offset[dim] += begin
    local = value.to_local().detach()
    if tuple(local.shape) != tuple(extent):
        raise ValueError(
            f"{what}: placements {value.placements} say that {extent} of shape {list(shape)} are "
            f"here, the local tensor has {list(local.shape)}"
        )
    return [Shard(local, shape, tuple(offset))]


def _cuts(value: Any, what: str) -> list[tuple[int, int]]:
    """Dimensions of the tensor and of the mesh that cut it, in order. A strided shard (fully_shard
    above a tensor that is cut along the same dimension already) cuts after the others."""
    plain: list[tuple[int, int]] = []
    strided: list[tuple[int, int]] = []
    for mesh_dim, placement in enumerate(value.placements):
        kind = type(placement).__name__
        if kind == "Shard":
            plain.append((placement.dim % value.dim(), mesh_dim))
        elif kind == "_StridedShard":
            strided.append((placement.dim % value.dim(), mesh_dim))
        elif kind != "Replicate":
            raise ValueError(f"{what}: a {kind} placement is no box (redistribute it first)")
    for dim, mesh_dim in strided:
        later = [value.device_mesh.size(m) for d, m in plain if d == dim and m > mesh_dim]
        earlier = [m for d, m in plain if d == dim and m < mesh_dim]
        others = [m for d, m in strided if d == dim and m != mesh_dim]
        factor = value.placements[mesh_dim].split_factor
        if earlier or others or math.prod(later) != factor:
            raise ValueError(f"{what}: placements {value.placements} give no box")
    return plain + strided
