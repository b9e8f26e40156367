# SPDX-License-Identifier: Apache-2.0
"""Every allocation and every system call of the shim fails once: the job ends, says why, and leaves no process."""
import os
import random
import subprocess
import unittest

from job_case import BUILD, JobCase, main, read

PRELOAD = " ".join(os.path.join(BUILD, "tests/integ", name) for name in ("libfailmalloc.so", "libfailcall.so"))
RANK = os.path.join(BUILD, "tests/integ/rank_death")
LONG = "DTP_TEST_LONG" in os.environ


class ShimFault(JobCase):
    def fails(self, kind, nth):
        """None: it came to pass no more; else what failed, the exit code and what was said."""
        log = os.path.join(self.run_dir, f"log-{kind}-{nth}")
        env = dict(os.environ, LD_PRELOAD=PRELOAD, FAIL_AT=f"dtp-shim {kind} {nth}", FAIL_LOG=log)
        try:
            code, out, err = self.dtp("run", "-n", 4, "--env", "DTP_TIMEOUT_MS=5000", "--", RANK, 99, env=env, timeout=20)
        except subprocess.TimeoutExpired:
            self.fail(f"{kind} {nth}: the job hangs: {read(log).decode()}")
        what = read(log).decode().split()
        return (what, code, out, err) if what else None

    def each(self, kind, stride):
        first = random.randrange(1, stride + 1)
        n = missed = 0
        for nth in range(first, 100000, stride):
            seen = self.fails(kind, nth)
            if not seen:
                missed += 1         # some runs need fewer than others
                if missed > 3:
                    break
                continue
            n += 1
            what, code, out, err = seen
            with self.subTest(kind=kind, nth=nth, what=what, error=os.strerror(int(what[1]))):
                told = [line for line in out if "told" in line]
                if code == 0:
                    self.assertEqual(len(told), 4, out)
                else:
                    self.assertTrue(err, "no word about the failure")
                # Who was told anything was told the same.
                self.assertLessEqual(len({line.split(" ", 2)[-1] if "OK" not in line else "OK" for line in
                                          (t.split("told ", 1)[1] for t in told)}), 2, out)
        print(f"{n} of about {nth} {kind}s of the shim failed one by one")
        self.assertGreater(n, 0)

    def test_allocations(self):
        self.each("allocation", 1 if LONG else 29)

    def test_calls(self):
        self.each("call", 1 if LONG else 41)


if __name__ == "__main__":
    main()
