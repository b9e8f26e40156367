# SPDX-License-Identifier: Apache-2.0
"""A rank dies while a forked child of it holds its sockets: the others are told within 10 ms who it was."""
import os
import statistics

from job_case import BUILD, JobCase, main

RANK = os.path.join(BUILD, "tests", "integ", "rank_death")


class DeathNamed(JobCase):
    def test_the_survivors_know_the_dead_rank_within_10_ms(self):
        took = []
        for _ in range(5):
            code, out, err = self.dtp("run", "-n", 4, "--grace", 0.2, "--", RANK, 2)
            self.assertEqual(code, 137, err)
            self.assertEqual(err, ["dtp run: rank 2 of 4 killed by signal 9 (attempt 0)"])
            dies = [int(line.split()[2]) for line in out if line.startswith("[2] dies ")]
            told = [line.split(" ", 3) for line in out if " told " in line]
            self.assertEqual((len(dies), len(told)), (1, 3), out)
            for t in told:
                self.assertTrue(t[3].startswith("DTP_ERR_PEER: "), t)
                self.assertIn("rank 2 of 4", t[3])
            took.append(max(int(t[2]) - dies[0] for t in told) / 1e6)
        print("death known to all survivors after", ", ".join(f"{ms:.2f}" for ms in took), "ms")
        self.assertLess(statistics.median(took), 10)


if __name__ == "__main__":
    main()
