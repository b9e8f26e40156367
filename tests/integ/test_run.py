# SPDX-License-Identifier: Apache-2.0
"""`dtp run`: exit codes, what it says, restarts, locks, output, and that nothing is left behind."""
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from job_case import DTP, JobCase, main, marked, read, wait_for


class ExitCodes(JobCase):
    def check(self, script, code, says=None, *options, n=2):
        got, _, err = self.sh(script, *options, n=n)
        self.assertEqual(got, code, err)
        self.assertEqual(err, ["dtp run: " + says] if says else [])

    def test_success_is_0(self):
        self.check("exit 0", 0)

    def test_the_code_of_the_first_failed_rank(self):
        self.check("[ $RANK = 1 ] && exit 3; sleep 30", 3, "rank 1 of 2 exited with code 3 (attempt 0)")
        self.check("exit 1", 1, "rank 0 of 1 exited with code 1 (attempt 0)", n=1)

    def test_128_and_the_signal(self):
        self.check("[ $RANK = 2 ] && kill -9 $$; sleep 30", 137, "rank 2 of 4 killed by signal 9 (attempt 0)", n=4)
        self.check("kill -SEGV $$", 139, "rank 0 of 1 killed by signal 11 (attempt 0)", n=1)

    def test_127_and_126_name_the_program(self):
        code, _, err = self.dtp("run", "-n", 2, "--", "no-such-program", "x")
        self.assertEqual((code, err), (127, ["dtp run: program 'no-such-program' not found"]))
        code, _, err = self.dtp("run", "-n", 2, "--", "/etc/passwd")
        self.assertEqual((code, err), (126, ["dtp run: '/etc/passwd' is not an executable program"]))
        bad = os.path.join(self.run_dir, "bad")
        with open(bad, "w") as f:
            f.write("no program\n")
        os.chmod(bad, 0o700)
        code, _, err = self.dtp("run", "-n", 2, "--", bad)
        self.assertEqual((code, err), (126, [f"dtp run: cannot execute '{bad}': Exec format error"]))

    def test_125_and_one_line_for_what_is_dtps_own(self):
        spec = os.path.join(self.run_dir, "spec.yaml")
        with open(spec, "w") as f:
            f.write("ranks: 2\nrankz: 3\n")
        for args, says in [
            (["-n", "0", "--", "true"], "the number of ranks is missing: -n N (dtp run --help)"),
            (["-n", "two", "--", "true"], "ranks: 'two' is not a number (dtp run --help)"),
            (["-n", "70000", "--", "true"], "ranks: 70000 is not within 1 and 65536"),
            (["-n", "2"], "the program to run is missing (dtp run --help)"),
            (["-n", "2", "--min-ranks", "3", "--", "true"], "min_ranks: 3 is not within 1 and 2"),
            (["-n", "2", "--name", "a/b", "--", "true"],
             "name: 'a/b' is not 1 to 63 of [A-Za-z0-9._-], nor may it start with . or -"),
            (["-n", "2", "--env", "A", "--", "true"], "env: 'A' is not of the form NAME=VALUE (dtp run --help)"),
            (["-n", "2", "--env", "DTP_RANK=1", "--", "true"], "env: DTP_RANK is set by the job itself"),
            (["-n", "2", "--cwd", "/no/such", "--", "true"],
             "cannot enter folder '/no/such': No such file or directory"),
            (["--bogus", "--", "true"], "unknown option --bogus (dtp run --help)"),
            (["--no-bind", "-zn", "2", "--", "true"], "unknown option -z (dtp run --help)"),
            (["-n", "2", "--name"], "option --name needs a value (dtp run --help)"),
            (["-n", "2", "--no-bind=1", "--", "true"], "option --no-bind takes no value (dtp run --help)"),
            (["-n", "2", "--grace", "0", "--", "true"], "grace: '0' is not a number of seconds from 0.001 to 86400 (dtp run --help)"),
            (["-f", spec], f"{spec}: line 2: unknown field 'rankz'"),
            (["-f", "/no/such"], "cannot open /no/such: No such file or directory"),
            (["-n", "1", "--cores-per-rank", "8000", "--", "true"], None),
        ]:
            code, out, err = self.dtp("run", *args)
            self.assertEqual((code, out, len(err)), (125, [], 1), (args, err))
            if says:
                self.assertEqual(err[0], "dtp run: " + says)

    def test_130_after_ctrl_c(self):
        p = self.start("run", "-n", 2, "--", "sh", "-c", "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.02; done")
        self.assertEqual(sorted(p.stdout.readline().strip() for _ in range(2)), ["[0] up", "[1] up"])
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=10)
        self.assertEqual(p.returncode, 130, err)
        self.assertIn("[1] asked", out)

    def test_a_closed_terminal_and_ctrl_backslash_end_the_job(self):
        for sig in (signal.SIGHUP, signal.SIGQUIT):
            p = self.start("run", "--name", "tty", "-n", 2, "--", "sleep", "60")
            self.wait_running("tty", 2)
            p.send_signal(sig)
            _, err = p.communicate(timeout=10)
            self.assertEqual((p.returncode, err), (128 + sig, "dtp run: ending the job (once more to kill it)\n"))
            self.assertEqual(self.state("tty"), "canceled")

    def test_a_second_ctrl_c_kills(self):
        p = self.start("run", "--name", "hard", "--grace", 60, "-n", 2, "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.02; done")
        self.wait_running("hard", 2)
        p.send_signal(signal.SIGINT)
        wait_for(lambda: self.state("hard") == "stopping")
        self.assertIsNone(p.poll())
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=10)
        self.assertEqual(p.returncode, 130)


class Program(unittest.TestCase):
    """`dtp` itself, and what all its commands share."""

    def check(self, args, code, says):
        p = subprocess.run([DTP, *args.split()], capture_output=True, text=True)
        self.assertEqual((p.returncode, p.stdout, p.stderr), (code, "", says + "\n"))

    def test_wrong_words_are_named(self):
        self.check("bogus", 1, "dtp: there is no command bogus (dtp --help)")
        self.check("help bogus", 1, "dtp: there is no command bogus (dtp --help)")
        self.check("topo --xml", 1, "dtp topo: option --xml needs a value (dtp topo --help)")
        self.check("topo -x", 1, "dtp topo: unknown option -x (dtp topo --help)")
        self.check("ckpt ls --format", 1, "dtp ckpt: option --format needs a value (dtp ckpt --help)")
        self.check("ps --run-dir", 125, "dtp ps: option --run-dir needs a value (dtp ps --help)")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be somebody else")
    def test_the_jobs_of_another_user_are_not_called_missing(self):
        run_dir = tempfile.mkdtemp(prefix="dtp-test-")
        os.chmod(run_dir, 0o755)
        subprocess.run([DTP, "run", "--run-dir", run_dir, "--name", "j", "-n", "1", "--no-bind", "--", "true"], check=True)
        tool = shutil.copy(DTP, run_dir)    # the checkout may lie where only root can go
        p = subprocess.run([tool, "cancel", "--run-dir", run_dir, "j"], user=65534, group=65534, extra_groups=[], capture_output=True, text=True)
        shutil.rmtree(run_dir)
        self.assertEqual((p.returncode, p.stderr), (125, f"dtp cancel: cannot open {run_dir}/jobs/j/spec: Permission denied\n"))

    def test_looking_makes_no_run_directory(self):
        path = os.path.join(tempfile.gettempdir(), f"dtp-no-such-{os.getpid()}")
        for command in ("ps", "ps x", "logs x", "attach x", "cancel x"):
            name, *job = command.split()
            self.check(" ".join([name, "--run-dir", path, *job]), 125, f"dtp {name}: there is no run directory {path}")
            self.assertFalse(os.path.exists(path))

    def test_help_that_cannot_be_written_fails(self):
        for args in ("--help", "--version", "help run", "run --help"):
            with open("/dev/full", "w") as full:
                p = subprocess.run([DTP, *args.split()], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(p.returncode, 1)
            self.assertIn("cannot write the output: No space left on device", p.stderr)


class Endings(JobCase):
    def test_a_child_with_a_session_of_its_own_does_not_survive(self):
        start = time.monotonic()
        code, _, _ = self.sh("setsid sleep 1000 & setsid sh -c 'trap \"\" TERM; sleep 1000' & sleep 0.1; exit 0", "--grace", 0.3)
        self.assertEqual(code, 0)
        wait_for(lambda: not marked(self.run_dir), 1)
        self.assertLess(time.monotonic() - start, 3)

    def test_a_rank_that_ignores_sigterm_is_killed_after_its_grace(self):
        start = time.monotonic()
        code, _, _ = self.sh("trap '' TERM; [ $RANK = 1 ] && sleep 0.1 && exit 5; while :; do sleep 0.02; done", "--grace", 0.5)
        took = time.monotonic() - start
        self.assertEqual(code, 5)
        self.assertGreater(took, 0.5)
        self.assertLess(took, 3)

    def test_a_stopped_rank_is_ended(self):
        code, _, _ = self.sh("[ $RANK = 1 ] && exit 5; kill -STOP $$", "--grace", 0.5)
        self.assertEqual(code, 5)

    def test_a_deep_tree_of_sessions_leaves_nothing(self):
        tree = "(sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & setsid sleep 1000' &) & sleep 1000)"
        code, _, _ = self.sh(f"[ $RANK = 1 ] && sleep 0.2 && exit 9; {tree}", "--grace", 0.2)
        self.assertEqual(code, 9)
        wait_for(lambda: not marked(self.run_dir), 1)

    def test_a_job_can_be_cancelled_from_elsewhere(self):
        p = self.start("run", "--name", "mine", "-n", 2, "--", "sleep", 1000)
        self.wait_running("mine", 2)
        self.assertEqual(self.dtp("cancel", "mine")[0], 0)
        _, err = p.communicate(timeout=10)
        self.assertEqual((p.returncode, err), (130, "dtp run: the job was cancelled\n"))
        self.assertEqual(self.state("mine"), "canceled")
        code, _, err = self.dtp("cancel", "mine")
        self.assertEqual((code, err), (125, ["dtp cancel: job 'mine' is not running"]))
        code, _, err = self.dtp("cancel", "other")
        self.assertEqual((code, err), (125, [f"dtp cancel: no job 'other' in {self.run_dir}"]))


class Restarts(JobCase):
    def test_a_restart_may_have_fewer_ranks(self):
        seen = tempfile.mkdtemp(prefix="seen-", dir=self.run_dir)
        code, out, err = self.sh(f"echo $DTP_ATTEMPT/$WORLD_SIZE; [ $DTP_ATTEMPT = 0 ] || exit 0; touch {seen}/$RANK; [ $RANK = 2 ] || exec sleep 30; "
                                 f"until [ $(ls {seen} | wc -l) = 4 ]; do sleep 0.01; done; kill -9 $$",
                                 "--max-restarts", 3, "--min-ranks", 2, n=4)
        self.assertEqual(code, 0)
        self.assertEqual(err, ["dtp run: rank 2 of 4 killed by signal 9 (attempt 0)", "dtp run: attempt 1 starts with 3 ranks"])
        self.assertEqual(sorted(out), sorted([f"[{i}] 0/4" for i in range(4)] + [f"[{i}] 1/3" for i in range(3)]))

    def test_the_budget_ends(self):
        code, out, err = self.sh("echo $DTP_ATTEMPT; exit $((DTP_ATTEMPT + 4))", "--max-restarts", 2, n=1)
        self.assertEqual((code, out), (6, ["[0] 0", "[0] 1", "[0] 2"]))
        self.assertEqual(err[-1], "dtp run: rank 0 of 1 exited with code 6 (attempt 2)")

    def test_an_attempt_whose_logs_cannot_be_made_says_so(self):
        code, _, err = self.sh(f"mv {self.run_dir}/jobs/nologs/logs {self.run_dir}/moved; exit 4", "--name", "nologs", "--max-restarts", 2, n=1)
        self.assertEqual((code, err), (125, ["dtp run: rank 0 of 1 exited with code 4 (attempt 0)", "dtp run: attempt 1 starts with 1 rank",
                                             "dtp run: attempt 1 could not start: cannot make folder logs/attempt-1: No such file or directory"]))
        wait_for(lambda: not marked(self.run_dir), 1)

    def test_a_killed_shim_costs_an_attempt_and_leaves_nothing(self):
        p = self.start("run", "--name", "s", "--max-restarts", 1, "-n", 2, "--", "sh", "-c",
                       "[ $DTP_ATTEMPT = 1 ] && exit 0; setsid sleep 1000 & sleep 1000")
        self.wait_running("s", 2)
        os.kill(self.shim(), signal.SIGKILL)
        _, err = p.communicate(timeout=20)
        self.assertEqual((p.returncode, err.splitlines()), (0, ["dtp run: the shim died (attempt 0)", "dtp run: attempt 1 starts with 2 ranks"]))
        wait_for(lambda: not marked(self.run_dir), 1)


class Attach(JobCase):
    LOOP = "i=0; while [ ! -e $RUN/go ]; do sleep 0.02; done; echo done $RANK $DTP_ATTEMPT; [ $DTP_ATTEMPT = 1 ] || [ $RANK = 0 ] || exit $CODE"

    def run_and_kill(self, code, *options):
        p = self.start("run", "--name", "j", "-n", 2, "--env", f"RUN={self.run_dir}", "--env", f"CODE={code}", *options,
                       "--", "sh", "-c", "echo up $RANK; " + self.LOOP)
        self.wait_running("j", 2)
        p.kill()
        p.communicate()

    def test_a_job_outlives_its_supervisor_and_can_be_attached(self):
        self.run_and_kill(0)
        self.assertEqual(len(self.pids("j")), 2)
        a = self.start("attach", "j")
        wait_for(lambda: a.stdout.readline().startswith("[") or a.poll() is not None)
        code, _, err = self.dtp("attach", "j")
        self.assertEqual((code, err), (125, ["dtp attach: job 'j': another supervisor is attached"]))
        open(os.path.join(self.run_dir, "go"), "w").close()
        out, _ = a.communicate(timeout=10)
        self.assertEqual(a.returncode, 0)
        self.assertIn("[0] done 0 0", out)
        self.assertIn("[1] done 1 0", out)
        self.assertEqual(self.state("j"), "done")
        self.assertEqual(self.dtp("attach", "j")[0], 0)

    def test_what_failed_without_a_supervisor_is_restarted_by_the_next(self):
        self.run_and_kill(7, "--max-restarts", 1)
        ranks = self.pids("j")
        open(os.path.join(self.run_dir, "go"), "w").close()
        wait_for(lambda: not self.pids("j"))
        code, out, err = self.dtp("attach", "j")
        self.assertEqual(code, 0, err)
        self.assertIn("[1] done 1 1", out)
        self.assertNotEqual(ranks, {})

    def test_what_ended_without_a_supervisor_says_how(self):
        self.run_and_kill(7)
        open(os.path.join(self.run_dir, "go"), "w").close()
        wait_for(lambda: not marked(self.run_dir))
        self.assertEqual(self.dtp("attach", "j")[0], 7)
        self.assertEqual(self.state("j"), "failed")

    def test_a_job_without_a_supervisor_can_be_cancelled(self):
        self.run_and_kill(0)
        self.assertEqual(self.dtp("cancel", "j")[0], 0)
        wait_for(lambda: not marked(self.run_dir))
        self.assertEqual(self.dtp("attach", "j")[0], 130)

    def test_supervisor_and_shim_killed_together_are_noticed(self):
        for _ in range(5):      # the kernel may still be at closing what held the cores
            self.run_and_kill(0, "--max-restarts", 1)
            os.kill(self.shim(), signal.SIGKILL)
            open(os.path.join(self.run_dir, "go"), "w").close()
            code, out, err = self.dtp("attach", "j")
            self.assertEqual(code, 0, err)
            self.assertIn("[1] done 1 1", out)
            os.unlink(os.path.join(self.run_dir, "go"))

    def test_a_name_in_use_is_refused_and_an_ended_one_replaced(self):
        p = self.start("run", "--name", "twice", "-n", 1, "--no-bind", "--", "sleep", 1000)
        self.wait_running("twice", 1)
        code, _, err = self.dtp("run", "--name", "twice", "-n", 1, "--no-bind", "--", "true")
        self.assertEqual((code, err), (125, ["dtp run: job 'twice' is running already"]))
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=10)
        self.assertEqual(p.returncode, 143)
        self.assertEqual(self.dtp("run", "--name", "twice", "-n", 1, "--", "true")[0], 0)


class Locks(JobCase):
    def test_cores_are_held_until_the_last_process_is_gone(self):
        p = self.start("run", "--name", "first", "-n", 1, "--", "sh", "-c", "sh -c 'trap \"\" TERM HUP; sleep 1000' & sleep 1000")
        self.wait_running("first", 1)
        code, _, err = self.dtp("run", "-n", 1, "--", "true")
        self.assertEqual((code, err), (125, ["dtp run: core 0 is held by job 'first'"]))
        self.assertEqual(self.dtp("run", "-n", 1, "--no-bind", "--", "true")[0], 0)
        # Supervisor and shim die: the rank with them, but not what the rank has started.
        p.kill()
        os.kill(self.shim(), signal.SIGKILL)
        p.communicate()
        left = wait_for(lambda: (lambda m: m if len(m) >= 1 and not self.is_rank(m) else None)(marked(self.run_dir)))
        code, _, err = self.dtp("run", "-n", 1, "--", "true")
        self.assertEqual((code, err), (125, ["dtp run: core 0 is held by job 'first'"]))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):  # the shim of a job that has just ended
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.dtp("run", "-n", 1, "--", "true")[0] == 0)

    @staticmethod
    def is_rank(pids):
        return any(read(f"/proc/{p}/cmdline").startswith(b"sh\0-c\0sh -c") for p in pids)


class Output(JobCase):
    def test_100000_lines_come_complete_and_unmixed(self):
        code, out, err = self.dtp("run", "-n", 4, "--", "awk", "BEGIN { for (i = 0; i < 25000; i++) print ENVIRON[\"RANK\"], i, \"some text to make it longer\" }")
        self.assertEqual((code, err, len(out)), (0, [], 100000))
        for r in range(4):
            mine = [line for line in out if line.startswith(f"[{r}] ")]
            self.assertEqual(mine, [f"[{r}] {r} {i} some text to make it longer" for i in range(25000)])

    def test_a_slow_reader_gets_everything_and_holds_no_rank_up(self):
        p = self.start("run", "--name", "slow", "-n", 2, "--", "sh", "-c", "seq 200000; echo $RANK > $F.$RANK", env={**os.environ, "F": os.path.join(self.run_dir, "wrote")})
        # Nobody reads our pipe yet: the ranks end all the same.
        wait_for(lambda: all(os.path.exists(os.path.join(self.run_dir, f"wrote.{r}")) for r in range(2)))
        out, _ = p.communicate(timeout=30)
        self.assertEqual(p.returncode, 0)
        lines = out.splitlines()
        for r in range(2):
            self.assertEqual([x for x in lines if x.startswith(f"[{r}]")], [f"[{r}] {i}" for i in range(1, 200001)])

    def test_streams_bytes_and_unfinished_lines(self):
        p = subprocess.run([os.path.join(os.environ["DTP_TEST_BUILD"], "tools", "dtp"), "run", "--run-dir", self.run_dir, "-n", "1", "--no-prefix", "--",
                            "sh", "-c", "printf 'a\\0b\\377\\n\\nlast'; printf 'oops' >&2"], capture_output=True)
        self.assertEqual((p.returncode, p.stdout, p.stderr), (0, b"a\0b\xff\n\nlast\n", b"oops\n"))

    def test_a_reader_that_leaves_does_not_end_the_job(self):
        p = self.start("run", "-n", 1, "--", "sh", "-c", f"seq 50000; touch {self.run_dir}/end")
        p.stdout.readline()
        p.stdout.close()
        self.assertEqual(p.wait(timeout=20), 0)
        self.assertTrue(os.path.exists(os.path.join(self.run_dir, "end")))

    def test_logs_show_what_was_written(self):
        self.dtp("run", "--name", "l", "-n", 2, "--max-restarts", 1, "--", "sh", "-c", "echo out $RANK $DTP_ATTEMPT; echo err >&2; [ $DTP_ATTEMPT = 1 ] && exit; [ $RANK = 0 ] && exit 1; exec sleep 30")
        code, out, err = self.dtp("logs", "l")
        self.assertEqual((code, out, err), (0, ["[0] out 0 1", "[1] out 1 1"], ["[0] err", "[1] err"]))
        code, out, _ = self.dtp("logs", "--attempt", 0, "--rank", 0, "--no-prefix", "l")
        self.assertEqual((code, out), (0, ["out 0 0"]))
        for args, says in [(["--attempt", 2], "job 'l' has no attempt 2, the last is 1"),
                           (["--rank", 2], "attempt 1 of job 'l' has no rank 2, only 2 ranks"),
                           (["--rank", "x"], "rank: 'x' is not a number (dtp logs --help)")]:
            self.assertEqual(self.dtp("logs", *args, "l"), (125, [], ["dtp logs: " + says]))

    def test_output_that_cannot_be_written_is_said_once(self):
        with open("/dev/full", "w") as full:
            p = subprocess.run([DTP, "run", "--run-dir", self.run_dir, "--name", "full", "-n", "1", "--", "sh", "-c",
                                "echo a; sleep 0.1; echo b"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((p.returncode, p.stderr), (0, "dtp run: cannot write the output: No space left on device "
                                                       "(the logs have it: dtp logs full)\n"))
        self.assertEqual(self.dtp("logs", "full")[1], ["[0] a", "[0] b"])

    def test_closed_standard_descriptors_are_not_written_to(self):
        # The first descriptor that is opened would be 0: an epoll, an event, a socket.
        code = subprocess.run(f"exec {DTP} run --run-dir {self.run_dir} --name shut -n 2 -- sh -c 'echo abc' <&- >&- 2>&-",
                              shell=True, timeout=30).returncode
        self.assertEqual(code, 0)
        self.assertEqual(self.dtp("logs", "shut")[1], ["[0] abc", "[1] abc"])
        p = subprocess.run(f"{DTP} topo >&-", shell=True, capture_output=True, text=True)
        self.assertEqual((p.returncode, p.stderr), (1, "dtp topo: cannot write the output: Bad file descriptor\n"))

    def test_logs_follow_until_the_end(self):
        p = self.start("run", "--name", "f", "-n", 1, "--", "sh", "-c", f"echo one; while [ ! -e {self.run_dir}/go ]; do sleep 0.02; done; echo two")
        self.wait_running("f", 1)
        f = self.start("logs", "-f", "f")
        self.assertEqual(f.stdout.readline(), "[0] one\n")
        open(os.path.join(self.run_dir, "go"), "w").close()
        out, _ = f.communicate(timeout=10)
        self.assertEqual((f.returncode, out), (0, "[0] two\n"))
        p.communicate(timeout=10)


class Limits(JobCase):
    def test_too_few_descriptors_are_said_before_anything_starts(self):
        code, out, err = self.dtp("run", "-n", 64, "--no-bind", "--", "echo", "x", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
        self.assertEqual((code, out, err), (125, [], ["dtp run: need 384 descriptors, limit 256"]))

    def test_ranks_have_the_limit_of_the_one_who_ran_dtp(self):
        _, out, _ = self.dtp("run", "-n", 1, "--", "sh", "-c", "ulimit -n", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (777, 2000)))
        self.assertEqual(out, ["[0] 777"])

    def test_locks_are_kept_where_few_descriptors_are_allowed(self):
        _, out, _ = self.dtp("run", "-n", 1, "--", "sh", "-c", "ls -l /proc/$$/fd | grep -c /locks$", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, 2000)))
        self.assertEqual(out, ["[0] 1"])

    def test_64_ranks_start_at_once(self):
        start = time.monotonic()
        code, out, _ = self.dtp("run", "-n", 64, "--", "true")
        took = time.monotonic() - start
        print(f"64 ranks started and ended in {took * 1000:.0f} ms")
        self.assertEqual((code, out), (0, []))
        self.assertLess(took, 3)

    def test_reserved_ports_can_be_listened_on(self):
        script = ("import os, socket\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
                  "s.bind(('127.0.0.1', int(os.environ['MASTER_PORT'])))\ns.listen()\nprint('ok')")
        code, out, err = self.dtp("run", "-n", 1, "--", "python3", "-c", script)
        self.assertEqual((code, out), (0, ["[0] ok"]), err)

    def test_a_spec_file_and_options_that_win_over_it(self):
        spec = os.path.join(self.run_dir, "spec.yaml")
        with open(spec, "w") as f:
            f.write("name: fromfile\nranks: 2\nenv: {A: one, B: two}\ncommand: [sh, -c, 'echo $A $B $WORLD_SIZE']\n")
        code, out, _ = self.dtp("run", "-f", spec, "-n", 1, "--env", "B=three")
        self.assertEqual((code, out), (0, ["[0] one three 1"]))
        self.assertEqual(self.state("fromfile"), "done")


if __name__ == "__main__":
    main()
