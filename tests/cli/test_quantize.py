"""`planq quantize` on sound files: every value, every byte, every word that a program reads."""

from __future__ import annotations

import hashlib
import json
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open

import planq
from cli.commands import report
from cli.expected import SCHEMES, dequantized, measured
from cli.files import Array, checkpoint, describe, load, pack, weight
from planq.audit.reference.formats import bits
from planq.checkpoint.job import Job, quantize_file
from planq.checkpoint.schemes import Scheme
from planq.cli import main
from planq.executors import HostExecutor

if TYPE_CHECKING:
    from pathlib import Path

DTYPES = ("float16", "bfloat16", "float32", "float64")
FORMATS = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


def model(dtype: str) -> dict[str, Array]:
    """A model with weights of every awkward shape, and with all that is no weight."""
    return {
        "a.weight": weight(5, 300, dtype, seed=1),
        "b.weight": weight(3, 129, dtype, seed=2),
        "c.weight": weight(1, 1, dtype, seed=3),
        "wide.weight": weight(2, 40_001, dtype, seed=4),
        "zero.weight": np.zeros((4, 8), weight(1, 1, dtype).dtype),
        "empty.weight": weight(0, 8, dtype),
        "flags": np.arange(3, dtype=np.uint8),
        "a.bias": weight(1, 300, dtype).reshape(300),
        "conv": weight(4, 6, dtype).reshape(4, 3, 2),
        "ids": np.arange(7).reshape(1, 7),
        "codes": np.arange(-4, 4, dtype=np.int8).reshape(2, 4),
    }


def quantize(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """The report of a run that succeeds."""
    return report(capsys, "quantize", *arguments)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_codes_and_scales_are_those_of_the_numeric_contract(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str, dtype: str
) -> None:
    tensors = model(dtype)
    source = checkpoint(tmp_path / "in.safetensors", tensors)
    told = quantize(capsys, source, tmp_path / "out.safetensors", "--scheme", scheme)
    made = load(tmp_path / "out.safetensors")
    rows = {row["name"]: row for row in told["tensors"]}
    assert list(rows) == [name for name in tensors if name.endswith(".weight")]
    for name, row in rows.items():
        want = measured(tensors[name], scheme)
        codes, scale = made.tensors[name], made.tensors[f"{name}_scale"]
        assert np.array_equal(bits(codes), bits(want.output)), name
        assert scale.dtype == want.scale.dtype
        assert np.array_equal(bits(scale.reshape(want.scale.shape)), bits(want.scale)), name
        assert row["tensor_sha256"][name] == hashlib.sha256(want.output.tobytes()).hexdigest()
        assert row["bytes_before"] == tensors[name].nbytes
        stored = codes.nbytes + scale.nbytes
        if want.zero_point is not None:
            zero_point = made.tensors[f"{name}_zero_point"]
            assert np.array_equal(zero_point, want.zero_point[:, None]), name
            assert zero_point.dtype == np.int32
            stored += zero_point.nbytes
        assert row["bytes_after"] == stored
        assert (row["dtype"], row["shape"]) == (FORMATS[dtype], list(tensors[name].shape))
        assert row["status"] == "ok"
        assert row["guarantee"]["determinism"] == "bit_exact"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_everything_else_is_copied_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    tensors = model("bfloat16")
    source = checkpoint(tmp_path / "in.safetensors", tensors)
    told = quantize(capsys, source, tmp_path / "out.safetensors", "--scheme", scheme)
    made = load(tmp_path / "out.safetensors").tensors
    rest = [name for name in tensors if not name.endswith(".weight")]
    for name in rest:
        assert made[name].dtype == tensors[name].dtype
        assert made[name].shape == tensors[name].shape
        assert made[name].tobytes() == tensors[name].tobytes()
    copied = sum(tensors[name].nbytes for name in rest)
    assert told["copied"] == {"tensors": len(rest), "bytes": copied}
    weights = [name for name in tensors if name.endswith(".weight")]
    suffixes = ("", "_scale", "_zero_point") if scheme == "uint8-channel" else ("", "_scale")
    assert set(made) == {*rest, *(name + suffix for name in weights for suffix in suffixes)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_noise_ratio_is_that_of_the_dequantized_weight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str, dtype: str
) -> None:
    tensors = {"tall": weight(700, 260, dtype, seed=5), "wide": weight(3, 40_001, dtype, seed=6)}
    source = checkpoint(tmp_path / "in.safetensors", tensors)
    told = quantize(capsys, source, tmp_path / "out.safetensors", "--scheme", scheme)
    for row in told["tensors"]:
        x = tensors[row["name"]].astype(np.float64)
        back = dequantized(measured(tensors[row["name"]], scheme), scheme, x.shape[1])
        want = 10 * math.log10((x**2).sum() / ((x - back) ** 2).sum())
        assert row["sqnr_db"] == pytest.approx(want, abs=1e-6)


def test_a_ratio_without_noise_or_without_signal_is_null_in_json_and_a_word_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = {
        "exact": np.array([[127.0, -3.0, 0.0]], np.float32),
        "zero": np.zeros((2, 2), np.float32),
        "empty": np.zeros((0, 2), np.float32),
    }
    source, target = checkpoint(tmp_path / "in.st", tensors), tmp_path / "out.st"
    told = quantize(capsys, source, target, "--scheme", "int8-channel")
    assert [row["sqnr_db"] for row in told["tensors"]] == [None, None, None]
    arguments = [str(source), str(target), "--scheme", "int8-channel", "--force", "--table"]
    assert main(["quantize", *arguments]) == 0
    table = capsys.readouterr().out
    words = {line.split()[0]: line for line in table.splitlines() if line.split()}
    assert "exact" in words["exact"].split()[1:]
    assert "no signal" in words["zero"]
    assert "no signal" in words["empty"]


def test_the_metadata_says_how_to_read_the_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"format": "pt", "note": "kept, with 'quotes' and ünïcode"}
    tensors = {"w": weight(4, 257, "bfloat16"), "b": weight(1, 4).reshape(4)}
    source = checkpoint(tmp_path / "in.st", tensors, own)
    quantize(capsys, source, tmp_path / "out.st", "--scheme", "int4-group128")
    metadata = load(tmp_path / "out.st").metadata
    assert {key: metadata[key] for key in own} == own
    build = planq.build_info()
    assert metadata["planq.scheme"] == "int4-group128"
    assert metadata["planq.version"] == build.version
    assert metadata["planq.build_id"] == build.build_id
    assert json.loads(metadata["planq.tensors"]) == {"w": {"dtype": "BF16", "shape": [4, 257]}}
    facts = json.loads(metadata["planq.descriptor"])
    original = {"shape": [4, 257], "input_dtype": "bfloat16"}
    desc = planq.DynamicRangeQuantizeDescriptor.from_json(json.dumps({**facts, **original}))
    assert desc.output_dtype is planq.DType.INT4
    assert desc.nibble_order is planq.NibbleOrder.LOW_FIRST
    assert desc.scope == planq.Scope.group(128, 1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_loaders_read_the_file_and_scales_broadcast_over_the_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    tensors = {"w": weight(6, 256), "v": weight(6, 129)}
    source = checkpoint(tmp_path / "in.st", tensors, {"format": "pt"})
    quantize(capsys, source, tmp_path / "out.st", "--scheme", scheme)
    shapes = {
        "int8-channel": ("I8", [6, 256], [6, 1]),
        "int8-tensor": ("I8", [6, 256], [1]),
        "uint8-channel": ("U8", [6, 256], [6, 1]),
        "int4-group128": ("U8", [6, 128], [6, 2]),
        "fp8-channel": ("F8_E4M3", [6, 256], [6, 1]),
    }
    with safe_open(tmp_path / "out.st", framework="numpy") as opened:
        names = set(opened.keys()) - {"v_zero_point", "w_zero_point"}
        assert names == {"v", "v_scale", "w", "w_scale"}
        codes, scale = opened.get_slice("w"), opened.get_slice("w_scale")
        assert (codes.get_dtype(), codes.get_shape(), scale.get_shape()) == shapes[scheme]
        assert opened.metadata()["format"] == "pt"


def test_every_payload_of_the_output_is_aligned_to_its_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = checkpoint(tmp_path / "in.st", model("float16"))
    quantize(capsys, source, tmp_path / "out.st", "--scheme", "int8-channel")
    made = load(tmp_path / "out.st")
    for name, values in made.tensors.items():
        assert made.offsets[name] % values.dtype.itemsize == 0, name


def test_a_payload_at_an_odd_address_is_read_like_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = weight(16, 300)
    header = {"byte": describe("U8", [1], 0, 1), "w": describe("F32", [16, 300], 1, 19201)}
    source = tmp_path / "odd.st"
    source.write_bytes(pack(header, b"\x07" + values.tobytes()))
    quantize(capsys, source, tmp_path / "out.st", "--scheme", "int8-channel")
    made = load(tmp_path / "out.st").tensors
    want = measured(values, "int8-channel")
    assert np.array_equal(made["w"], want.output)
    assert made["byte"].tobytes() == b"\x07"


def test_include_chooses_weights_by_a_part_of_their_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = {f"layer.{n}.{kind}": weight(2, 8) for n in (1, 2, 12) for kind in ("q", "k")}
    source = checkpoint(tmp_path / "in.st", tensors)
    arguments = ("--scheme", "int8-tensor", "--include", r"\.1\d?\.q$")
    told = quantize(capsys, source, tmp_path / "out.st", *arguments)
    assert [row["name"] for row in told["tensors"]] == ["layer.1.q", "layer.12.q"]
    assert told["copied"]["tensors"] == 4
    assert load(tmp_path / "out.st").tensors["layer.2.q"].dtype == np.float32


def test_the_file_does_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(513, 700), "v": weight(64, 4096)})
    outputs = []
    for threads in (1, 2, 5):
        job = Job(source, tmp_path / f"{threads}.st", Scheme.INT8_TENSOR)
        quantize_file(job, HostExecutor(threads), lambda name, nbytes, total: None)
        outputs.append(job.target.read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]


def test_totals_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = checkpoint(tmp_path / "in.st", model("float32")), tmp_path / "out.st"
    told = quantize(capsys, source, target, "--scheme", "fp8-channel")
    totals, rows = told["totals"], told["tensors"]
    assert totals["file_bytes_before"] == source.stat().st_size
    assert totals["file_bytes_after"] == target.stat().st_size
    assert totals["weight_bytes_before"] == sum(row["bytes_before"] for row in rows)
    assert totals["weight_bytes_after"] == sum(row["bytes_after"] for row in rows)
    assert totals["gb_per_s"] == pytest.approx(source.stat().st_size / totals["seconds"] / 1e9)
    assert 0 < totals["kernel_seconds"] < totals["seconds"]


def test_the_table_has_a_whole_line_for_every_weight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["[bold]markup[/bold]", "tab\tand\x1b[31mescape", "x" * 200]
    source = checkpoint(tmp_path / "in.st", {name: weight(2, 64) for name in names})
    told = quantize(capsys, source, tmp_path / "1.st", "--scheme", "int8-channel")
    arguments = [str(source), str(tmp_path / "2.st"), "--scheme", "int8-channel", "--table"]
    assert main(["quantize", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "\x1b" not in printed.out
    shown = ("[bold]markup[/bold]", r"tab\tand\x1b[31mescape", "x" * 200)
    for name, row in zip(shown, told["tensors"], strict=True):
        (line,) = [line for line in printed.out.splitlines() if line.strip().startswith(name)]
        for value in ("[1]", f"{row['sqnr_db']:.2f}", "512 B", row["digest"][:12]):
            assert value in line
    assert f"[1] {row['sku']}: BIT_EXACT, batch-invariant (3 weights)\n" in printed.out
    assert f"SHA-256 of the input: {told['source_sha256']}\n" in printed.out
    assert f"digest of the output: {told['digest']}\n" in printed.out
    assert "GB/s" in printed.out


def test_a_report_without_a_table_is_short_and_names_what_lost_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = {f"layer.{n}.{'x' * 60}": weight(4, 32, seed=n) for n in range(40)}
    worst = "layer.7.\x1bcoarse"
    tensors[worst] = np.array([[1e6, *([1.0] * 31)]], np.float32)
    source, target = checkpoint(tmp_path / "in.st", tensors), tmp_path / "out.st"
    told = quantize(capsys, source, target, "--scheme", "int8-tensor", "--verify")
    ratios = {row["name"]: row["sqnr_db"] for row in told["tensors"]}
    errors = {row["name"]: row["max_error"] for row in told["tensors"]}
    least, largest = min(ratios, key=ratios.__getitem__), max(errors, key=errors.__getitem__)
    assert largest == worst
    options = ["--scheme", "int8-tensor", "--verify", "--force"]
    assert main(["quantize", str(source), str(target), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("41 weights ")
    assert any(line.endswith("BIT_EXACT (41 weights)") for line in lines)
    span = f"SQNR {ratios[least]:.2f} to {max(ratios.values()):.2f} dB, least {least}"
    assert span in " ".join(lines)
    assert f"largest error {errors[worst]:.3g}, in layer.7.\\x1bcoarse" in lines


@pytest.mark.parametrize(("options", "rows"), [((), 10), (("--table",), 13)])
def test_weights_that_are_marked_are_always_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], rows: int
) -> None:
    tensors = {f"nan.{n}": np.full((2, 4), np.nan, np.float32) for n in range(12)}
    source = checkpoint(tmp_path / "in.st", {"sound": weight(2, 4), **tensors})
    arguments = [str(source), str(tmp_path / "out.st"), "--scheme", "nf4"]
    assert main(["quantize", *arguments, *options]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert len([line for line in lines if line.startswith(("nan.", "sound "))]) == rows
    assert any(line.startswith("NOT FINITE (n): n segments hold") for line in lines)
    assert ("; --table shows 2 weights more" in " ".join(lines)) == (not options)


def test_force_replaces_the_output_and_the_new_file_has_the_usual_permissions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(2, 8)})
    target = tmp_path / "out.st"
    target.write_text("old")
    before = os.umask(0o027)
    try:
        quantize(capsys, source, target, "--scheme", "int8-channel", "--force")
    finally:
        os.umask(before)
    assert set(load(target).tensors) == {"w", "w_scale"}
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.st", "out.st"]


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if not scheme.startswith("int4")])
def test_torch_loads_the_file_and_multiplies_it_back_to_the_weight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    import torch
    from safetensors.torch import load_file

    values = weight(64, 384)
    source = checkpoint(tmp_path / "in.st", {"flag": np.ones(1, np.uint8), "w": values})
    quantize(capsys, source, tmp_path / "out.st", "--scheme", scheme)
    loaded = load_file(tmp_path / "out.st")
    steps = loaded["w"].to(torch.float32) - loaded.get("w_zero_point", 0)
    back = steps * loaded["w_scale"]
    step = loaded["w_scale"] * (16 if scheme == "fp8-channel" else 0.5)
    assert bool(((back - torch.from_numpy(values)).abs() <= step * 1.001).all())
