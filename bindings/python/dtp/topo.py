# SPDX-License-Identifier: Apache-2.0
"""One machine: packages, NUMA nodes, cores, GPUs, NICs, NVMe. Unknown is None, never 0 or "all"."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dtp._check import check, new_error
from dtp._context import Context, Handle, open_handle
from dtp._ffi import Options, ffi, lib, take_text, text


class Type(enum.IntEnum):
    MACHINE = lib.DTP_TOPO_MACHINE
    PACKAGE = lib.DTP_TOPO_PACKAGE
    NUMA = lib.DTP_TOPO_NUMA
    CACHE = lib.DTP_TOPO_CACHE
    CORE = lib.DTP_TOPO_CORE
    PU = lib.DTP_TOPO_PU
    BRIDGE = lib.DTP_TOPO_BRIDGE
    PCI = lib.DTP_TOPO_PCI
    GPU = lib.DTP_TOPO_GPU
    NIC = lib.DTP_TOPO_NIC
    NVME = lib.DTP_TOPO_NVME


class Path(enum.IntEnum):
    """How two devices reach each other; a larger number is farther."""

    UNKNOWN = lib.DTP_PATH_UNKNOWN
    SELF = lib.DTP_PATH_SELF
    NVLINK = lib.DTP_PATH_NVLINK
    PIX = lib.DTP_PATH_PIX
    PXB = lib.DTP_PATH_PXB
    PHB = lib.DTP_PATH_PHB
    NODE = lib.DTP_PATH_NODE
    SYS = lib.DTP_PATH_SYS


class Cpus(NamedTuple):
    """Processors as lists such as "0-3,8": all there are, those allowed by the cgroup, those that
    the loading thread was bound to."""

    machine: str | None
    allowed: str | None
    bound: str | None


@dataclass(frozen=True, slots=True)
class Object:
    """One object; the fields are those of dtp_topo_obj (include/dtp/topo.h)."""

    index: int
    parent: int | None
    type: Type
    os_index: int | None
    name: str | None
    pci: str | None
    model: str | None
    numa: int | None
    mem_bytes: int | None
    cache_bytes: int | None
    link_mbps: int | None
    link_max_mbps: int | None
    port_mbps: int | None
    port_state: int | None
    link_layer: str | None
    gid: str | None
    cpus: str | None


def _number(value: int) -> int | None:
    return None if value == lib.DTP_UNKNOWN else value


def _object(o: Any) -> Object:
    return Object(
        o.index,
        None if o.parent < 0 else o.parent,
        Type(o.type),
        _number(o.os_index),
        text(o.name),
        text(o.pci),
        text(o.model),
        _number(o.numa),
        _number(o.mem_bytes),
        _number(o.cache_bytes),
        _number(o.link_mbps),
        _number(o.link_max_mbps),
        _number(o.port_mbps),
        o.port_state or None,
        text(o.link_layer),
        text(o.gid),
        text(o.cpus),
    )


class Topo(Handle):
    """A loaded topology. It does not change; load again to see a change."""

    def __enter__(self) -> Topo:
        return self

    def __len__(self) -> int:
        return int(lib.dtp_topo_n_objs(self.ptr))

    def __getitem__(self, index: int) -> Object:
        """Object `index`; parents come before their children."""
        if not 0 <= index < len(self):
            raise IndexError(f"object {index} of {len(self)}")
        out, err = Options("dtp_topo_obj"), new_error()
        check(lib.dtp_topo_get(self.ptr, index, out.ptr, err), err)
        return _object(out.ptr)

    def __iter__(self) -> Iterator[Object]:
        return (self[i] for i in range(len(self)))

    def of_type(self, kind: Type | str) -> list[Object]:
        """The objects of a type, such as "gpu", by PCI address or OS index."""
        number = Type[kind.upper()] if isinstance(kind, str) else Type(kind)
        found = []
        for n in range(lib.dtp_topo_count(self.ptr, number)):
            out, err = Options("dtp_topo_obj"), new_error()
            check(lib.dtp_topo_nth(self.ptr, number, n, out.ptr, err), err)
            found.append(_object(out.ptr))
        return found

    def path(self, a: Object | int, b: Object | int) -> tuple[Path, int]:
        """How two devices reach each other, and over how many NVLinks."""
        out, n_links, err = ffi.new("dtp_topo_path *"), ffi.new("uint32_t *"), new_error()
        i, j = (x.index if isinstance(x, Object) else x for x in (a, b))
        check(lib.dtp_topo_path_between(self.ptr, i, j, out, n_links, err), err)
        return Path(out[0]), n_links[0]

    @property
    def cpus(self) -> Cpus:
        return Cpus(
            *(
                text(lib.dtp_topo_cpus(self.ptr, view))
                for view in (lib.DTP_CPUS_MACHINE, lib.DTP_CPUS_ALLOWED, lib.DTP_CPUS_BOUND)
            )
        )

    def _render(self, form: int) -> str:
        out, err = ffi.new("char **"), new_error()
        check(lib.dtp_topo_render(self.ptr, form, out, err), err)
        return take_text(out[0])

    def text(self) -> str:
        """A tree for people."""
        return self._render(lib.DTP_TOPO_TEXT)

    def json(self) -> str:
        """A JSON document."""
        return self._render(lib.DTP_TOPO_JSON)

    def matrix(self) -> str:
        """How the devices reach each other, as `nvidia-smi topo -m` shows it."""
        return self._render(lib.DTP_TOPO_MATRIX)


def load(
    xml: str | os.PathLike[str] | None = None,
    fsroot: str | os.PathLike[str] | None = None,
    devices: bool = True,
    ctx: Context | None = None,
) -> Topo:
    """Discovers this machine, or reads a recorded one: `xml` is an hwloc XML file, `fsroot` a
    folder that holds sys/ and proc/."""
    opts = Options("dtp_topo_opts")
    opts.set_text("hwloc_xml", None if xml is None else os.fspath(xml))
    opts.set_text("fsroot", None if fsroot is None else os.fspath(fsroot))
    opts.ptr.no_devices = not devices

    def make(context: Context) -> Topo:
        out, err = ffi.new("dtp_topo **"), new_error()
        status = lib.dtp_topo_load(context.ptr, opts.ptr, out, err)
        return Topo(
            context.opened(status, err, out, lib.dtp_topo_close), context, lib.dtp_topo_close
        )

    return open_handle(ctx, make)
