"""`planq quantize --verify`: what it measures, and what it notices."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cli.commands import marked, refuse, report
from cli.expected import SCHEMES, measured, restored
from cli.files import checkpoint, load, weight
from planq.checkpoint import job as job_module
from planq.checkpoint.stored import restore
from planq.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from planq.executors import Ran

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_largest_error_is_that_of_the_restored_weight(
    tmp_path: Path, capsys: Capture, scheme: str, dtype: str
) -> None:
    tensors = {
        "tall": weight(300, 260, dtype, seed=5),
        "wide": weight(3, 40_001, dtype, seed=6),
        "zero": np.zeros((2, 5), weight(1, 1, dtype).dtype),
        "empty": weight(0, 8, dtype),
    }
    source = checkpoint(tmp_path / "in.st", {**tensors, "bias": np.zeros(3, np.float32)})
    arguments = ("quantize", source, tmp_path / "out.st", "--scheme", scheme)
    told = report(capsys, *arguments, "--verify")
    assert told["verified"] is True
    assert [row["name"] for row in told["tensors"]] == list(tensors)
    for row in told["tensors"]:
        x = tensors[row["name"]]
        back = restored(measured(x, scheme), scheme, x.shape[1], dtype)
        assert row["restored_sha256"] == hashlib.sha256(back.tobytes()).hexdigest()
        errors = np.abs(x.astype(np.float64) - back.astype(np.float64))
        assert row["max_error"] == errors.max(initial=0.0)
    plain = report(capsys, *arguments, "--force")
    assert plain["verified"] is False
    assert plain["digest"] == told["digest"]
    assert {"max_error", "restored_sha256"}.isdisjoint(plain["tensors"][0])


def test_it_does_not_change_the_file(tmp_path: Path, capsys: Capture) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(64, 300), "bias": np.zeros(3)})
    made = []
    for options in ((), ("--verify",)):
        target = tmp_path / f"{len(options)}.st"
        report(capsys, "quantize", source, target, "--scheme", "uint8-channel", *options)
        made.append(target.read_bytes())
    assert made[0] == made[1]


def test_the_table_shows_the_errors_and_says_that_the_file_was_read(
    tmp_path: Path, capsys: Capture
) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": np.array([[127.0, 0.25]], np.float32)})
    arguments = ["quantize", str(source), str(tmp_path / "out.st"), "--scheme", "int8-tensor"]
    assert main([*arguments, "--verify", "--table"]) == 0
    shown = capsys.readouterr().out
    assert "SQNR dB   error   before" in shown
    assert "0.25" in next(line for line in shown.splitlines() if line.strip().startswith("w "))
    assert "verified: the file as read back dequantizes to the same bits" in shown
    assert main([*arguments, "--force", "--table"]) == 0
    plain = capsys.readouterr().out
    assert "error" not in plain
    assert "verified" not in plain


def test_a_weight_with_a_value_that_is_not_finite_has_no_largest_error(
    tmp_path: Path, capsys: Capture
) -> None:
    broken = weight(3, 8)
    broken[1, 1] = np.inf
    source = checkpoint(tmp_path / "in.st", {"broken": broken, "sound": weight(3, 8)})
    arguments = ("quantize", source, tmp_path / "out.st", "--scheme", "int8-channel", "--verify")
    rows = marked(capsys, *arguments)["tensors"]
    assert rows[0]["max_error"] is None
    assert rows[1]["max_error"] > 0


@pytest.mark.parametrize("part", ["w", "w_scale", "w_zero_point"])
def test_a_disk_that_gives_back_other_bytes_is_noticed_and_leaves_nothing(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    source = checkpoint(tmp_path / "in.st", {"v": weight(8, 16), "w": weight(8, 16)})
    arguments = ("--scheme", "uint8-channel")
    report(capsys, "quantize", source, tmp_path / "sound.st", *arguments)
    sound = load(tmp_path / "sound.st")
    (tmp_path / "sound.st").unlink()

    def spoil(fd: int, start: int, length: int, advice: int) -> None:
        at = sound.offsets[part]
        os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 1]), at)

    monkeypatch.setattr(os, "posix_fadvise", spoil)
    target = tmp_path / "out.st"
    line = refuse(capsys, "quantize", source, target, *arguments, "--verify")
    assert line.startswith(f"planq: error: {target}: tensor {part!r}: expected bytes of SHA-256 ")
    assert [path.name for path in tmp_path.iterdir()] == ["in.st"]


def test_codes_that_give_other_values_when_they_are_read_back_are_noticed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is sound, what computes with it is not."""

    def spoil(*arguments: Any) -> Ran:
        ran = restore(*arguments)
        ran.outputs["output"][0] ^= 1
        return ran

    monkeypatch.setattr(job_module, "restore", spoil)
    source, target = checkpoint(tmp_path / "in.st", {"w": weight(8, 16)}), tmp_path / "out.st"
    line = refuse(capsys, "quantize", source, target, "--scheme", "nf4", "--verify")
    said = f"{target}: 'w' dequantizes to other bits when it is read back"
    assert line == f"planq: error: {said}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["in.st"]


def test_a_header_that_is_read_back_damaged_is_noticed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(fd: int, start: int, length: int, advice: int) -> None:
        os.pwrite(fd, b"\x00", 8)

    monkeypatch.setattr(os, "posix_fadvise", spoil)
    source = checkpoint(tmp_path / "in.st", {"w": weight(8, 16)})
    arguments = ("--scheme", "int8-channel", "--verify")
    line = refuse(capsys, "quantize", source, tmp_path / "out.st", *arguments)
    assert "not a valid safetensors file" in line
    assert [path.name for path in tmp_path.iterdir()] == ["in.st"]
