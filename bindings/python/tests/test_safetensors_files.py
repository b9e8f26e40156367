# SPDX-License-Identifier: Apache-2.0
"""Shards are safetensors files that others read, and the format's page is enough for a second reader."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import dtp
from conftest import BUILD, ROOT

spec = importlib.util.spec_from_file_location("read_ckpt", ROOT / "tests" / "integ" / "read_ckpt.py")
assert spec and spec.loader
read_ckpt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(read_ckpt)

TYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8"]


def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    out: dict[str, np.ndarray] = {}
    for t in TYPES:
        raw = rng.integers(0, 2 if t == "?" else 256, 5 * 7 * np.dtype(t).itemsize, dtype=np.uint8)
        out[f"type {t}"] = raw.view(t).reshape(5, 7)
    out["scalar"] = np.array(3.5, np.float32)
    out["empty"] = np.zeros((4, 0, 2), np.float16)
    out['na"me\\ \u00e9\n'] = np.arange(3, dtype=np.int32)
    out["large"] = rng.standard_normal((700, 500)).astype(np.float32)
    return out


def save_parts(dir: Path, given: dict[str, np.ndarray], **opts: object) -> Path:
    """Saves; `large` comes as two boxes of one rank."""
    large = given["large"]
    parts = [dtp.ckpt.Shard(np.ascontiguousarray(p), large.shape, o) for p, o in ((large[:300], (0, 0)), (large[300:], (300, 0)))]
    dtp.ckpt.save(dir, 12, {**given, "large": parts}, **opts)  # type: ignore[arg-type]
    return dir / "step-00000000000000000012"


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def test_safetensors_package_opens_every_tensor(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed (./dev setup)")
    given = tensors()
    del given["type c8"]        # the package's numpy side has no complex numbers
    step = save_parts(tmp_path, given, chunk_bytes=4096)
    (shard,) = step.glob("shard-*.safetensors")
    found = numpy.load_file(str(shard))
    large = [found.pop("large"), found.pop("large@300,0")]
    found["large"] = np.concatenate(large)
    assert sorted(found) == sorted(given)
    for name, array in given.items():
        assert found[name].dtype == array.dtype and same(found[name], array), name


def test_safetensors_package_opens_coded_shards_as_blobs(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed (./dev setup)")
    safe_open = pytest.importorskip("safetensors").safe_open
    step = save_parts(tmp_path, tensors(), codec="zstd", chunk_bytes=4096)
    (shard,) = step.glob("shard-*.safetensors")
    assert all(a.dtype == np.uint8 and a.ndim == 1 for a in numpy.load_file(str(shard)).values())
    with safe_open(str(shard), framework="numpy") as f:
        boxes = json.loads(f.metadata()["dtp.boxes"])
    assert boxes["large@300,0"] == {"tensor": "large", "dtype": "F32", "shape": [700, 500], "offset": [300, 0], "extent": [400, 500]}


def test_torch_types_open_with_the_safetensors_package(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (./dev setup --with torch)")
    st = pytest.importorskip("safetensors.torch", reason="safetensors is not installed (./dev setup)")
    given = {
        "bf16": torch.randn(4, 3).to(torch.bfloat16),
        "e4m3": torch.randn(8).to(torch.float8_e4m3fn),
        "e5m2": torch.randn(8).to(torch.float8_e5m2),
        "c64": torch.randn(2, 2, dtype=torch.complex64),
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
    }
    try:
        dtp.ckpt.save(tmp_path, 1, given)
    except TypeError:
        given = {k: given[k] for k in ("bf16", "c64", "nan")}
        dtp.ckpt.save(tmp_path, 1, given)
    (shard,) = (tmp_path / "step-00000000000000000001").glob("shard-*.safetensors")
    found = st.load_file(str(shard))
    for name, t in given.items():
        assert found[name].dtype == t.dtype
        assert torch.equal(found[name].view(torch.uint8), t.view(torch.uint8)), name


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_second_reader_reads_the_same(tmp_path: Path, codec: str) -> None:
    if codec == "zstd":
        pytest.importorskip("zstandard", reason="zstandard is not installed")
    given = tensors()
    found = read_ckpt.read_step(save_parts(tmp_path, given, codec=codec, chunk_bytes=4096))
    assert sorted(found) == sorted(given)
    for name, array in given.items():
        assert same(found[name][1], array), name


def test_second_reader_finds_a_flipped_bit(tmp_path: Path) -> None:
    pytest.importorskip("xxhash", reason="xxhash is not installed")
    step = save_parts(tmp_path, tensors())
    (shard,) = step.glob("shard-*.safetensors")
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 4
    shard.write_bytes(raw)
    with pytest.raises(read_ckpt.Bad, match="checksum"):
        read_ckpt.read_step(step)


def dtp_tool(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BUILD / "tools" / "dtp"), *map(str, args)], capture_output=True, text=True, timeout=60)


def test_tool_tells_good_from_damaged(tmp_path: Path) -> None:
    given = tensors()
    dtp.ckpt.save(tmp_path, 1, {"w": given["large"]}, meta={"lr": 0.5})
    dtp.ckpt.save(tmp_path, 2, {"w": given["large"]})
    (tmp_path / "step-00000000000000000003").mkdir()
    listed = dtp_tool("ckpt", "ls", tmp_path, "--format", "json")
    lines = [json.loads(line) for line in listed.stdout.splitlines()]
    assert listed.returncode == 0
    assert [(x["step"], x["complete"]) for x in lines] == [(1, True), (2, True), (3, False)]
    shown = [json.loads(x) for x in dtp_tool("ckpt", "show", tmp_path, 1, "--format", "json").stdout.splitlines()]
    assert shown[0]["meta"] == {"lr": 0.5} and shown[1] == {"tensor": "w", "dtype": "f32", "shape": [700, 500]}
    good = dtp_tool("ckpt", "verify", tmp_path, "--all")
    assert good.returncode == 0 and good.stderr == "" and good.stdout.count("ok") == 2

    (shard,) = (tmp_path / "step-00000000000000000002").glob("shard-*")
    before = hashlib.sha256(shard.read_bytes()).hexdigest()
    raw = bytearray(shard.read_bytes())
    raw[5000] ^= 1
    shard.write_bytes(raw)
    assert hashlib.sha256(raw).hexdigest() != before
    bad = dtp_tool("ckpt", "verify", tmp_path)
    assert bad.returncode == 1 and len(bad.stderr.splitlines()) == 1
    assert shard.name in bad.stderr and "tensor w: chunk 0" in bad.stderr
    shard.write_bytes(raw[:6000])
    cut = dtp_tool("ckpt", "ls", tmp_path)
    assert cut.returncode == 1 and "damaged" in cut.stdout and "6000 bytes" in cut.stdout
    assert dtp_tool("ckpt", "show", tmp_path).stdout.startswith("step 1:")
    missing = dtp_tool("ckpt", "verify", tmp_path / "none")
    assert missing.returncode == 1 and "none" in missing.stderr


def test_full_disk_is_named_and_leaves_the_previous_step(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "none", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("may not mount a small file system")
    try:
        dtp.ckpt.save(small, 1, {"w": np.zeros(2 << 18, np.float32)})
        with pytest.raises(dtp.Error, match="no space for .*shard-00000-of-00001.* bytes wanted, .* missing"):
            dtp.ckpt.save(small, 2, {"w": np.zeros(3 << 18, np.float32)})
        with pytest.raises(dtp.Error, match="missing"):
            dtp.ckpt.save(small, 2, {"w": np.random.default_rng(1).random(3 << 17)}, codec="zstd")
        assert dtp.ckpt.latest(small) == 1
        assert dtp_tool("ckpt", "verify", small, "--all").returncode == 0
        assert sorted(p.name for p in small.iterdir()) == [".lock", "step-00000000000000000001"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_second_reader_agrees_about_a_step_over_another() -> None:
    pytest.importorskip("xxhash", reason="xxhash is not installed")
    pytest.importorskip("zstandard", reason="zstandard is not installed")
    names = [sorted(read_ckpt.read_step(ROOT / "tests" / "data" / "ckpt" / "v2-delta" / f"step-{n:020}")) for n in (40, 41, 42)]
    assert names[0] == names[1] == names[2] != []


@pytest.mark.parametrize("name", ["good", "bad-cut", "bad-flip", "bad-header", "bad-missing", "bad-manifest", "bad-manifest-cut"])
def test_second_reader_agrees_about_the_golden_files(name: str) -> None:
    pytest.importorskip("xxhash", reason="xxhash is not installed")
    step = ROOT / "tests" / "data" / "ckpt" / name / "step-00000000000000000042"
    if name == "good":
        assert sorted(read_ckpt.read_step(step)) == ["b \u00e9", "e", "s", "w"]
    else:
        with pytest.raises((read_ckpt.Bad, OSError)):
            read_ckpt.read_step(step)
