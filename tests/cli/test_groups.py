"""`planq quantize` of groups: sizes, zero points, searched scales and how good they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cli.commands import marked, refuse, report
from cli.files import Array, checkpoint, load, weight
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem, dynamic_range_quantize
from planq.audit.reference.formats import bits
from planq.checkpoint.job import Job, quantize_file
from planq.checkpoint.schemes import Scheme, Search, choose_groups
from planq.cli import main
from planq.executors import HostExecutor

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]

DTYPES = ("float16", "bfloat16", "float32", "float64")
SCHEMES = ("int4-group", "uint4-group")
FORMATS = ("plain", "compressed-tensors")
NAME = "a.q_proj.weight"


def hostile(dtype: str, columns: int = 256) -> Array:
    """Rows of noise, zeros, one outlier, subnormal numbers, one sign, one number, huge numbers."""
    noise = weight(9, columns, "float64", seed=3)
    noise[1] = 0.0
    noise[2, 5] = 1000.0
    kind = noise.astype(weight(1, 1, dtype).dtype).dtype
    tiny = {"float16": 2.0**-24, "float64": 5e-324}.get(dtype, 2.0**-149)
    largest = {"float16": 6e4, "float64": 1e308}.get(dtype, 3e38)
    noise[3] = np.arange(columns) % 9 * (tiny if dtype != "bfloat16" else 2.0**-133)
    noise[4] = -np.abs(noise[4])
    noise[5] = 0.25
    noise[6] = np.where(np.arange(columns) % 3, largest, -largest)
    return noise.astype(kind)


def ends_of(values: Array, size: int) -> tuple[Array, Array, Array]:
    """The groups of a weight, filled up with zeros, and their ends without these."""
    _rows, columns = values.shape
    spare = -columns % size
    groups = np.pad(values, ((0, 0), (0, spare))).reshape(-1, size)
    known = np.pad(np.ones(values.shape, bool), ((0, 0), (0, spare))).reshape(-1, size)
    wide = groups.astype(np.float64)
    low = np.where(known, wide, np.inf).min(axis=1)
    high = np.where(known, wide, -np.inf).max(axis=1)
    return groups, low, high


def parameters(low: Array, high: Array, scheme: str, form: str) -> tuple[Array, Array]:
    """Scales and zero points of ranges, by the formulas of planq or of compressed-tensors."""
    signed = scheme == "int4-group"
    if form == "plain":
        ends = np.stack([low, high], axis=-1)
        code, mode = ("int4", "symmetric") if signed else ("uint4", "asymmetric")
        problem = Problem(ends.shape, ends.dtype.name, code, ("token",), mode)
        made = dynamic_range_quantize(problem, ends)
        return made.scale, np.zeros(len(low)) if signed else made.zero_point
    kind = low.dtype.type
    lo, hi = np.minimum(low, kind(0)), np.maximum(high, kind(0))
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
    if signed:
        scale, zeros = np.maximum(-lo, hi) / kind(7.5), np.zeros(len(low))
    else:
        scale = (hi - lo) / kind(15)
        wide = (hi / kind(2) - lo / kind(2)) / kind(7.5)
        scale = np.where(np.isfinite(scale), scale, wide)
        place = np.clip((kind(-8) - lo / scale).astype(np.float64), -8, 7)
        zeros = np.where(np.isnan(place), 0, np.rint(place)) + 8
    return np.where(scale == 0, kind(eps[low.dtype.name]), scale), zeros


def coded(groups: Array, scale: Array, zeros: Array, scheme: str, form: str) -> Array:
    """``clamp(rne(x / scale) + zero_point)``."""
    wide = np.float64 if groups.dtype == np.float64 else np.float32
    steps = np.rint(groups.astype(wide) / scale.astype(wide)[:, None]).astype(np.float64)
    lowest = {"plain": -7, "compressed-tensors": -8}[form]
    ends = (lowest, 7) if scheme == "int4-group" else (0, 15)
    return np.clip(steps + zeros[:, None], *ends).astype(np.int64)


def halves(squares: Array) -> Array:
    """The sum over the last axis: second half to first half, again and again."""
    while squares.shape[-1] > 1:
        first, second = np.split(squares, 2, axis=-1)
        squares = first + second
    return squares[..., 0]


def expected(
    values: Array, size: int, search: str, scheme: str, form: str
) -> tuple[Array, Array, Array]:
    """Codes (groups, size), scales and zero points, by the documented formula."""
    groups, low, high = ends_of(values, size)
    wide = np.float64 if values.dtype == np.float64 else np.float32
    best: Any = None
    for step in range(33 if search == "mse" else 1):
        factor = (64 - step) / 64
        ends = [(factor * end).astype(values.dtype) for end in (low, high)]
        scale, zeros = parameters(*ends, scheme, form)
        codes = coded(groups, scale, zeros, scheme, form)
        numbers = (codes - zeros[:, None]).astype(wide) * scale.astype(wide)[:, None]
        restored = numbers.astype(values.dtype).astype(np.float64)
        error = halves(np.square(groups.astype(np.float64) - restored))
        if best is None:
            best = [error, codes, scale, zeros]
            continue
        better = error < best[0]
        for kept, found in zip(best, (error, codes, scale, zeros), strict=True):
            kept[better] = found[better]
    return best[1], best[2], best[3]


def nibbles(packed: Array, rows: int, columns: int) -> Array:
    """Codes of 4 bits, the low nibble first."""
    data = packed.view(np.uint8).reshape(rows, -1)
    return np.stack([data & 15, data >> 4], axis=-1).reshape(rows, -1)[:, :columns]


def stored(path: Path, name: str, shape: tuple[int, int], scheme: str) -> tuple[Array, ...]:
    """Codes as numbers, scales, and zero points, out of a file of either format."""
    tensors, signed = load(path).tensors, scheme == "int4-group"
    plain = name in tensors
    codes = nibbles(tensors[name if plain else f"{name}_packed"], *shape).astype(np.int64)
    if signed:
        codes = np.where(codes > 7, codes - 16, codes) if plain else codes - 8
    scale = tensors[f"{name}_scale"]
    if signed:
        assert f"{name}_zero_point" not in tensors
        return codes, scale, np.zeros(scale.shape)
    zeros = tensors[f"{name}_zero_point"]
    if not plain:
        words = zeros.view(np.uint32)
        zeros = np.stack([words >> 4 * place & 15 for place in range(8)], axis=1)
        assert not zeros.reshape(-1, words.shape[1])[shape[0] :].any()
        zeros = zeros.reshape(-1, words.shape[1])[: shape[0]]
    return codes, scale, zeros


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("size", "search"), [(32, "mse"), (64, "none"), (128, "mse")])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_codes_scales_and_zero_points_are_those_of_the_formula(
    tmp_path: Path, capsys: Capture, size: int, search: str, form: str, scheme: str, dtype: str
) -> None:
    values = hostile(dtype, 300 if form == "plain" else 256)
    source, target = checkpoint(tmp_path / "in.st", {NAME: values}), tmp_path / "out.st"
    options = ("--scheme", scheme, "--group-size", size, "--search", search, "--format", form)
    told = report(capsys, "quantize", source, target, *options, "--verify")
    assert (told["group_size"], told["search"]) == (size, search)
    codes, scale, zeros = stored(target, NAME, values.shape, scheme)
    wanted, scales, places = expected(values, size, search, scheme, form)
    assert np.array_equal(bits(scale), bits(scales.reshape(scale.shape)))
    assert np.array_equal(zeros, places.reshape(scale.shape))
    assert np.array_equal(codes, wanted.reshape(len(values), -1)[:, : values.shape[1]])
    assert main(["verify", str(source), str(target)]) == 0


def test_a_search_finds_less_error_and_its_bytes_do_not_depend_on_threads(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(300, 257)})
    made = {}
    for name, search, threads in (("a", "none", 1), ("b", "mse", 1), ("c", "mse", 3)):
        groups = choose_groups(Scheme.UINT4_GROUP, 64, Search(search))
        job = Job(source, tmp_path / name, Scheme.UINT4_GROUP, groups=groups, evaluate=True)
        told = quantize_file(job, HostExecutor(threads), lambda name, nbytes, total: None)
        assert told.tensors[0].fidelity
        made[name] = told.tensors[0].fidelity.relative_error
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    assert made["b"] == made["c"] < 0.98 * made["a"]


@pytest.mark.parametrize("factor", [1e-180, 1e200])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_equal_errors_leave_the_larger_scale(
    tmp_path: Path, capsys: Capture, scheme: str, form: str, factor: float
) -> None:
    """Squares that all underflow to 0, or all overflow: no range is better than the full one."""
    source = checkpoint(tmp_path / "in.st", {NAME: weight(3, 64, "float64") * factor})
    made = []
    for search in ("none", "mse"):
        target = tmp_path / f"{search}.st"
        options = ("--scheme", scheme, "--group-size", 32, "--format", form, "--search", search)
        report(capsys, "quantize", source, target, *options)
        made.append(load(target).tensors)
    assert made[0].keys() == made[1].keys()
    assert all(np.array_equal(bits(made[0][name]), bits(made[1][name])) for name in made[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_search_takes_weights_of_any_shape(
    tmp_path: Path, capsys: Capture, scheme: str, dtype: str
) -> None:
    """Without rows, without columns, of one element, and wider than what is compared at once."""
    shapes = {"empty": (0, 8), "thin": (4, 0), "one": (1, 1), "wide": (2, 70_001)}
    tensors = {name: weight(*shape, dtype) for name, shape in shapes.items()}
    source, target = checkpoint(tmp_path / "in.st", tensors), tmp_path / "out.st"
    options = ("--scheme", scheme, "--search", "mse", "--verify", "--evaluate")
    told = report(capsys, "quantize", source, target, *options)
    assert [row["cosine"] is None for row in told["tensors"]] == [True, True, False, False]
    for name, shape in list(shapes.items())[2:]:
        codes, scale, zeros = stored(target, name, shape, scheme)
        wanted, scales, places = expected(tensors[name], 128, "mse", scheme, "plain")
        assert np.array_equal(codes, wanted.reshape(shape[0], -1)[:, : shape[1]])
        assert np.array_equal(bits(scale), bits(scales.reshape(scale.shape)))
        assert np.array_equal(zeros, places.reshape(scale.shape))


def restored_from(target: Path, status: int = 0) -> dict[str, Array]:
    """What `planq dequantize` makes of a file, with this exit status."""
    back = target.with_name("back.st")
    assert main(["dequantize", str(target), str(back)]) == status
    return load(back).tensors


@pytest.mark.parametrize("scheme", ["int4-group128", "uint4-group", "int8-channel", "nf4"])
def test_evaluate_compares_weights_as_they_are_read(
    tmp_path: Path, capsys: Capture, scheme: str
) -> None:
    tensors = {"a": weight(5, 300, "float16"), "b": weight(40, 64), "zero": np.zeros((2, 8), "f4")}
    source, target = checkpoint(tmp_path / "in.st", tensors), tmp_path / "out.st"
    told = report(capsys, "quantize", source, target, "--scheme", scheme, "--evaluate")
    back = restored_from(target)
    pairs = [(tensors[name].astype("f8"), back[name].astype("f8")) for name in ("a", "b")]
    flat = tuple(
        np.concatenate([each.ravel() for each in side]) for side in zip(*pairs, strict=True)
    )
    for row, (x, y) in zip((*told["tensors"][:2], told["evaluated"]), (*pairs, flat), strict=True):
        cosine = (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())
        error = np.sqrt(np.square(x - y).sum() / (x * x).sum())
        assert row["cosine"] == pytest.approx(cosine, rel=1e-12)
        assert row["relative_error"] == pytest.approx(error, rel=1e-9)
    assert told["tensors"][2]["cosine"] is told["tensors"][2]["relative_error"] is None


def test_evaluate_shows_a_line_of_the_table_for_each_weight_and_the_total(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    source = checkpoint(tmp_path / "in.st", {"a": weight(4, 64), "b": weight(4, 64, seed=1)})
    command = ["quantize", str(source), str(tmp_path / "out.st"), "--scheme", "int4-group"]
    values = report(capsys, *command, "--evaluate")
    assert main([*command, "--evaluate", "--force"]) == 0
    printed = capsys.readouterr().out
    assert "cosine" in printed
    for row in (*values["tensors"], values["evaluated"]):
        assert f"{row['cosine']:.6f}" in printed
        assert f"{row['relative_error']:.4f}" in printed
    assert "all weights as they will be read: cosine " in printed
    assert report(capsys, *command, "--force")["evaluated"] is None


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_group_that_is_not_finite_is_marked_and_spoils_no_other(
    tmp_path: Path, capsys: Capture, scheme: str, form: str, bad: float
) -> None:
    values = weight(3, 128)
    options = ("--scheme", scheme, "--group-size", 32, "--search", "mse", "--format", form)
    sound = checkpoint(tmp_path / "sound.st", {NAME: values})
    report(capsys, "quantize", sound, tmp_path / "a.st", *options)
    values[1, 40] = bad
    spoiled = checkpoint(tmp_path / "spoiled.st", {NAME: values})
    told = marked(capsys, "quantize", spoiled, tmp_path / "b.st", *options)
    assert told["tensors"][0]["non_finite_segments"] == 1
    _, first, _ = stored(tmp_path / "a.st", NAME, values.shape, scheme)
    _, second, _ = stored(tmp_path / "b.st", NAME, values.shape, scheme)
    assert np.isnan(second[1, 1])
    others = np.arange(first.size).reshape(first.shape) != first.shape[1] + 1
    assert np.array_equal(bits(first[others]), bits(second[others]))
    restored = restored_from(tmp_path / "b.st", status=1)[NAME]
    assert np.isnan(restored[1, 32:64]).all()
    assert np.isnan(restored).sum() == 32


def test_given_ranges_go_with_groups_of_any_size(tmp_path: Path, capsys: Capture) -> None:
    source, ranges = checkpoint(tmp_path / "in.st", {"w": weight(2, 64)}), tmp_path / "r.json"
    ranges.write_text(json.dumps({"w": {"low": [[-3, -3]] * 2, "high": [[3, 4.5]] * 2}}))
    options = ("--scheme", "uint4-group", "--group-size", 32, "--calibrate", ranges)
    report(capsys, "quantize", source, tmp_path / "out.st", *options)
    scale = load(tmp_path / "out.st").tensors["w_scale"]
    assert np.array_equal(scale, np.float32([[6 / 15, 0.5]] * 2))


ALL = "int4-group128, int4-group, uint4-group"
REFUSED = [
    (
        "int8-channel --group-size 32",
        f"--group-size: expected one of the schemes {ALL}, got int8-channel",
    ),
    ("nf4 --search mse", f"--search: expected one of the schemes {ALL}, got nf4"),
    (
        "int4-group --group-size 48",
        "--group-size: expected groups of 32, 64 or 128 elements, got 48",
    ),
    ("int4-group128 --group-size 32", "--group-size: expected groups of 128 elements, got 32"),
    (
        "int4-group --search mse --calibrate ranges.json",
        "--search: expected ranges that are measured, got --calibrate",
    ),
    (
        "uint4-group --group-size 64 --format compressed-tensors",
        f"tensor '{NAME}': compressed-tensors: a width of 96 is no multiple of 64; --exclude it",
    ),
    (
        "uint4-group --format bitsandbytes",
        "--scheme: bitsandbytes has int8-channel, nf4, fp4, got uint4-group",
    ),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: Capture, arguments: str, said: str
) -> None:
    source = checkpoint(tmp_path / "in.st", {NAME: weight(2, 96)})
    command = ("quantize", source, tmp_path / "out.st", "--scheme", *arguments.split())
    assert said in refuse(capsys, *command)
    assert [path.name for path in tmp_path.iterdir()] == ["in.st"]
