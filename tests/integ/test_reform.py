# SPDX-License-Identifier: Apache-2.0
"""A rank of `dtp run` dies; the survivors re-form without a restart, and the job succeeds."""
import os

from job_case import BUILD, JobCase, main

RANK = os.path.join(BUILD, "docs", "reform")


class Reform(JobCase):
    def test_the_survivors_finish_the_job(self):
        code, out, err = self.dtp("run", "--name", "r", "-n", 4, "--min-ranks", 2, "--reform", 10, "--", RANK)
        self.assertEqual(code, 0, (out, err))
        self.assertEqual(sorted(line[4:] for line in out),
                         [f"generation 2: rank {i} of 3, sum 3" for i in range(3)], err)
        self.assertIn("dtp run: rank 1 of 4 killed by signal 9 (attempt 0)", err)
        self.assertEqual(self.state("r"), "done")

    def test_fewer_than_the_least_end_the_attempt(self):
        code, out, err = self.dtp("run", "-n", 4, "--reform", 0.3, "--grace", 0.2, "--", RANK)
        self.assertEqual(code, 137, (out, err))

    def test_without_time_for_it_the_gang_is_ended(self):
        code, _, err = self.dtp("run", "-n", 4, "--min-ranks", 2, "--grace", 0.2, "--", RANK)
        self.assertEqual(code, 137, err)


if __name__ == "__main__":
    main()
