# SPDX-License-Identifier: Apache-2.0
"""The Python that docs/python.md and the README show runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import BUILD, PACKAGE_DIR, ROOT, need


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


def run(code: str, folder: Path) -> None:
    (folder / "train.py").write_text("print('a rank')\n")
    python = Path(sys.executable).parent
    env = {
        **os.environ,
        "PYTHONPATH": PACKAGE_DIR,
        "PATH": os.pathsep.join([str(python), str(BUILD / "tools"), os.environ["PATH"]]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, code + done.stdout + done.stderr


def test_the_manual_runs(tmp_path: Path) -> None:
    rank, saving, background, _, _, machine = blocks("docs/python.md")
    run(rank.replace("with dtp.init() as group:", "group = dtp.init()\nif True:") +
        "step = 1\n" + saving + background, tmp_path)  # fmt: skip
    run("import dtp\n" + machine.replace("solve(topo, 2)", "solve(topo, 1)"), tmp_path)


def test_what_the_manual_shows_of_torch_runs(tmp_path: Path) -> None:
    need("torch")
    _, _, _, nested, storage, _ = blocks("docs/python.md")
    head = """
import dtp, dtp.torch, torch
group, step = dtp.init(), 1
model = torch.nn.Linear(3, 2)
optim = torch.optim.Adam(model.parameters())
model(torch.ones(3)).sum().backward()
optim.step()
"""
    run(head + nested + "step = 2\n" + storage, tmp_path)


def test_the_readme_runs(tmp_path: Path) -> None:
    for code in blocks("README.md"):
        run(code.replace("/tmp/", f"{tmp_path}/"), tmp_path)
