#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that real launchers start find each other: torchrun, Hydra, Open MPI, Slurm. What is not
installed here is said and skipped.

  test_launchers.py RANK_ENV MODULE_DIR [PATTERN]

DTP_TEST_TORCHRUN names a torchrun (default: .venv/bin/torchrun), DTP_TEST_MPI_PREFIXES further folders
with mpiexec or mpirun in bin/ (of wheels, say), separated by ':'."""
import fnmatch
import glob
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import slurm_rig

RANK, MODULES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SECRET = os.urandom(32).hex()
ENV = {k: v for k, v in os.environ.items() if not re.match("DTP_|PMI|OMPI|SLURM|MASTER_|MPI", k)}
ENV.update(DTP_SECRET=SECRET, DTP_TIMEOUT_MS="20000", PYTHONDONTWRITEBYTECODE="1")


class Skip(Exception):
    pass


def check(out, n, nodes, board=None):
    """Every one of n ranks met all, on so many nodes; the root was sought where it should."""
    lines = re.findall(r"^rank (\d+) of (\d+), node (\d+) of (\d+), local \d+ of \d+: met (\d+)$", out, re.M)
    want = sorted((str(r), str(n), str(n)) for r in range(n))
    if sorted((r, size, met) for r, size, _, _, met in lines) != want or \
            any(int(of) != nodes for *_, of, _ in lines):
        raise AssertionError(f"not all of {n} ranks on {nodes} nodes met:\n{out}")
    if len(re.findall(r"^rank \d+ ends$", out, re.M)) != n:
        raise AssertionError(f"not all of {n} ranks ended by themselves:\n{out}")
    if board and f"root: {board}" not in out:
        raise AssertionError(f"the root was not sought {board}:\n{out}")


def run(argv, timeout=60, env=ENV):
    r = subprocess.run(argv, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, timeout=timeout)
    if r.returncode:
        raise AssertionError(f"{argv[0]} ended with {r.returncode}:\n{r.stdout}")
    return r.stdout


def free_port():
    """Below those that the kernel gives to connections, which somebody may take at any time."""
    while True:
        port = random.randrange(10000, 30000)
        with socket.socket() as s:
            try:
                s.bind(("", port))
                return port
            except OSError:
                pass


# ---- two machines of network namespaces ----

class Machines:
    """10.77.0.1 and .2, each a network namespace; `ssh` is a script that runs a command there."""

    def __enter__(self):
        if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nsenter"):
            raise Skip("needs root, ip and nsenter")
        self.dir = tempfile.mkdtemp(prefix="dtp-launch-")
        self.procs = [subprocess.Popen(["unshare", "-n", "-u", "sleep", "600"]) for _ in range(2)]
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self):
        mine = os.readlink("/proc/self/ns/net")
        for p in self.procs:
            while os.readlink(f"/proc/{p.pid}/ns/net") == mine:
                time.sleep(0.005)
        pids = [p.pid for p in self.procs]
        name = f"dl{os.getpid() % 100000}"
        subprocess.check_call(["ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b"])
        for i, end in enumerate("ab"):
            subprocess.check_call(["ip", "link", "set", name + end, "netns", str(pids[i])])
            subprocess.check_call(self.at(i) + ["sh", "-c", f"ip link set {name + end} name eth0 && "
                                                f"ip addr add 10.77.0.{i + 1}/24 dev eth0 && "
                                                f"hostname n{i + 1} && ip link set eth0 up && ip link set lo up"])
        self.ssh = f"{self.dir}/ssh"
        with open(self.ssh, "w") as f:
            f.write("#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\n"
                    f"case $1 in *.1) pid={pids[0]} ;; *) pid={pids[1]} ;; esac\nshift\n"
                    "exec nsenter --net=/proc/$pid/ns/net --uts=/proc/$pid/ns/uts sh -c \"$*\"\n")
        os.chmod(self.ssh, 0o755)

    def at(self, i):
        ns = f"/proc/{self.procs[i].pid}/ns"
        return ["nsenter", f"--net={ns}/net", f"--uts={ns}/uts"]

    def __exit__(self, *exc):
        for p in self.procs:
            p.kill()
            p.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


# ---- torchrun ----

def torchrun():
    path = os.environ.get("DTP_TEST_TORCHRUN") or \
        os.path.join(os.environ.get("DTP_TEST_SOURCE", "."), ".venv/bin/torchrun")
    if not os.path.exists(path):
        raise Skip("no torchrun: ./dev setup --with torch, or DTP_TEST_TORCHRUN")
    for name in glob.glob(f"{os.path.dirname(path)}/../lib/python3*/site-packages/torch-*.dist-info"):
        said(os.path.basename(name)[:-len(".dist-info")].replace("-", " "))
    return path


def wait_all(procs, n, nodes, board):
    out = ""
    end = time.monotonic() + 60
    for p in procs:
        try:
            p.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            p.terminate()           # it ends its ranks
        out += p.communicate()[0]
    check(out, n, nodes, board)


def torchrun_nodes(options, board, env={}):
    argv = [torchrun(), "--nnodes", "2", "--nproc-per-node", "2", "--no-python"] + options
    procs = [subprocess.Popen([a.replace("NODE", str(i)) for a in argv] + [RANK, MODULES],
                              env=dict(ENV, **env), text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for i in range(2)]
    wait_all(procs, 4, 2, board)


def test_torchrun_on_one_node():
    check(run([torchrun(), "--nproc-per-node", "3", "--no-python", RANK]), 3, 1, "here")


def test_torchrun_static():
    torchrun_nodes(["--node-rank", "NODE", "--master-addr", "127.0.0.1", "--master-port", str(free_port())],
                   "on board tcpstore 127.0.0.1")


def test_torchrun_c10d():
    torchrun_nodes(["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
                    "--rdzv-id", "a"], "on board tcpstore")


def test_torchrun_c10d_without_libuv():
    torchrun_nodes(["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
                    "--rdzv-id", "b", "--rdzv-conf", "use_libuv=0"], "on board tcpstore", {"USE_LIBUV": "0"})


def test_torchrun_without_a_shared_store():
    torchrun_nodes(["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
                    "--rdzv-id", "c"], "localhost:", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})


def test_torchrun_starts_again_after_a_death():
    """The second attempt meets at the same store; what the first put there is not taken for its own."""
    script = 'if [ "$TORCHELASTIC_RESTART_COUNT$RANK" = 03 ]; then sleep 1; exit 3; fi; exec "$@"'
    with tempfile.NamedTemporaryFile("w", suffix=".sh", prefix="dtp-again-") as f:
        f.write(script)
        f.flush()
        argv = [torchrun(), "--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "1", "--no-python",
                "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "d",
                "--monitor-interval", "0.1", "sh", f.name, RANK, MODULES]
        procs = [subprocess.Popen(argv, env=ENV, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT) for _ in range(2)]
        wait_all(procs, 4, 2, "on board tcpstore")


# ---- MPI launchers ----

def mpi_programs(wanted):
    """(program, what it says of itself) of each mpiexec or mpirun whose version holds `wanted`."""
    found = {}
    names = ["mpiexec.hydra", "mpirun.openmpi", "mpiexec", "mpirun"]
    folders = [d for d in os.environ.get("DTP_TEST_MPI_PREFIXES", "").split(":") if d]
    for path in [shutil.which(n) for n in names] + [f"{d}/bin/{n}" for d in folders for n in names]:
        if not path or not os.path.exists(path) or os.path.realpath(path) in found:
            continue
        r = subprocess.run([path, "--version"], env=ENV, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
        if wanted in r.stdout:
            found[os.path.realpath(path)] = (path, version_of(r.stdout))
    if not found:
        raise Skip(f"no {wanted} here")
    return list(found.values())


def version_of(text):
    m = re.search(r"[Vv]ersion:?\s+(\S+)|\(Open MPI\) (\S+)|(\d+\.\d+\.\d+)", text)
    return next((g for g in m.groups() if g), "?") if m else "?"


OPEN_MPI = ["--allow-run-as-root", "-x", "DTP_SECRET", "-x", "DTP_TIMEOUT_MS"]


def test_hydra_on_one_node():
    for program, version in mpi_programs("HYDRA"):
        # All end apart: an end without finalize must not look like a crash.
        check(run([program, "-n", "3", RANK, MODULES, "sleep", "200"]), 3, 1, "here")
        said(f"Hydra {version}")


def test_hydra_on_two_nodes():
    for program, version in mpi_programs("HYDRA"):
        with Machines() as m:
            check(run(m.at(0) + [program, "-launcher", "ssh", "-launcher-exec", m.ssh, "-disable-hostname-propagation",
                                 "-hosts", "10.77.0.1,10.77.0.2", "-ppn", "2", "-n", "4",
                                 RANK, MODULES, "sleep", "200"]), 4, 2, "on board pmi1")
        said(f"Hydra {version}")


def test_open_mpi_on_one_node():
    for program, version in mpi_programs("Open MPI"):
        check(run([program] + OPEN_MPI + ["--oversubscribe", "-n", "3", RANK, MODULES, "sleep", "200"]), 3, 1, "here")
        said(f"Open MPI {version}")


def test_open_mpi_on_two_nodes():
    for program, version in mpi_programs("Open MPI"):
        by = ["--mca", "plm_rsh_agent"] if version < "5" else ["--prtemca", "plm_ssh_agent"]
        with Machines() as m:
            out = run(m.at(0) + [program] + OPEN_MPI + by + [m.ssh, "--host", "10.77.0.1:2,10.77.0.2:2", "-n", "4",
                                                                RANK, MODULES, "sleep", "200"])
            check(out, 4, 2, "on board pmix")
        said(f"Open MPI {version}")


# ---- Slurm ----

def slurm(options, nodes, board, n=4, env={}, munge=False):
    if slurm_rig.missing():
        raise Skip(slurm_rig.missing())
    with slurm_rig.Slurm(2) as rig:
        rig.env = {k: v for k, v in rig.env.items() if not k.startswith(("DTP_", "PMI", "OMPI"))}
        secret = {"DTP_MUNGE": f"{rig.dir}/munge.socket"} if munge else {"DTP_SECRET": SECRET}
        r = rig.srun(options + [RANK, MODULES, "sleep", "200"], **dict(
            secret, DTP_TIMEOUT_MS="20000", **env))
        if r.returncode:
            raise AssertionError(f"srun ended with {r.returncode}:\n{r.stdout}")
        check(r.stdout, n, nodes, board)
        said("Slurm " + rig.srun(["--version"]).stdout.split()[-1])


PLAIN = ["-N2", "-n4", "--ntasks-per-node=2"]


def test_slurm_on_one_node():
    slurm(["--mpi=none", "-N1", "-n3"], 1, "here", n=3)


def test_slurm_without_pmi():
    slurm(["--mpi=none"] + PLAIN, 2, "t1:6")


def test_slurm_hands_the_secret_over_by_munge():
    slurm(["--mpi=none"] + PLAIN, 2, "t1:6", munge=True)


def test_slurm_with_pmi2_unused():
    slurm(["--mpi=pmi2"] + PLAIN, 2, "t1:6")


def test_slurm_over_pmi2():
    slurm(["--mpi=pmi2"] + PLAIN, 2, "on board pmi2", env={"DTP_BOARD": "pmi2"})


def test_slurm_over_pmix():
    slurm(["--mpi=pmix"] + PLAIN, 2, "on board pmix")


def test_slurm_with_tasks_laid_out_by_hand():
    with tempfile.NamedTemporaryFile("w", prefix="dtp-hosts-") as f:
        f.write("t2\nt1\nt2\n")
        f.flush()
        slurm(["--mpi=pmi2", "-m", "arbitrary", "-n3"], 2, "on board pmi2", n=3,
              env={"SLURM_HOSTFILE": f.name})


def test_slurm_over_a_folder():
    with tempfile.TemporaryDirectory(prefix="dtp-board-") as d:
        slurm(["--mpi=none"] + PLAIN, 2, "on board file", env={"DTP_BOARD": d})


# ---- all ----

versions = set()


def said(version):
    versions.add(version)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))   # removes what was made
    pattern = sys.argv[3] if len(sys.argv) > 3 else "*"
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, fn in list(globals().items()):
        if not name.startswith("test_") or not fnmatch.fnmatch(name, f"*{pattern}*"):
            continue
        start = time.monotonic()
        try:
            fn()
            what, why = "passed", ""
        except Skip as e:
            what, why = "skipped", f": {e}"
        except Exception as e:
            what, why = "failed", f": {e}"
        counts[what] += 1
        print(f"{what} {name} ({time.monotonic() - start:.1f} s){why}", flush=True)
    print("ran with: " + (", ".join(sorted(versions)) or "nothing"))
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    if counts["failed"]:
        sys.exit(1)
    sys.exit(0 if counts["passed"] else 77)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dtp-launch-", ignore_cleanup_errors=True) as folder:
        ENV["TMPDIR"] = folder      # torchrun and mpirun leave things behind
        main()
