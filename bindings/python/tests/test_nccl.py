# SPDX-License-Identifier: Apache-2.0
"""dtp.nccl over the stand-in for NCCL that the C tests build."""

from __future__ import annotations

from pathlib import Path

import dtp
import pytest
from conftest import BUILD, RunRanks

STAND_IN = BUILD / "tests" / "unit" / "coll" / "nccl"


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    if not (STAND_IN / "libnccl.so.2").exists():
        pytest.skip("the stand-in for NCCL is not built")
    notes = tmp_path / "notes"
    notes.write_bytes(bytes(1 << 20))
    return {"FAKE_NCCL": str(notes), "LD_LIBRARY_PATH": str(STAND_IN)}


def test_ids_and_communicators(run_ranks: RunRanks, stand_in: dict[str, str]) -> None:
    run_ranks(
        3,
        """
        import dtp
        with dtp.init() as group:
            one = dtp.nccl.unique_ids(group)
            assert len(one) == 1 and len(one[0]) == dtp.nccl.ID_BYTES
            many = dtp.nccl.unique_ids(group, ranks_per_id=2)
            assert len(set(many)) == 2
            assert len(set(group.allgather(b"".join(one + many)))) == 1
            with dtp.nccl.init(group) as comm:
                assert comm.pointer != 0
            comm = dtp.nccl.init(group, blocking=True)
            comm.abort()
            try:
                comm.pointer
                raise AssertionError("closed")
            except ValueError:
                pass
        """,
        **stand_in,
    )


def test_wrong_arguments_are_named() -> None:
    with dtp.init() as group, pytest.raises(dtp.InvalidError, match="-1 ranks per NCCL id"):
        dtp.nccl.unique_ids(group, -1)
