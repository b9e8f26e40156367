# SPDX-License-Identifier: Apache-2.0
"""The example of an in-house scheduler: killed in the middle, started again, and its jobs never noticed."""
import os
import signal
import subprocess

from job_case import BUILD, JobCase, main, read, wait_for

SCHEDULER = os.path.join(BUILD, "docs", "scheduler")


class SchedulerExample(JobCase):
    def scheduler(self):
        p = subprocess.Popen([SCHEDULER, self.run_dir], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(p)
        return p

    def setUp(self):
        super().setUp()
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("two gangs of one core each need two cores")

    def test_its_jobs_survive_it_and_are_taken_over(self):
        first = self.scheduler()
        ranks = [self.wait_running(name, 1)[0] for name in ("red", "blue")]
        status = read(f"/proc/{first.pid}/status").decode()
        self.assertIn("\nThreads:\t1\n", status)
        for pid in ranks:
            parent = int(read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
            self.assertNotEqual(parent, first.pid)
        # The two gangs have a core each.
        cores = {read(f"/proc/{pid}/status").partition(b"Cpus_allowed_list:\t")[2].split()[0] for pid in ranks}
        self.assertEqual(len(cores), 2)
        seen = [first.stdout.readline() for _ in range(6)]
        self.assertEqual(seen[0], "red is started\n")
        first.send_signal(signal.SIGKILL)
        first.communicate()
        self.assertEqual([self.pids(n)[0] for n in ("red", "blue")], ranks)
        out, err = self.scheduler().communicate(timeout=20)
        self.assertEqual(err, "")
        for name in ("red", "blue"):
            self.assertIn(f"{name} goes on\n", out)
            self.assertIn(f"{name} has ended with 0\n", out)
            self.assertEqual(self.dtp("logs", "--no-prefix", name)[1], [f"step {i}" for i in range(1, 10)])
        wait_for(lambda: not any(read(f"/proc/{p}/cmdline") for p in ranks))


if __name__ == "__main__":
    main()
