# SPDX-License-Identifier: Apache-2.0
"""The live machine, and errors about recorded ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import dtp
import pytest
from dtp.topo import Path as Reach
from dtp.topo import Topo, Type


@pytest.fixture(scope="module")
def live() -> Iterator[Topo]:
    with dtp.topo.load() as topo:
        yield topo


def test_objects_form_a_tree(live: Topo) -> None:
    objects = list(live)
    assert len(objects) == len(live) > 1
    assert (objects[0].type, objects[0].parent) == (Type.MACHINE, None)
    for i, o in enumerate(objects):
        assert o.index == i and (o.parent is None or o.parent < i)
    assert len(live.of_type("core")) >= 1
    assert {o.type for o in live.of_type(Type.PU)} == {Type.PU}


def test_every_rendering_speaks(live: Topo) -> None:
    assert live.text() and live.matrix()
    assert isinstance(json.loads(live.json()), dict)


def test_views_of_processors(live: Topo) -> None:
    assert live.cpus.machine and live.cpus.allowed and live.cpus.bound


def test_an_object_reaches_itself(live: Topo) -> None:
    for kind in ("gpu", "nic", "nvme"):
        for o in live.of_type(kind):
            assert live.path(o, o)[0] == Reach.SELF


def test_no_such_object_is_a_range_error(live: Topo) -> None:
    with pytest.raises(IndexError):
        live[len(live)]
    with pytest.raises(KeyError):
        live.of_type("toaster")
    with pytest.raises(dtp.RangeError):
        live.path(0, len(live))


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(dtp.NotFoundError, match="none.xml"):
        dtp.topo.load(xml=tmp_path / "none.xml")


def test_a_recording_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.xml").write_text("<topology><object")
    with pytest.raises(dtp.FormatError, match="bad.xml"):
        dtp.topo.load(xml=tmp_path / "bad.xml")


def test_closed_topologies_say_so() -> None:
    topo = dtp.topo.load(devices=False)
    topo.close()
    topo.close()
    with pytest.raises(ValueError, match="the topo is closed"):
        topo.text()


def test_a_context_outlives_its_topologies() -> None:
    with dtp.Context() as ctx:
        topo = dtp.topo.load(devices=False, ctx=ctx)
        with pytest.raises(ValueError, match="1 objects of the context are still open"):
            ctx.close()
        topo.close()


def test_placement_gives_disjoint_processors(live: Topo) -> None:
    n = len(live.of_type("core"))
    places = dtp.placement.solve(live, n)
    assert len(places) == n
    cpus = [p.cpus for p in places]
    assert all(cpus) and len(set(cpus)) == n
    assert not any(p.shares_cores for p in places)


def test_placement_that_does_not_fit_says_why(live: Topo) -> None:
    n = len(live.of_type("core")) + 1
    with pytest.raises(dtp.LimitError):
        dtp.placement.solve(live, n, cores_per_rank=1)
    assert any(p.shares_cores for p in dtp.placement.solve(live, n, oversubscribe=True))
    with pytest.raises(dtp.FormatError, match="0-x"):
        dtp.placement.solve(live, 1, busy_cpus="0-x")
