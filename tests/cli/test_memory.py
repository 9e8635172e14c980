"""`planq quantize` and `planq dequantize` hold one tensor at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cli.files import checkpoint, describe, pack, planq_process, weight

if TYPE_CHECKING:
    from pathlib import Path

TENSORS = 5
LARGEST = 64 << 20
LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
REPORT_PEAK = """
import atexit, re
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1],
                              file=sys.stderr))
"""


def large_checkpoint(path: Path) -> Path:
    """A file five times as large as its largest tensor, of a repeated block of random values."""
    block = np.random.default_rng(0).standard_normal(1 << 18, np.float32).tobytes()
    shape = [LARGEST // 4 // 4096, 4096]
    header = json.dumps(
        {f"w{n}": describe("F32", shape, n * LARGEST, (n + 1) * LARGEST) for n in range(TENSORS)}
    ).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(TENSORS * LARGEST // len(block)):
            file.write(block)
    return path


def peak_and_digests(*arguments: object) -> tuple[int, set[str]]:
    """Runs a command that succeeds: the most memory that it held, and their digests."""
    child = planq_process(*arguments, "--json", before=REPORT_PEAK)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0
    rows = json.loads(out)["tensors"]
    own = [row.get("tensor_sha256") or {row["name"]: row["sha256"]} for row in rows]
    return int(err) * 1024, {each[row["name"]] for row, each in zip(rows, own, strict=True)}


@pytest.mark.parametrize("scheme", ["--scheme int8-channel", "--scheme nf4 --nested"])
def test_the_peak_is_below_twice_the_largest_tensor_and_200_mb(tmp_path: Path, scheme: str) -> None:
    source, quantized = large_checkpoint(tmp_path / "in.st"), tmp_path / "q.st"
    peaks = []
    for arguments in (
        ("quantize", source, quantized, *scheme.split()),
        ("quantize", source, quantized, *scheme.split(), "--verify", "--force"),
        ("dequantize", quantized, source, "--force"),
    ):
        peak, digests = peak_and_digests(*arguments)
        assert len(digests) == 1
        peaks.append(peak)
    source.unlink()
    quantized.unlink()
    assert max(peaks) < 2 * LARGEST + 200e6, peaks


@pytest.mark.parametrize("command", ["quantize --scheme nf4", "dequantize"])
def test_a_state_that_is_no_state_is_refused_by_its_size(tmp_path: Path, command: str) -> None:
    key, size = "x.quant_state.bitsandbytes__nf4", 100_000_000
    header = {"x": describe("U8", [8], 0, 8), key: describe("U8", [size], 8, 8 + size)}
    with (tmp_path / "in.st").open("wb") as file:
        file.write(pack(header, b""))
        file.truncate(file.tell() + 8 + size)
    name, *options = command.split()
    arguments = (name, tmp_path / "in.st", tmp_path / "out.st", *options)
    child = planq_process(*arguments, before=REPORT_PEAK)
    _, err = child.communicate(timeout=120)
    said, peak = err.splitlines()
    assert child.returncode == 2
    assert (
        f"quant_state.bitsandbytes__nf4: expected JSON of at most 65536 bytes, got {size}" in said
    )
    assert int(peak) * 1024 < size + 50e6, "an interpreter with NumPy takes this much without it"


def test_reading_takes_no_room_for_a_file(tmp_path: Path) -> None:
    """Where no file may be larger than these, in memory or on a disk, all of them are read."""
    source, target = checkpoint(tmp_path / "in.st", {"w": weight(64, 256)}), tmp_path / "out.st"
    child = planq_process("quantize", source, target, "--scheme", "int8-channel")
    assert child.communicate(timeout=120)[1] == ""
    assert target.stat().st_size < 20_000 < source.stat().st_size
    child = planq_process("verify", source, target, before=LIMIT)
    out, err = child.communicate(timeout=120)
    assert (child.returncode, err) == (0, "")
    assert out == "1 weight quantized again: every byte is equal\n"
