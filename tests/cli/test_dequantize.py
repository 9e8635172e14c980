"""`planq dequantize`: every value, every copied byte, and files that are no such files."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cli.commands import marked, refuse, report
from cli.expected import SCHEMES, measured, restored
from cli.files import FORMAT, Array, checkpoint, load, weight
from cli.sealing import sealed
from planq.audit.reference.formats import bits
from planq.cli import main

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]

DTYPES = ("float16", "bfloat16", "float32", "float64")
OWN = {"format": "pt", "note": "kept"}


def weights(dtype: str) -> dict[str, Array]:
    """Weights of every awkward shape."""
    return {
        "a.weight": weight(5, 300, dtype, seed=1),
        "b.weight": weight(3, 129, dtype, seed=2),
        "c.weight": weight(1, 1, dtype, seed=3),
        "wide.weight": weight(2, 40_001, dtype, seed=4),
        "empty.weight": weight(0, 8, dtype),
    }


def others(dtype: str) -> dict[str, Array]:
    """What is no weight, one of them named like a scale."""
    return {
        "bias": weight(1, 300, dtype).reshape(300),
        "bias_scale": np.arange(3, dtype=np.uint8),
        "conv": weight(4, 6, dtype).reshape(4, 3, 2),
        "ids": np.arange(7).reshape(1, 7),
    }


@pytest.fixture
def quantized(tmp_path: Path, capsys: Capture) -> Path:
    """A small file with zero points."""
    source = checkpoint(tmp_path / "in.st", {"w": weight(4, 6), "bias": np.zeros(2, np.float32)})
    report(capsys, "quantize", source, tmp_path / "q.st", "--scheme", "uint8-channel")
    source.unlink()
    return tmp_path / "q.st"


@pytest.mark.parametrize("wanted", [None, "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_values_are_those_of_the_numeric_contract_and_the_rest_is_copied(
    tmp_path: Path, capsys: Capture, scheme: str, dtype: str, wanted: str | None
) -> None:
    tensors, rest = weights(dtype), others(dtype)
    source = checkpoint(tmp_path / "in.st", {**tensors, **rest}, OWN)
    report(capsys, "quantize", source, tmp_path / "q.st", "--scheme", scheme)
    options = ("--dtype", wanted) if wanted else ()
    target = tmp_path / "back.st"
    told = report(capsys, "dequantize", tmp_path / "q.st", target, *options)
    made = load(target)
    assert made.metadata == OWN
    assert set(made.tensors) == {*tensors, *rest}
    for row in told["tensors"]:
        x, values = tensors[row["name"]], made.tensors[row["name"]]
        want = restored(measured(x, scheme), scheme, x.shape[1], wanted or dtype)
        assert values.dtype == want.dtype
        assert np.array_equal(bits(values), bits(want)), row["name"]
        assert row["sha256"] == hashlib.sha256(want.tobytes()).hexdigest()
        assert (row["dtype"], row["shape"]) == (FORMAT[wanted or dtype], list(x.shape))
        assert row["sku"].startswith("dequantize/host/")
        assert row["guarantee"]["determinism"] == "bit_exact"
        assert row["bytes_after"] == want.nbytes
        assert (row["status"], row["non_finite_values"]) == ("ok", 0)
    assert {row["name"] for row in told["tensors"]} == set(tensors)
    for name, values in rest.items():
        assert made.tensors[name].dtype == values.dtype
        assert made.tensors[name].shape == values.shape
        assert made.tensors[name].tobytes() == values.tobytes()


def test_totals_add_up(tmp_path: Path, capsys: Capture) -> None:
    source = checkpoint(tmp_path / "in.st", {**weights("float16"), **others("float16")})
    quantized, target = tmp_path / "q.st", tmp_path / "back.st"
    before = report(capsys, "quantize", source, quantized, "--scheme", "uint8-channel")
    told = report(capsys, "dequantize", quantized, target)
    totals = told["totals"]
    assert totals["weight_bytes_before"] == before["totals"]["weight_bytes_after"]
    assert totals["weight_bytes_after"] == before["totals"]["weight_bytes_before"]
    assert totals["file_bytes_before"] == quantized.stat().st_size
    assert totals["file_bytes_after"] == target.stat().st_size
    assert told["copied"] == before["copied"]


def test_a_restored_file_is_quantized_like_any_other(tmp_path: Path, capsys: Capture) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": np.arange(-127.0, 128.0).reshape(1, 255)})
    first, back, second = (tmp_path / name for name in ("1.st", "back.st", "2.st"))
    report(capsys, "quantize", source, first, "--scheme", "int8-channel")
    report(capsys, "dequantize", first, back)
    assert np.array_equal(load(back).tensors["w"], load(source).tensors["w"])
    report(capsys, "quantize", back, second, "--scheme", "int8-channel")
    once, again = load(first), load(second)
    assert {name: values.tobytes() for name, values in once.tensors.items()} == {
        name: values.tobytes() for name, values in again.tensors.items()
    }
    own = ("planq.digest", "planq.source_sha256")
    assert {key for key, text in once.metadata.items() if again.metadata[key] != text} == {*own}


def test_calibrated_weights_are_restored_too(tmp_path: Path, capsys: Capture) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": np.array([[2.0, -9.0, 0.5]], np.float32)})
    ranges = tmp_path / "ranges.json"
    ranges.write_text(json.dumps({"w": {"absmax": 127}}))
    arguments = ("--scheme", "int8-tensor", "--calibrate", ranges)
    report(capsys, "quantize", source, tmp_path / "q.st", *arguments)
    report(capsys, "dequantize", tmp_path / "q.st", tmp_path / "back.st")
    assert load(tmp_path / "back.st").tensors["w"].tolist() == [[2.0, -9.0, 0.0]]


def test_the_table_has_a_line_for_every_weight(quantized: Path, capsys: Capture) -> None:
    told = report(capsys, "dequantize", quantized, quantized.with_name("1.st"))
    assert main(["dequantize", str(quantized), str(quantized.with_name("2.st")), "--table"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    (row,) = told["tensors"]
    (line,) = [line for line in printed.out.splitlines() if line.strip().startswith("w ")]
    for value in ("[1]", "F32", "56 B", "96 B", row["sha256"][:12]):
        assert value in line
    assert f"[1] {row['sku']}: BIT_EXACT, batch-invariant (1 weight)\n" in printed.out
    assert f"digest of the input: {told['input_digest']}\n" in printed.out
    assert f"digest of the output: {told['digest']}\n" in printed.out
    assert "GB/s of codes and scales" in printed.out


def test_values_that_the_type_does_not_hold_are_marked(tmp_path: Path, capsys: Capture) -> None:
    values = np.array([[1e6, -1e6, 1.0], [1.0, 2.0, 3.0]], np.float32)
    source = checkpoint(tmp_path / "in.st", {"w": values, "v": values[1:]})
    report(capsys, "quantize", source, tmp_path / "q.st", "--scheme", "int8-channel")
    arguments = ["dequantize", str(tmp_path / "q.st"), str(tmp_path / "back.st")]
    told = marked(capsys, *arguments, "--dtype", "float16")
    rows = {row["name"]: row for row in told["tensors"]}
    assert (rows["w"]["status"], rows["w"]["non_finite_values"]) == ("not_finite", 2)
    assert (rows["v"]["status"], rows["v"]["non_finite_values"]) == ("ok", 0)
    assert main([*arguments, "--dtype", "float16", "--force"]) == 1
    shown = capsys.readouterr().out
    assert "NOT FINITE (2)" in shown
    assert "n restored values are a NaN or an infinity" in shown
    report(capsys, *arguments, "--dtype", "bfloat16", "--force")


def test_a_segment_that_was_not_finite_is_nan(tmp_path: Path, capsys: Capture) -> None:
    values = weight(3, 8, "bfloat16")
    values[1, 1] = np.inf
    source = checkpoint(tmp_path / "in.st", {"w": values})
    marked(capsys, "quantize", source, tmp_path / "q.st", "--scheme", "fp8-channel")
    told = marked(capsys, "dequantize", tmp_path / "q.st", tmp_path / "back.st")
    assert told["tensors"][0]["non_finite_values"] == 8
    back = bits(load(tmp_path / "back.st").tensors["w"])
    assert (back[1] == 0x7FC0).all()


def change(quantized: Path, key: str, value: object) -> None:
    """Writes the file again with another string of planq's metadata; None leaves it out.

    Its digests are those of what it is now, or it would be refused for them.
    """
    loaded = load(quantized)
    metadata = {name: text for name, text in loaded.metadata.items() if name != f"planq.{key}"}
    if value is not None:
        metadata[f"planq.{key}"] = value if isinstance(value, str) else json.dumps(value)
    checkpoint(quantized, loaded.tensors, sealed(loaded.tensors, metadata))


def change_tensors(quantized: Path, **changes: Array | None) -> None:
    """Writes the file again with other tensors; None leaves one out."""
    loaded = load(quantized)
    tensors = {**loaded.tensors, **changes}
    kept = {name: values for name, values in tensors.items() if values is not None}
    checkpoint(quantized, kept, sealed(kept, loaded.metadata))


TENSORS: dict[str, tuple[dict[str, Array | None], str]] = {
    "no codes": ({"w": None}, "no tensor 'w', expected U8 [4, 6]"),
    "no scale": ({"w_scale": None}, "no tensor 'w_scale', expected F32 [4, 1]"),
    "no zero point": ({"w_zero_point": None}, "no tensor 'w_zero_point', expected I32 [4, 1]"),
    "codes of another shape": (
        {"w": np.zeros((4, 7), np.uint8)},
        "tensor 'w': expected U8 [4, 6], found U8 [4, 7]",
    ),
    "codes of another type": (
        {"w": np.zeros((4, 6), np.int8)},
        "tensor 'w': expected U8 [4, 6], found I8 [4, 6]",
    ),
    "too few scales": (
        {"w_scale": np.ones((3, 1), np.float32)},
        "tensor 'w_scale': expected F32 [4, 1], found F32 [3, 1]",
    ),
    "scales in a row": (
        {"w_scale": np.ones(4, np.float32)},
        "tensor 'w_scale': expected F32 [4, 1], found F32 [4]",
    ),
    "wider scales": (
        {"w_scale": np.ones((4, 1), np.float64)},
        "tensor 'w_scale': expected F32 [4, 1], found F64 [4, 1]",
    ),
}


@pytest.mark.parametrize("damage", TENSORS)
def test_tensors_that_do_not_fit_the_metadata_are_refused(
    quantized: Path, capsys: Capture, damage: str
) -> None:
    changes, said = TENSORS[damage]
    change_tensors(quantized, **changes)
    line = refuse(capsys, "dequantize", quantized, quantized.with_name("out.st"))
    assert line == f"planq: error: {quantized}: {said}\n"
    assert [path.name for path in quantized.parent.iterdir()] == ["q.st"]


ORIGINAL = {"dtype": "F32", "shape": [4, 6]}
METADATA: dict[str, tuple[str, Any, str]] = {
    "no descriptor": ("descriptor", None, "metadata planq.descriptor is missing or damaged"),
    "no tensors": ("tensors", None, "metadata planq.tensors is missing or damaged"),
    "no weight": ("tensors", {}, "metadata planq.tensors is missing or damaged"),
    "a list": ("tensors", ["w"], "metadata planq.tensors is missing or damaged"),
    "no JSON": ("descriptor", "{", "metadata planq.descriptor is missing or damaged"),
    "too deep": ("tensors", "[" * 100_000, "metadata planq.tensors is missing or damaged"),
    "no fields": ("tensors", {"w": 1}, "metadata of 'w': expected a floating type and a shape"),
    "no float": ("tensors", {"w": {**ORIGINAL, "dtype": "I8"}}, "expected a floating type"),
    "no shape": ("tensors", {"w": {"dtype": "F32"}}, "expected a floating type and a shape"),
    "no extents": ("tensors", {"w": {**ORIGINAL, "shape": [4, "6"]}}, "metadata of 'w': shape: "),
    "negative": ("tensors", {"w": {**ORIGINAL, "shape": [-4, 6]}}, "metadata of 'w': shape: "),
    "huge": ("tensors", {"w": {**ORIGINAL, "shape": [2**62, 2**62]}}, "metadata of 'w': shape: "),
    "another shape": ("tensors", {"w": {**ORIGINAL, "shape": [4, 7]}}, "expected U8 [4, 7], found"),
    "another name": ("tensors", {"x": ORIGINAL}, "no tensor 'x', expected U8 [4, 6]"),
    "another operator": ("descriptor", {"op": "min_max"}, "metadata of 'w': "),
    "not a quantizer": ("descriptor", {"op": "fake_quantize"}, "makes no codes"),
    "an unknown field": ("descriptor", {"op": "quantize", "speed": 9}, "metadata of 'w': speed: "),
    "a missing field": ("descriptor", {"op": "quantize"}, "metadata of 'w': "),
}


@pytest.mark.parametrize("damage", METADATA)
def test_metadata_that_is_not_planqs_is_refused(
    quantized: Path, capsys: Capture, damage: str
) -> None:
    key, value, said = METADATA[damage]
    change(quantized, key, value)
    line = refuse(capsys, "dequantize", quantized, quantized.with_name("out.st"))
    assert line.startswith(f"planq: error: {quantized}: ")
    assert said in line
    assert [path.name for path in quantized.parent.iterdir()] == ["q.st"]


def test_a_file_that_planq_did_not_write_is_refused(tmp_path: Path, capsys: Capture) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(2, 2)}, OWN)
    line = refuse(capsys, "dequantize", source, tmp_path / "out.st")
    said = "in.st: not written by planq quantize or bitsandbytes, nothing to restore\n"
    assert line.endswith(said)
    source.write_bytes(b"no file")
    assert "not a valid safetensors file" in refuse(capsys, "dequantize", source, tmp_path / "o")
    assert [path.name for path in tmp_path.iterdir()] == ["in.st"]


def test_outputs_are_guarded_as_those_of_quantize(quantized: Path, capsys: Capture) -> None:
    before = quantized.read_bytes()
    line = refuse(capsys, "dequantize", quantized, quantized, "--force")
    assert "the output is the input" in line
    target = quantized.with_name("out.st")
    target.write_text("precious")
    assert "exists; --force replaces it" in refuse(capsys, "dequantize", quantized, target)
    assert target.read_text() == "precious"
    report(capsys, "dequantize", quantized, target, "--force")
    assert set(load(target).tensors) == {"w", "bias"}
    assert quantized.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dtype", "int8"), "'int8' is not one of 'float16', 'bfloat16', 'float32'"),
        (("--device", "tpu"), "expected host or cuda:N, got 'tpu'"),
        (("more",), "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_said_in_one_line(
    quantized: Path, capsys: Capture, arguments: tuple[str, ...], said: str
) -> None:
    line = refuse(capsys, "dequantize", quantized, quantized.with_name("out.st"), *arguments)
    assert said in line
    assert [path.name for path in quantized.parent.iterdir()] == ["q.st"]
