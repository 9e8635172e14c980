"""`planq quantize --calibrate`: scales of given ranges, and files of ranges that are refused."""

from __future__ import annotations

import hashlib
import json
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cli.commands import marked, refuse, report
from cli.expected import SCHEMES, calibrated, dequantized
from cli.files import Array, checkpoint, load, weight
from planq.audit.reference.formats import bits
from planq.cli import main

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]

DTYPES = ("float16", "bfloat16", "float32", "float64")
ROWS, COLUMNS = 5, 300


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with two weights and what is none."""
    tensors = {"a": weight(2, 3), "b": weight(2, 3, seed=1), "bias": weight(1, 2).reshape(2)}
    return checkpoint(tmp_path / "in.st", tensors)


def write(source: Path, ranges: object) -> Path:
    """Writes a file of ranges next to the input."""
    path = source.with_name("ranges.json")
    path.write_text(ranges if isinstance(ranges, str) else json.dumps(ranges))
    return path


def scales_shape(scheme: str) -> tuple[int, ...]:
    """The shape of the scales of a weight of ROWS by COLUMNS."""
    return {"tensor": (1,), "channel": (ROWS,), "group": (ROWS, 3)}[SCHEMES[scheme][1][0]]


def some_ranges(shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Ranges inside and outside of the data, off and across zero, and one without extent."""
    generator = np.random.default_rng(7)
    low = generator.standard_normal(shape) * 4 - 2
    high = low + generator.random(shape) * 40
    high.flat[0] = low.flat[0]
    return low, high


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_codes_and_scales_are_those_of_the_numeric_contract(
    tmp_path: Path, capsys: Capture, scheme: str, dtype: str
) -> None:
    values = weight(ROWS, COLUMNS, dtype)
    source = checkpoint(tmp_path / "in.st", {"w": values})
    low, high = some_ranges(scales_shape(scheme))
    ranges = write(source, {"w": {"low": low.tolist(), "high": high.tolist()}})
    target = tmp_path / "out.st"
    told = report(
        capsys, "quantize", source, target, "--scheme", scheme, "--calibrate", ranges, "--verify"
    )
    made, want = load(target).tensors, calibrated(values, scheme, low, high)
    assert np.array_equal(bits(made["w"]), bits(want.output))
    assert made["w_scale"].dtype == want.scale.dtype
    assert np.array_equal(bits(np.ravel(made["w_scale"])), bits(np.ravel(want.scale)))
    if want.zero_point is not None:
        assert np.array_equal(np.ravel(made["w_zero_point"]), want.zero_point)
    (row,) = told["tensors"]
    x = values.astype(np.float64)
    noise = ((x - dequantized(want, scheme, COLUMNS)) ** 2).sum()
    assert row["sqnr_db"] == pytest.approx(10 * math.log10((x**2).sum() / noise), abs=1e-6)
    assert row["sku"].startswith("quantize/host/")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("form", "low", "high"),
    [
        ({"low": -3, "high": 2.5}, -3.0, 2.5),
        ({"low": 1, "high": 2}, 1.0, 2.0),
        ({"absmax": 2.75}, -2.75, 2.75),
        ({"absmax": 0}, 0.0, 0.0),
    ],
    ids=["both ends", "off zero", "absmax", "nothing"],
)
def test_one_number_is_for_every_scale(
    tmp_path: Path, capsys: Capture, scheme: str, form: dict[str, float], low: float, high: float
) -> None:
    values = weight(ROWS, COLUMNS)
    source = checkpoint(tmp_path / "in.st", {"w": values})
    shape = scales_shape(scheme)
    lists = {key: np.full(shape, value).tolist() for key, value in form.items()}
    want = calibrated(values, scheme, np.full(shape, low), np.full(shape, high))
    for number, given in enumerate((form, lists)):
        target, ranges = tmp_path / f"{number}.st", write(source, {"w": given})
        report(capsys, "quantize", source, target, "--scheme", scheme, "--calibrate", ranges)
        made = load(target).tensors
        assert np.array_equal(bits(made["w"]), bits(want.output))
        assert np.array_equal(bits(np.ravel(made["w_scale"])), bits(np.ravel(want.scale)))


@pytest.mark.parametrize("scheme", ["int8-channel", "uint8-channel"])
def test_the_ranges_that_planq_would_measure_give_the_same_tensors(
    tmp_path: Path, capsys: Capture, scheme: str
) -> None:
    values = weight(ROWS, COLUMNS, "bfloat16")
    source = checkpoint(tmp_path / "in.st", {"w": values})
    ends = {"low": values.min(axis=1), "high": values.max(axis=1)}
    ranges = write(source, {"w": {key: end.astype(float).tolist() for key, end in ends.items()}})
    arguments = ("--scheme", scheme, "--calibrate", ranges)
    report(capsys, "quantize", source, tmp_path / "given.st", *arguments)
    report(capsys, "quantize", source, tmp_path / "measured.st", "--scheme", scheme)
    given, measured = load(tmp_path / "given.st").tensors, load(tmp_path / "measured.st").tensors
    assert {name: data.tobytes() for name, data in given.items()} == {
        name: data.tobytes() for name, data in measured.items()
    }


def test_the_metadata_says_that_and_from_what_scales_were_calibrated(
    source: Path, capsys: Capture
) -> None:
    ranges = write(source, {"a": {"absmax": 3}, "b": {"absmax": 4}})
    target = source.with_name("out.st")
    arguments = ("--scheme", "int8-channel", "--calibrate", ranges)
    told = report(capsys, "quantize", source, target, *arguments)
    metadata = load(target).metadata
    digest = hashlib.sha256(ranges.read_bytes()).hexdigest()
    assert metadata["planq.calibrated"] == told["calibrated"] == digest
    assert json.loads(metadata["planq.descriptor"])["op"] == "quantize"
    report(capsys, "quantize", source, target, "--scheme", "int8-channel", "--force")
    assert "planq.calibrated" not in load(target).metadata


def test_a_file_of_ranges_serves_a_part_of_the_weights(source: Path, capsys: Capture) -> None:
    ranges = write(source, {"a": {"absmax": 3}, "b": {"absmax": 4}})
    arguments = ("--scheme", "int8-tensor", "--calibrate", ranges, "--include", "a")
    told = report(capsys, "quantize", source, source.with_name("out.st"), *arguments)
    assert [row["name"] for row in told["tensors"]] == ["a"]


def test_an_empty_weight_takes_a_range(tmp_path: Path, capsys: Capture) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(0, 8), "v": weight(3, 0)})
    ranges = write(source, {"w": {"absmax": []}, "v": {"low": -1, "high": 1}})
    arguments = ("--scheme", "uint8-channel", "--calibrate", ranges, "--verify")
    report(capsys, "quantize", source, tmp_path / "out.st", *arguments)
    made = load(tmp_path / "out.st").tensors
    assert (made["w_scale"].shape, made["v_scale"].shape) == ((0, 1), (3, 1))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_values_that_are_not_finite_are_counted_and_keep_the_given_scale(
    tmp_path: Path, capsys: Capture, scheme: str
) -> None:
    values = weight(ROWS, COLUMNS)
    values[2, 7:10] = np.nan, np.inf, -np.inf
    source = checkpoint(tmp_path / "in.st", {"w": values, "sound": weight(2, 2)})
    ranges = write(source, {"w": {"absmax": 2}, "sound": {"absmax": 2}})
    arguments = ["quantize", source, tmp_path / "out.st", "--scheme", scheme]
    arguments += ["--calibrate", ranges, "--verify"]
    told = marked(capsys, *arguments)
    row = next(row for row in told["tensors"] if row["name"] == "w")
    assert (row["status"], row["non_finite_values"]) == ("not_finite", 3)
    assert (row["sqnr_db"], row["max_error"]) == (None, None)
    shape = scales_shape(scheme)
    want = calibrated(values, scheme, np.full(shape, -2.0), np.full(shape, 2.0))
    assert np.array_equal(bits(load(tmp_path / "out.st").tensors["w"]), bits(want.output))
    assert main([*map(str, arguments), "--force"]) == 1
    shown = capsys.readouterr().out
    assert "NOT FINITE (3)" in shown
    assert "n values are a NaN" in shown


GOOD = {"absmax": 1}
DEEP: Any = json.loads("[" * 60 + "1" + "]" * 60)
BAD: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "ranges.json: not a JSON file of ranges: "),
    "no object": ([1], "expected a JSON object"),
    "too deep": ("[" * 100_000, "not a JSON file of ranges"),
    "a name twice": ('{"a": {"absmax": 1}, "a": {"absmax": 2}}', "the name 'a' appears twice"),
    "a NaN": ('{"a": {"absmax": NaN}}', "NaN is no number"),
    "an infinity": ('{"a": {"low": -Infinity, "high": 0}}', "-Infinity is no number"),
    "a weight without": ({"a": GOOD}, "no range for 'b'"),
    "no such tensor": ({"a": GOOD, "b": GOOD, "c": GOOD}, "'c' is no weight of the input"),
    "no weight": ({"a": GOOD, "b": GOOD, "bias": GOOD}, "'bias' is no weight of the input"),
    "a number alone": ({"a": 1, "b": GOOD}, "'a': expected {\"low\": ..."),
    "one end": ({"a": {"low": 1}, "b": GOOD}, "'a': expected {\"low\": ..."),
    "both forms": ({"a": {"low": 0, "high": 1, "absmax": 1}, "b": GOOD}, "'a': expected {"),
    "an absmax and more": ({"a": {"absmax": 1, "low": 1}, "b": GOOD}, "'a': expected {"),
    "a text": ({"a": {"absmax": "1"}, "b": GOOD}, "'a': absmax: expected a number"),
    "a truth": ({"a": {"absmax": True}, "b": GOOD}, "'a': absmax: expected a number"),
    "nothing": ({"a": {"low": None, "high": 1}, "b": GOOD}, "'a': low: expected a number"),
    "ragged lists": ({"a": {"low": 0, "high": [[1], 2]}, "b": GOOD}, "'a': high: expected a num"),
    "a truth in a list": ({"a": {"absmax": [1, True]}, "b": GOOD}, "'a': absmax: expected a num"),
    "another shape": ({"a": {"absmax": [1, 2, 3]}, "b": GOOD}, "or the shape [2], got the shape"),
    "three lists deep": ({"a": {"absmax": [[[1]]]}, "b": GOOD}, "'a': absmax: expected a number"),
    "60 lists deep": ({"a": {"absmax": DEEP}, "b": GOOD}, "'a': absmax: expected a number"),
    "60 in a list": ({"a": {"absmax": [1, DEEP]}, "b": GOOD}, "'a': absmax: expected a number"),
    "one in a list": ({"a": {"absmax": [1]}, "b": GOOD}, "or the shape [2], got the shape [1]"),
    "a negative absmax": ({"a": {"absmax": [1, -1]}, "b": GOOD}, "'a': absmax is negative"),
    "crossed": ({"a": {"low": [0, 2], "high": 1}, "b": GOOD}, "'a': low is above high"),
    "beyond float32": ({"a": {"absmax": 1e39}, "b": GOOD}, "'a': a value is beyond float32"),
    "beyond float64": (
        '{"a": {"absmax": 1e999}, "b": {"absmax": 1}}',
        "1e999 is beyond the numbers of double",
    ),
    "beyond all": ({"a": {"absmax": 10**400}, "b": GOOD}, "'a': absmax: expected a number"),
}


@pytest.mark.parametrize("ranges", BAD)
def test_a_file_of_ranges_that_does_not_fit_is_refused(
    source: Path, capsys: Capture, ranges: str
) -> None:
    content, said = BAD[ranges]
    path = write(source, content)
    arguments = ("--scheme", "int8-channel", "--calibrate", path)
    line = refuse(capsys, "quantize", source, source.with_name("out.st"), *arguments)
    assert str(path) in line
    assert said in line
    assert sorted(file.name for file in source.parent.iterdir()) == ["in.st", "ranges.json"]


def test_ranges_that_are_no_text_or_not_there_are_refused(source: Path, capsys: Capture) -> None:
    arguments = ["quantize", source, source.with_name("out.st"), "--scheme", "int8-channel"]
    path = source.with_name("ranges.json")
    line = refuse(capsys, *arguments, "--calibrate", path)
    assert line == f"planq: error: {path}: No such file or directory\n"
    path.write_bytes(b"\xff\xfe{}")
    assert "not a JSON file of ranges" in refuse(capsys, *arguments, "--calibrate", path)


def test_a_name_that_is_there_twice_is_found_at_once(source: Path, capsys: Capture) -> None:
    names = ",".join(f'"n{i}": 1' for i in range(60_000))
    path = write(source, f'{{{names}, "z": 1, "z": 2}}')
    arguments = ("--scheme", "int8-channel", "--calibrate", path)
    start = time.process_time()
    line = refuse(capsys, "quantize", source, source.with_name("out.st"), *arguments)
    assert "the name 'z' appears twice" in line
    assert time.process_time() - start < 5
