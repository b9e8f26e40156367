# SPDX-License-Identifier: Apache-2.0
"""What the tests of jobs share: a run directory of their own, `dtp` as a process, and the rule that no process is left."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.environ["DTP_TEST_BUILD"]
DTP = os.path.join(BUILD, "tools", "dtp")

# A shell without job control starts what it puts into the background with these ignored, and a program inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def read(path):
    """All bytes of a file, b"" when it is gone."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def marked(run_dir):
    """Processes (not zombies) that run under this run directory, by their environment or command line."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        pid = int(path.split("/")[2])
        text = read(path) + read(f"/proc/{pid}/cmdline")
        state = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1]
        if pid != os.getpid() and state not in ([], [b"Z"], [b"X"]) and run_dir.encode() in text:
            found.append(pid)
    return found


def wait_for(what, seconds=10.0):
    """Polls until `what()` is true; its value."""
    end = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("waited too long")
        time.sleep(0.005)


class JobCase(unittest.TestCase):
    def setUp(self):
        self.run_dir = tempfile.mkdtemp(prefix="dtp-test-")
        self.started = []

    def tearDown(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.communicate()
        try:
            wait_for(lambda: not marked(self.run_dir), 3)
        except AssertionError:
            left = marked(self.run_dir)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            self.fail(f"processes are left: {left}")
        finally:
            shutil.rmtree(self.run_dir, ignore_errors=True)

    def start(self, *args, **more):
        """`dtp ARGS` in the run directory, not waited for."""
        p = subprocess.Popen([DTP, args[0], "--run-dir", self.run_dir, *map(str, args[1:])], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **more)
        self.started.append(p)
        return p

    def dtp(self, *args, timeout=60, **more):
        """(exit code, lines of stdout, lines of stderr)."""
        p = self.start(*args, **more)
        out, err = p.communicate(timeout=timeout)
        return p.returncode, out.splitlines(), err.splitlines()

    def sh(self, script, *options, n=2):
        """`dtp run` of a shell script."""
        return self.dtp("run", "-n", n, *options, "--", "sh", "-c", script)

    def pids(self, name):
        """{rank: pid} of the ranks that run."""
        code, out, _ = self.dtp("ps", "--pids", name)
        if code:
            return {}
        return {int(a[0]): int(a[1]) for a in map(str.split, out) if a[2] == "running"}

    def wait_running(self, name, n):
        return wait_for(lambda: (lambda p: p if len(p) == n else None)(self.pids(name)))

    def state(self, name):
        code, out, _ = self.dtp("ps", name)
        return out[1].split()[1] if code == 0 and len(out) > 1 else None

    def shim(self):
        """The shim's process."""
        def only_one():         # that of a job that has just ended may still be ending
            found = [p for p in marked(self.run_dir) if b"dtp-shim" in read(f"/proc/{p}/cmdline")]
            return found[0] if len(found) == 1 else None
        return wait_for(only_one)


def main():
    unittest.main(module=sys.modules["__main__"], verbosity=1)
