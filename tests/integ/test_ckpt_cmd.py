#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`dtp ckpt` from outside: what it prints, its exit codes, bars on a terminal and none in a pipe."""
import json
import os
import pty
import shutil
import struct
import subprocess
import tempfile
import unittest

BUILD = os.environ.get("DTP_TEST_BUILD", "build")
SOURCE = os.environ.get("DTP_TEST_SOURCE", ".")
FOREIGN = os.path.join(SOURCE, "tests/data/ckpt/foreign")


def ckpt(*args):
    run = subprocess.run([os.path.join(BUILD, "tools/dtp"), "ckpt", *args], capture_output=True, text=True,
                         stdin=subprocess.DEVNULL, timeout=60)
    return run.returncode, run.stdout, run.stderr


def on_terminal(*args):
    """stderr as a terminal has it."""
    main, side = pty.openpty()
    run = subprocess.Popen([os.path.join(BUILD, "tools/dtp"), "ckpt", *args], stdout=subprocess.DEVNULL, stderr=side,
                           stdin=subprocess.DEVNULL)
    os.close(side)
    out = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:     # how a terminal says that the other side is closed
            part = b""
        if not part:
            break
        out += part
    os.close(main)
    return run.wait(60), out.decode()


def write_safetensors(path, tensors):
    head, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


class Ckpt(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="dtp-test-ckpt-")
        self.addCleanup(shutil.rmtree, self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def ok(self, *args):
        rc, out, err = ckpt(*args)
        self.assertEqual((rc, err), (0, ""), (args, out, err))
        return out

    def fails(self, says, *args, rc=1):
        got, out, err = ckpt(*args)
        self.assertEqual(got, rc, (args, out, err))
        self.assertIn(says, err)
        self.assertEqual(err.count("\n"), 1, err)

    def step(self, step, value, codec="planes"):
        write_safetensors(self.path("in.safetensors"),
                          {"w": ("F32", [300, 1000], struct.pack("<f", value) * 300000), "b": ("U8", [3], b"abc")})
        return self.ok("convert", self.path("in.safetensors"), self.path("steps"), "--step", str(step), "--codec", codec)

    def test_files_of_others_become_a_step_and_a_model_again(self):
        for name in ("plain.pt", "dcp", "dcp-hf"):
            source, steps, model = os.path.join(FOREIGN, name), self.path(name + ".steps"), self.path(name + ".hf")
            self.assertIn("as step 3", self.ok("convert", source, steps, "--step", "3", "--codec", "planes"))
            self.assertIn("step 3: ok", self.ok("verify", steps))
            self.assertIn("as a Hugging Face model", self.ok("convert", steps, model, "--max-shard", "100"))
            self.assertTrue(os.path.exists(model + "/model.safetensors.index.json"))
            for a, b in ((source, steps), (steps + ":3", model), (model, source)):
                self.assertIn(" 0 differ, 0 only in the first, 0 only in the second", self.ok("diff", a, b))

    def test_the_reference_reader_reads_what_is_exported(self):
        try:
            from safetensors.numpy import load_file
        except ImportError:
            self.skipTest("no safetensors here")
        self.step(1, 2.5)
        self.ok("convert", self.path("steps"), self.path("m"))
        got = load_file(self.path("m/model.safetensors"))
        self.assertEqual(got["w"].shape, (300, 1000))
        self.assertTrue((got["w"] == 2.5).all())
        self.assertEqual(got["b"].tobytes(), b"abc")

    def test_show_says_what_a_checkpoint_is(self):
        out = self.ok("show", os.path.join(FOREIGN, "plain.pt"))
        self.assertTrue(out.startswith("torch: "), out)
        self.assertIn("no checksums", out)
        lines = [json.loads(x) for x in self.ok("show", os.path.join(FOREIGN, "dcp"), "--format", "json").splitlines()]
        self.assertEqual((lines[0]["format"], lines[0]["checksums"]), ("dcp", False))
        self.assertEqual(lines[0]["meta"]["raw"], ["epoch"])
        self.assertIn({"tensor": "rows", "dtype": "f32", "shape": [5, 7]}, lines)
        self.assertIn("it has no checksums", self.ok("verify", os.path.join(FOREIGN, "dcp-hf")))

    def test_diff_names_what_differs(self):
        self.step(1, 1.0)
        raw = bytearray(struct.pack("<f", 1.0) * 300000)
        raw[4 * 1001] ^= 1      # an element in the first chunk, and two in the second
        raw[(1 << 20) + 8] ^= 1
        raw[(1 << 20) + 80] ^= 1
        write_safetensors(self.path("b.safetensors"),
                          {"w": ("F32", [300, 1000], bytes(raw)), "b": ("U8", [1, 3], b"abc"), "c": ("U8", [1], b"c")})
        rc, out, err = ckpt("diff", self.path("steps"), self.path("b.safetensors"))
        self.assertEqual((rc, err), (1, ""))
        self.assertEqual(out.splitlines(), [
            "~ b  u8 [3] -> u8 [1, 3]", "+ c  u8 [1]",
            "~ w  f32 [300, 1000]: 2 of 2 chunks differ, first at [1, 1]",
            "0 tensors equal, 2 differ, 0 only in the first, 1 only in the second"])
        rc, out, err = ckpt("diff", self.path("steps"), self.path("b.safetensors"), "--format", "json")
        lines = [json.loads(x) for x in out.splitlines()]
        self.assertEqual(lines[2], {"tensor": "w", "state": "content", "dtype": "f32", "shape": [300, 1000],
                                    "chunks": 2, "differ": 2, "first": [1, 1]})
        self.assertEqual(lines[3], {"equal": 0, "differ": 2, "only_first": 0, "only_second": 1})

    def test_gc_asks_before_it_removes(self):
        for step in (1, 2, 3, 4):
            self.step(step, float(step), "none")
        os.mkdir(self.path("steps/step-00000000000000000000"))
        out = self.ok("gc", self.path("steps"), "--keep", "2", "--keep-every", "2")
        self.assertIn("would remove step 1", out)
        self.assertNotIn("step 2", out)
        self.assertEqual(len(self.ok("ls", self.path("steps"), "--format", "json").splitlines()), 5)
        lines = self.ok("gc", self.path("steps"), "--keep", "2", "--keep-every", "2", "--yes", "--format", "json")
        self.assertIn({"step": 1, "removed": True}, [json.loads(x) for x in lines.splitlines()])
        steps = [json.loads(x)["step"] for x in self.ok("ls", self.path("steps"), "--format", "json").splitlines()]
        self.assertEqual([s for s in steps if s], [2, 3, 4])
        self.assertIn("ok", self.ok("verify", self.path("steps"), "--all"))

    def test_a_pinned_step_stays(self):
        for step in (1, 2, 3):
            self.step(step, float(step), "none")
        self.ok("pin", self.path("steps"), "1")
        self.assertRegex(self.ok("ls", self.path("steps")), r" 1  complete .*  pinned\n")
        self.assertEqual(self.ok("gc", self.path("steps")).splitlines()[0], "would remove step 2")
        self.ok("unpin", self.path("steps"), "1")
        self.assertIn("removed step 1", self.ok("gc", self.path("steps"), "--yes"))
        self.fails("which step", "pin", self.path("steps"))
        self.fails("step-00000000000000000009", "pin", self.path("steps"), "9")

    def test_what_could_not_be_looked_at_is_not_called_incomplete(self):
        for step in (1, 2, 3):
            self.step(step, float(step), "none")
        manifests = [self.path(f"steps/step-{step:020d}/manifest.json") for step in (1, 2)]
        os.unlink(manifests[0])
        os.unlink(manifests[1])
        os.symlink("manifest.json", manifests[1])       # as good as a folder that we may not enter
        rc, out, err = ckpt("ls", self.path("steps"), "--format", "json")
        self.assertEqual((rc, err), (1, ""))
        self.assertEqual([json.loads(x).get("state") for x in out.splitlines()], ["incomplete", "unreadable", None])
        self.fails("Too many levels", "verify", self.path("steps"), "--all")

    def test_verify_names_the_step_that_is_damaged(self):
        for step in (1, 2, 3):
            self.step(step, float(step), "none")
        shards = [os.path.join(root, f) for root, _, files in os.walk(self.path("steps")) for f in files
                  if f.startswith("shard") and "step-00000000000000000002" in root]
        with open(shards[0], "r+b") as f:
            f.seek(-1, os.SEEK_END)
            f.write(b"\1")
        rc, out, err = ckpt("verify", self.path("steps"), "--all")
        self.assertEqual((rc, out.count(": ok")), (1, 2))
        self.assertRegex(err, r"^dtp ckpt: step 2: shard-.*: tensor .: chunk .*\n$")
        rc, out, err = ckpt("verify", self.path("steps"), "--all", "--format", "json")
        lines = [json.loads(x) for x in out.splitlines()]
        self.assertEqual((rc, [(x["step"], x["ok"]) for x in lines]), (1, [(3, True), (2, False), (1, True)]))
        self.assertIn("checksum mismatch", lines[1]["why"])

    def test_bars_are_for_terminals(self):
        self.step(1, 1.0)
        for args in (("verify", self.path("steps")), ("convert", self.path("steps"), self.path("m")),
                     ("diff", self.path("steps"), self.path("in.safetensors"))):
            rc, out = on_terminal(*args)
            self.assertEqual(rc, 0)
            self.assertIn("GB/s", out)
            self.assertIn("100 %", out)
            self.assertTrue(out.endswith("\r\x1b[K"), repr(out))

    def test_failures_are_one_line(self):
        self.step(1, 1.0)
        self.fails("No such file", "show", self.path("none"))
        self.fails("is there already", "convert", self.path("steps"), self.twice())
        self.fails("already complete", "convert", self.path("in.safetensors"), self.path("steps"), "--step", "1")
        self.fails("No such file", "diff", self.path("steps"), self.path("none"), rc=2)
        self.fails("diff takes two", "diff", self.path("steps"), rc=2)
        self.fails("diff takes no --yes", "diff", self.path("steps"), self.path("steps"), "--yes", rc=2)
        self.fails("--to cannot be tf", "convert", self.path("steps"), self.path("x"), "--to", "tf")
        self.fails("--step numbers a step that is written", "convert", self.path("steps"), self.path("x"), "--step", "1")
        self.fails("--codec is for steps", "convert", self.path("steps"), self.path("x"), "--codec", "planes")
        self.fails("--max-shard is for models", "convert", self.path("in.safetensors"), self.path("x"), "--max-shard", "1K")
        self.assertFalse(os.path.exists(self.path("x")))
        self.fails("--keep cannot be 0", "gc", self.path("steps"), "--keep", "0")
        self.fails("x is no step", "show", self.path("steps"), "x")
        self.fails("unknown command frob", "frob")
        self.fails("which checkpoint", "verify")

    def twice(self):
        self.ok("convert", self.path("steps"), self.path("m"))
        return self.path("m")

    def test_a_pickle_that_would_run_something_is_refused(self):
        os.mkdir(self.path("evil"))
        with open(self.path("evil/.metadata"), "wb") as f:
            f.write(b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0btouch owned\x85R.")
        self.fails("posix.system", "show", self.path("evil"))
        self.assertFalse(os.path.exists("owned"))


if __name__ == "__main__":
    unittest.main()
