# SPDX-License-Identifier: Apache-2.0
"""libdtp for Python: process groups, collectives, sharded checkpoints, topology, jobs.

import dtp
group = dtp.init()              # dtp run, torchrun, Slurm, mpirun; alone without a launcher
group.allreduce(gradients)      # numpy or torch, in place, the same bits on every rank
dtp.ckpt.save("ckpt", step, {"w": w}, group)
"""

from __future__ import annotations

from dtp import ckpt, group, job, nccl, placement, topo
from dtp._check import (
    AbortedError,
    AuthError,
    BusyError,
    CanceledError,
    CorruptError,
    Error,
    ExecError,
    ExistsError,
    ForkedError,
    FormatError,
    InterruptedError,
    InvalidError,
    IOError,
    LimitError,
    NoMemoryError,
    NoSpaceError,
    NotFoundError,
    PeerError,
    PermError,
    ProtocolError,
    RangeError,
    TimeoutError,
    TruncatedError,
    UnsupportedError,
    VersionError,
)
from dtp._context import Context
from dtp._ffi import ffi as _ffi
from dtp._ffi import lib as _lib
from dtp.ckpt import Box, Shard
from dtp.group import RANK_NEW, Group, Work, init, join

__version__: str = _ffi.string(_lib.dtp_version()).decode()

__all__ = [
    "AbortedError",
    "AuthError",
    "Box",
    "BusyError",
    "CanceledError",
    "Context",
    "CorruptError",
    "Error",
    "ExecError",
    "ExistsError",
    "ForkedError",
    "FormatError",
    "Group",
    "IOError",
    "InterruptedError",
    "InvalidError",
    "LimitError",
    "NoMemoryError",
    "NoSpaceError",
    "NotFoundError",
    "PeerError",
    "PermError",
    "ProtocolError",
    "RANK_NEW",
    "RangeError",
    "Shard",
    "TimeoutError",
    "TruncatedError",
    "UnsupportedError",
    "VersionError",
    "Work",
    "__version__",
    "ckpt",
    "group",
    "init",
    "job",
    "join",
    "nccl",
    "placement",
    "topo",
]
