#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Slurm of its own on one machine: munged, slurmctld and N slurmd in a folder and a network
namespace that go away with it. `with Slurm(nodes=2) as s: s.srun(["--mpi=none", "-n4", ...])`.

Needs root and Debian's slurmctld, slurmd, slurm-client and munge."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOOLS = ("munged", "slurmctld", "slurmd", "srun", "unshare", "ip")

CONF = """\
ClusterName=rig
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=26817
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool.%n
TmpFS={dir}/tmp.%n
SlurmctldPidFile={dir}/ctld.pid
SlurmdPidFile={dir}/d.%n.pid
SlurmctldLogFile={dir}/ctld.log
SlurmdLogFile={dir}/d.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=2
NodeName=t[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[27101-{last}] CPUs=32 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """What this machine lacks, or an empty text."""
    if os.geteuid() != 0:
        return "not root"
    lacks = [t for t in TOOLS if not shutil.which(t)]
    return "no " + ", ".join(lacks) if lacks else ""


class Slurm:
    def __init__(self, nodes=2):
        self.nodes = nodes
        self.host = os.uname().nodename
        self.procs = []

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="dtp-slurm-")
        os.chmod(self.dir, 0o755)
        try:
            self._prepare()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _prepare(self):
        os.mkdir(f"{self.dir}/state")
        for i in range(self.nodes):
            os.mkdir(f"{self.dir}/spool.t{i + 1}")
            os.mkdir(f"{self.dir}/tmp.t{i + 1}")
        with open(f"{self.dir}/munge.key", "wb") as f:
            f.write(os.urandom(128))
        os.chmod(f"{self.dir}/munge.key", 0o600)
        with open(f"{self.dir}/slurm.conf", "w") as f:
            f.write(CONF.format(dir=self.dir, host=self.host, nodes=self.nodes,
                                last=27100 + self.nodes))
        with open(f"{self.dir}/hosts", "w") as f:
            names = " ".join(f"t{i + 1}" for i in range(self.nodes))
            f.write(f"127.0.0.1 localhost {self.host} {names}\n")
        self.env = dict(os.environ, SLURM_CONF=f"{self.dir}/slurm.conf")

    def _spawn(self, argv, name):
        log = open(f"{self.dir}/{name}.out", "wb")
        p = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        self.procs.append(p)
        return p

    def enter(self, argv):
        """`argv` as a process inside the rig's namespaces."""
        return ["nsenter", f"--net=/proc/{self.inside.pid}/ns/net",
                f"--mount=/proc/{self.inside.pid}/ns/mnt", "--wd=" + os.getcwd(), "--"] + argv

    def _start(self):
        # Slurm looks names up with AI_ADDRCONFIG: one address beside lo's has to be there.
        self.inside = self._spawn(["unshare", "-n", "-m", "sh", "-c",
                                   "ip link set lo up && ip link add v0 type veth peer name v1 && "
                                   "ip addr add 10.77.0.1/24 dev v0 && ip link set v0 up && "
                                   f"ip link set v1 up && mount --bind {self.dir}/hosts /etc/hosts &&"
                                   f" touch {self.dir}/ready && exec sleep 3600"], "inside")
        self._until(lambda: os.path.exists(f"{self.dir}/ready"), "namespaces")
        self._spawn(self.enter(["munged", "-F", "--force", f"--key-file={self.dir}/munge.key",
                                f"--socket={self.dir}/munge.socket", f"--pid-file={self.dir}/munge.pid",
                                f"--seed-file={self.dir}/munge.seed", f"--log-file={self.dir}/munge.log"]),
                    "munged")
        self._until(lambda: os.path.exists(f"{self.dir}/munge.socket"), "munged")
        self._spawn(self.enter(["slurmctld", "-D"]), "slurmctld")
        for i in range(self.nodes):
            self._spawn(self.enter(["slurmd", "-D", "-N", f"t{i + 1}"]), f"slurmd.t{i + 1}")
        self._until(self._is_up, "nodes")

    def _is_up(self):
        r = subprocess.run(self.enter(["sinfo", "-h", "-o", "%T %D"]), env=self.env, text=True,
                           capture_output=True)
        return r.stdout.split() == ["idle", str(self.nodes)]

    def _until(self, ready, what, seconds=30):
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end or any(p.poll() is not None for p in self.procs):
                for f in sorted(os.listdir(self.dir)):
                    if f.endswith((".out", ".log")):
                        print(f"== {f}", open(f"{self.dir}/{f}", errors="replace").read()[-1500:])
                raise RuntimeError(f"{what} of the test's Slurm did not come")
            time.sleep(0.05)

    def srun(self, argv, timeout=60, **env):
        return subprocess.run(self.enter(["srun"] + argv), env=dict(self.env, **env), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=timeout)

    def __exit__(self, *exc):
        for p in reversed(self.procs):      # slurmstepd ends with its step
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


if __name__ == "__main__":
    if missing():
        sys.exit("skipped: " + missing())
    with Slurm(nodes=int(os.environ.get("RIG_NODES", "2"))) as rig:
        done = rig.srun(sys.argv[1:])
        print(done.stdout, end="")
        sys.exit(done.returncode)
