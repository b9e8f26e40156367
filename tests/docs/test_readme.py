# SPDX-License-Identifier: Apache-2.0
"""The examples of README.md are what they claim: short, and they run; so does what counts the tests."""
import os
import re
import shutil
import subprocess
import sys

import pytest

SOURCE = os.environ.get("DTP_TEST_SOURCE", os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.environ.get("DTP_TEST_BUILD", os.path.join(SOURCE, "build"))


def example(language):
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        found = re.findall(rf"```{language}\n(.*?)```", f.read(), re.S)
    assert len(found) == 1
    return found[0]


def test_python_example_runs_alone_and_goes_on(tmp_path):
    text = example("python")
    assert text.count("\n") <= 15
    program = tmp_path / "train.py"
    program.write_text(text.replace("/tmp/example-ckpt", str(tmp_path / "ckpt")))
    for step, weight in ((3, "-0.3"), (6, "-1.5")):
        run = subprocess.run([sys.executable, program], check=True, timeout=60, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert run.stdout.startswith(f"rank 0 of 1 step {step} weight {weight}")


def test_c_example_compiles_and_runs_alone(tmp_path):
    cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not cc:
        pytest.skip("no C compiler")
    text = example("c")
    assert text.count("\n") <= 24
    (tmp_path / "example.c").write_text(text)
    lib = os.path.join(BUILD, "lib")
    subprocess.run([cc, "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}/include", "example.c", "-o", "example", f"-L{lib}",
                    "-ldtp", f"-Wl,-rpath,{lib}"], check=True, cwd=tmp_path)
    run = subprocess.run(["./example"], cwd=tmp_path, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert (run.returncode, run.stdout) == (0, "rank 0 of 1: 1 2\n"), run.stderr


def test_the_tally_tells_why_tests_were_skipped(tmp_path):
    path = tmp_path / "pytest.xml"
    skip = '<testcase><skipped message="torch is not installed"/></testcase>'
    path.write_text(f'<testsuites><testsuite tests="3" skipped="2"><testcase/>{skip}{skip}</testsuite></testsuites>')
    run = subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "tally.py"), "junit", path, "0"],
                         capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr) == ("1 0 2\n", "dev: 2 skipped: torch is not installed\n")
