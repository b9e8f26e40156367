# SPDX-License-Identifier: Apache-2.0
"""Which GPUs, NICs and cores the ranks of a gang get on a machine. Pure: it reads and answers."""

from __future__ import annotations

from typing import NamedTuple

from dtp._check import check, new_error
from dtp._ffi import Options, ffi, lib, text
from dtp.topo import Topo


class Place(NamedTuple):
    """What one local rank gets. Lists are text: cpus "0-3", gpus "0,1", nics "mlx5_0"."""

    cpus: str
    gpus: str
    nics: str
    numa: int | None
    shares_cores: bool


def solve(
    topo: Topo,
    n_ranks: int,
    *,
    gpus_per_rank: int = 0,
    cores_per_rank: int = 0,
    busy_cpus: str | None = None,
    busy_gpus: str | None = None,
    oversubscribe: bool = False,
) -> list[Place]:
    """Places `n_ranks` ranks, all or none; the options are those of dtp_placement_req."""
    request = Options("dtp_placement_req")
    request.ptr.n_ranks = n_ranks
    request.ptr.gpus_per_rank = gpus_per_rank
    request.ptr.cores_per_rank = cores_per_rank
    request.ptr.oversubscribe = oversubscribe
    request.set_text("busy_cpus", busy_cpus)
    request.set_text("busy_gpus", busy_gpus)
    out, err = ffi.new("dtp_placement **"), new_error()
    check(lib.dtp_placement_solve(topo.ptr, request.ptr, out, err), err)
    try:
        return [_get(out[0], i) for i in range(n_ranks)]
    finally:
        lib.dtp_placement_free(out[0])


def _get(placement: object, i: int) -> Place:
    out, err = Options("dtp_placement_rank"), new_error()
    check(lib.dtp_placement_get(placement, i, out.ptr, err), err)
    rank = out.ptr
    return Place(
        text(rank.cpus) or "",
        text(rank.gpus) or "",
        text(rank.nics) or "",
        None if rank.numa == lib.DTP_UNKNOWN else rank.numa,
        bool(rank.shares_cores),
    )
