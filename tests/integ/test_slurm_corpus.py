# SPDX-License-Identifier: Apache-2.0
"""The environments of a Slurm step's tasks, as another cluster recorded them (../shared/corpus beside the
source tree): 4 tasks on 2 nodes meet, and one task by itself names the host that it cannot find.

  test_slurm_corpus.py RANK_ENV MODULE_DIR"""
import os
import random
import re
import socket
import subprocess
import sys

RANK, MODULES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
CORPUS = os.path.join(os.environ.get("DTP_TEST_SOURCE", "."), "..", "shared", "corpus", "slurm_env_22.05")
N = 4


def recorded(task):
    with open(os.path.join(CORPUS, f"env.{task}"), encoding="utf-8") as f:
        pairs = (line.rstrip("\n").split("=", 1) for line in f if line.startswith("SLURM_"))
        return {**dict(pairs), "PATH": os.environ["PATH"], "DTP_MUNGE": "0"}


def start(task, **more):
    return subprocess.Popen([RANK, MODULES], env={**recorded(task), **more}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def free_port():
    """Nine ports in a row, below those that connections are given."""
    while True:
        first = random.randrange(11000, 31000)
        try:
            for port in range(first, first + 9):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return str(first)
        except OSError:
            continue


def test_tasks_of_two_nodes_meet():
    more = {"DTP_SECRET": os.urandom(32).hex(), "DTP_TIMEOUT_MS": "20000", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": free_port()}
    ranks = [start(task, **more) for task in range(N)]
    ends = [p.communicate(timeout=60) for p in ranks]
    assert all(p.returncode == 0 for p in ranks), ends
    for task, (out, _) in enumerate(ends):
        want = f"rank {task} of 4, node {task // 2} of 2, local {task % 2} of 2: met 4"
        assert want in out.splitlines(), (want, out)


def test_a_host_that_is_not_here_is_named():
    out, err = start(2, DTP_INSECURE="1", DTP_TIMEOUT_MS="1500").communicate(timeout=60)
    assert not out and re.search(r"did not reach the root agent: .*\bt1\b", err), (out, err)


def test_no_secret_is_refused():
    out, err = start(0).communicate(timeout=60)
    assert not out and "has no job secret: set DTP_SECRET" in err, (out, err)


if not os.path.isdir(CORPUS):
    print("skipped: ../shared/corpus is not there")
    sys.exit(77)
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print("ok:", name)
