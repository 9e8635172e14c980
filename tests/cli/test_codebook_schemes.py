"""The schemes nf4, fp4, int4-af4 and dynamic8: files that planq and bitsandbytes both read."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.torch
import torch

import planq
from cli.commands import marked, refuse, report
from cli.files import FORMAT, Array, checkpoint, load, weight
from planq import codebooks
from planq.audit.ops.codebook.blockwise_dequantize.reference import BlockwiseDequantizeProblem
from planq.audit.ops.codebook.blockwise_quantize.reference import BlockwiseQuantizeProblem
from planq.audit.reference.formats import bits
from planq.cli import main
from support.bitsandbytes_host import Params4bit, bnb
from support.tensors import as_torch, from_torch

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]

CPU = torch.device("cpu")
PACKED = "quant_state.bitsandbytes__"
# The table, the type of the codes, the usual block, and what the state calls it.
SCHEMES = {
    "nf4": ("nf4", "uint4", 64, "nf4"),
    "fp4": ("fp4", "uint4", 64, "fp4"),
    "int4-af4": ("af4", "uint4", 64, "af4"),
    "dynamic8": ("dynamic", "uint8", 4096, None),
}
OPTIONS = ["", "--nested", "--block-size 100", "--nested --block-size 1"]
over_schemes = pytest.mark.parametrize("scheme", SCHEMES)
over_nested = pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
over_dtypes = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
over_their_types = pytest.mark.parametrize("quant_type", ["nf4", "fp4"])
over_their_dtypes = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])


def model(dtype: str) -> dict[str, Array]:
    """Weights of every awkward shape."""
    return {
        "a.weight": weight(5, 300, dtype, seed=1),
        "b.weight": weight(3, 129, dtype, seed=2),
        "c.weight": weight(1, 1, dtype, seed=3),
        "wide.weight": weight(2, 40_001, dtype, seed=4),
        "zero.weight": np.zeros((4, 8), weight(1, 1, dtype).dtype),
        "empty.weight": weight(0, 8, dtype),
    }


def others(dtype: str) -> dict[str, Array]:
    """What is no weight."""
    return {
        "a.bias": weight(1, 300, dtype).reshape(300),
        "conv": weight(4, 6, dtype).reshape(4, 3, 2),
        "b.absmax": np.arange(3, dtype=np.uint8),
    }


def asked(scheme: str, options: str) -> tuple[int, int | None]:
    """The block sizes that a command line stands for."""
    words = options.split()
    block_size = int(words[-1]) if "--block-size" in words else SCHEMES[scheme][2]
    around = block_size if scheme == "dynamic8" else 256
    return block_size, around if "--nested" in words else None


def expected(x: Array, scheme: str, options: str) -> dict[str, Array]:
    """Codes and statistics of the numeric contract."""
    codebook, output_dtype, _, _ = SCHEMES[scheme]
    block_size, nested_block_size = asked(scheme, options)
    problem = BlockwiseQuantizeProblem(
        shape=x.shape,
        input_dtype=x.dtype.name,
        output_dtype=output_dtype,
        codebook=codebook,
        block_size=block_size,
        nested_block_size=nested_block_size,
    )
    return problem.expected({"input": x})


def restored(codes: Array, state: planq.QuantState, dtype: str | None = None) -> Array:
    """The values of the numeric contract, by the table that the file has."""
    dtype = dtype or planq.DType(state.dtype).value
    problem = BlockwiseDequantizeProblem(
        shape=state.shape or codes.shape,
        input_dtype="uint4" if state.quant_type else "uint8",
        output_dtype=dtype,
        entries=len(state.codebook),
        block_size=state.block_size,
        nested_block_size=state.nested_block_size,
    )
    operands = {name: getattr(state, name) for name in state.__slots__}
    flat = codes.ravel() if state.quant_type else codes
    return problem.expected({"input": flat, **operands})["output"]


def keys_of(tensors: dict[str, Any], name: str) -> dict[str, Any]:
    """What a file has of the state of a weight, by key."""
    return {
        key.removeprefix(f"{name}."): values
        for key, values in tensors.items()
        if key.startswith(f"{name}.")
    }


def quantize(
    tmp_path: Path, capsys: Capture, tensors: dict[str, Array], scheme: str, options: str = ""
) -> tuple[Path, dict[str, Any]]:
    """A file of the tensors, quantized, and the report."""
    source, target = checkpoint(tmp_path / "in.st", tensors), tmp_path / "q.st"
    told = report(capsys, "quantize", source, target, "--scheme", scheme, *options.split())
    source.unlink()
    return target, told


def dequantize(capsys: Capture, source: Path, *options: str) -> dict[str, Array]:
    """The tensors of a file that is restored."""
    target = source.with_name("back.st")
    told = report(capsys, "dequantize", source, target, *options)
    made = load(target).tensors
    for row in told["tensors"]:
        assert row["sku"].startswith("blockwise_dequantize/host/")
        assert row["sha256"] == hashlib.sha256(made[row["name"]].tobytes()).hexdigest()
    return made


@over_dtypes
@pytest.mark.parametrize("options", OPTIONS)
@over_schemes
def test_codes_and_states_are_those_of_the_numeric_contract(
    tmp_path: Path, capsys: Capture, scheme: str, options: str, dtype: str
) -> None:
    tensors, rest = model(dtype), others(dtype)
    target, told = quantize(tmp_path, capsys, {**tensors, **rest}, scheme, options)
    made = load(target).tensors
    codebook, _, _, quant_type = SCHEMES[scheme]
    block_size, nested_block_size = asked(scheme, options)
    assert (told["block_size"], told["nested_block_size"]) == (block_size, nested_block_size)
    for row in told["tensors"]:
        x = tensors[row["name"]]
        want, keys = expected(x, scheme, options), keys_of(made, row["name"])
        state, codes = planq.QuantState.from_dict(keys), made.pop(row["name"])
        assert codes.dtype == np.uint8
        assert codes.shape == ((want["output"].size, 1) if quant_type else x.shape)
        assert codes.tobytes() == want["output"].tobytes()
        assert row["tensor_sha256"][row["name"]] == hashlib.sha256(codes.tobytes()).hexdigest()
        for name in want.keys() - {"output"}:
            assert getattr(state, name).dtype == want[name].dtype
            assert np.array_equal(bits(getattr(state, name)), bits(want[name])), name
        assert np.array_equal(bits(state.codebook), bits(getattr(codebooks, codebook)()))
        assert (state.quant_type, state.shape, state.dtype) == (quant_type, x.shape, dtype)
        assert (state.block_size, state.nested_block_size) == (block_size, nested_block_size)
        if nested_block_size:
            assert np.array_equal(bits(state.nested_codebook), bits(codebooks.dynamic()))
        assert list(keys)[-1] == f"{PACKED}{quant_type or ''}"
        stored = codes.nbytes + sum(values.nbytes for values in keys.values())
        assert (row["bytes_before"], row["bytes_after"]) == (x.nbytes, stored)
        assert (row["dtype"], row["status"]) == (FORMAT[dtype], "ok")
        assert row["sku"].startswith("blockwise_quantize/host/")
        for key in keys:
            del made[f"{row['name']}.{key}"]
    assert {name: values.tobytes() for name, values in made.items()} == {
        name: values.tobytes() for name, values in rest.items()
    }


@over_dtypes
@pytest.mark.parametrize("options", OPTIONS)
@over_schemes
def test_the_way_back_is_that_of_the_numeric_contract(
    tmp_path: Path, capsys: Capture, scheme: str, options: str, dtype: str
) -> None:
    tensors, rest = model(dtype), others(dtype)
    target, _ = quantize(tmp_path, capsys, {**tensors, **rest}, scheme, options)
    made = load(target).tensors
    back = dequantize(capsys, target)
    assert set(back) == {*tensors, *rest}
    for name, x in tensors.items():
        want = restored(made[name], planq.QuantState.from_dict(keys_of(made, name)))
        assert (back[name].dtype, back[name].shape) == (x.dtype, x.shape)
        assert np.array_equal(bits(back[name]), bits(want)), name
    for name, values in rest.items():
        assert back[name].tobytes() == values.tobytes()
        assert back[name].shape == values.shape


@pytest.mark.parametrize("wanted", ["float16", "bfloat16", "float32"])
@over_schemes
def test_another_type_may_be_asked_for(
    tmp_path: Path, capsys: Capture, scheme: str, wanted: str
) -> None:
    target, _ = quantize(tmp_path, capsys, {"w": weight(3, 129, "bfloat16")}, scheme, "--nested")
    made = load(target).tensors
    want = restored(made["w"], planq.QuantState.from_dict(keys_of(made, "w")), wanted)
    back = dequantize(capsys, target, "--dtype", wanted)["w"]
    assert np.array_equal(bits(back), bits(want))


def test_statistics_of_float64_restore_float64_alone(tmp_path: Path, capsys: Capture) -> None:
    target, _ = quantize(tmp_path, capsys, {"w": weight(3, 8, "float64")}, "nf4")
    line = refuse(capsys, "dequantize", target, tmp_path / "back.st", "--dtype", "float32")
    said = "absmax_dtype: float64 goes with output_dtype float64, got float32"
    assert line == f"planq: error: {target}: 'w': {said}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["q.st"]


@over_nested
@over_schemes
def test_the_report_measures_what_was_lost(
    tmp_path: Path, capsys: Capture, scheme: str, nested: bool
) -> None:
    """In float64, of what codes and restored statistics stand for."""
    options = "--block-size 100" + (" --nested" if nested else "")
    tensors = {"tall": weight(700, 261, seed=5), "wide": weight(3, 70_001, "float16", seed=6)}
    target, told = quantize(tmp_path, capsys, tensors, scheme, f"{options} --verify")
    made = load(target).tensors
    for row in told["tensors"]:
        x, keys = tensors[row["name"]], keys_of(made, row["name"])
        state = planq.QuantState.from_dict(keys)
        back = restored(made[row["name"]], state)
        assert row["restored_sha256"] == hashlib.sha256(back.tobytes()).hexdigest()
        error = x.astype(np.float64) - back.astype(np.float64)
        assert row["max_error"] == np.abs(error).max()
        error = x.astype(np.float64) - restored(made[row["name"]], state, "float32")
        ratio = 10 * math.log10((x.astype(np.float64) ** 2).sum() / (error**2).sum())
        assert row["sqnr_db"] == pytest.approx(ratio, abs=1e-6)


@over_nested
@over_schemes
def test_weights_without_signal_or_without_loss_are_told_as_such(
    tmp_path: Path, capsys: Capture, scheme: str, nested: bool
) -> None:
    tensors = {
        "exact": np.array([[2.0, 0.0, 2.0]], np.float32),
        "zero": np.zeros((2, 3), np.float32),
        "empty": np.zeros((0, 3), np.float32),
    }
    options = "--verify" + (" --nested" if nested else "")
    target, told = quantize(tmp_path, capsys, tensors, scheme, options)
    assert [row["sqnr_db"] for row in told["tensors"]] == [None, None, None]
    assert [row["max_error"] for row in told["tensors"]] == [0.0, 0.0, 0.0]
    back = dequantize(capsys, target)
    assert all(np.array_equal(back[name], tensors[name]) for name in tensors)


@over_schemes
def test_a_block_that_is_not_finite_marks_its_row(
    tmp_path: Path, capsys: Capture, scheme: str
) -> None:
    """Nested, it takes the weight with it: the mean of all statistics is NaN."""
    broken = weight(4, 256)
    broken[2, 200] = np.inf
    source = checkpoint(tmp_path / "in.st", {"broken": broken, "sound": weight(4, 256)})
    arguments = ["quantize", source, tmp_path / "q.st", "--scheme", scheme, "--block-size", 64]
    for options, blocks, values in (((), 1, 64), (("--nested",), 16, 1024)):
        told = marked(capsys, *arguments, *options, "--force")
        rows = {row["name"]: row for row in told["tensors"]}
        assert (rows["broken"]["status"], rows["sound"]["status"]) == ("not_finite", "ok")
        assert rows["broken"]["non_finite_segments"] == blocks
        assert rows["broken"]["sqnr_db"] is None
        back = marked(capsys, "dequantize", tmp_path / "q.st", tmp_path / "back.st", "--force")
        assert {row["name"]: row["non_finite_values"] for row in back["tensors"]} == {
            "broken": values,
            "sound": 0,
        }
    assert main([*map(str, arguments), "--nested", "--force"]) == 1
    shown = capsys.readouterr().out
    assert "NOT FINITE (16)" in shown
    assert "n blocks dequantize to NaN: all of the weight, if one holds a NaN or an inf" in shown


@over_schemes
def test_the_size_of_a_file_does_not_depend_on_what_is_measured(
    tmp_path: Path, capsys: Capture, scheme: str
) -> None:
    """The mean of nested statistics stands in JSON, behind which there are blanks."""
    sizes = set()
    for factor in (0.0, 1.0, 1 / 3, 1e-38, math.nan):
        x = weight(6, 64) * np.float32(factor)
        source, target = checkpoint(tmp_path / "in.st", {"w": x}), tmp_path / "q.st"
        command = ["quantize", str(source), str(target), "--scheme", scheme, "--nested", "--force"]
        assert main(command) == int(math.isnan(factor))
        capsys.readouterr()
        sizes.add(target.stat().st_size)
        state = planq.QuantState.from_dict(keys_of(load(target).tensors, "w"))
        want = expected(x, scheme, "--nested")["nested_offset"]
        assert np.array_equal(bits(state.nested_offset), bits(want))
    assert len(sizes) == 1


def test_the_metadata_tells_what_made_the_codes(tmp_path: Path, capsys: Capture) -> None:
    tensors = {"w": weight(4, 257, "bfloat16"), "v": weight(2, 2, "float64")}
    target, _ = quantize(tmp_path, capsys, tensors, "int4-af4", "--nested")
    metadata = load(target).metadata
    assert metadata["planq.scheme"] == "int4-af4"
    assert metadata["planq.build_id"] == planq.build_info().build_id
    facts = json.loads(metadata["planq.descriptor"])
    own = {"shape": [4, 257], "input_dtype": "bfloat16"}
    desc = planq.BlockwiseQuantizeDescriptor.from_dict({**facts, **own})
    assert (desc.codebook, desc.nested_block_size) == (planq.Codebook.AF4, 256)
    assert "planq.tensors" not in metadata
    dequantize(capsys, target)
    assert load(tmp_path / "back.st").metadata == {}


def theirs(path: Path, name: str, shape: tuple[int, ...] | None = None) -> Array:
    """What bitsandbytes' CPU backend makes of a weight in a file, or of one row of its elements."""
    loaded = safetensors.torch.load_file(path)
    keys = keys_of(loaded, name)
    if shape:
        keys = replace(planq.QuantState.from_dict(keys), shape=shape).to_dict(packed=True)
    state = bnb.QuantState.from_dict(keys, CPU)
    return from_torch(bnb.dequantize_4bit(loaded[name], state))


def assert_equal_but_for_zeros(found: Array, want: Array, quant_type: str) -> None:
    """fp4 has a second zero, code 8, whose sign bitsandbytes' CPU backend loses."""
    assert found.dtype == want.dtype
    assert np.array_equal(found, want)
    differs = np.signbit(found) != np.signbit(want)
    assert quant_type == "fp4" or not differs.any()
    assert not want[differs].any()


@over_their_dtypes
@over_nested
@over_their_types
def test_bitsandbytes_reads_the_file(
    tmp_path: Path, capsys: Capture, quant_type: str, nested: bool, dtype: str
) -> None:
    tensors = {"a.weight": weight(40, 192, dtype, seed=1), "b.weight": weight(8, 4096, dtype)}
    options = "--nested" if nested else ""
    target, _ = quantize(tmp_path, capsys, tensors, quant_type, options)
    back = dequantize(capsys, target)
    for name in tensors:
        assert_equal_but_for_zeros(theirs(target, name), back[name], quant_type)


@over_nested
@over_their_types
def test_a_loader_makes_a_parameter_of_the_file(
    tmp_path: Path, capsys: Capture, quant_type: str, nested: bool
) -> None:
    """In the way of transformers: the codes, and everything that is named after them."""
    name = "model.layers.0.mlp.down_proj.weight"
    tensors = {name: weight(64, 256, "bfloat16")}
    target, _ = quantize(tmp_path, capsys, tensors, quant_type, "--nested" if nested else "")
    loaded = safetensors.torch.load_file(target)
    parameter = Params4bit.from_prequantized(
        data=loaded[name],
        quantized_stats={key: loaded[key] for key in loaded if f"{name}." in key},
        device="cpu",
    )
    assert (parameter.quant_type, parameter.blocksize) == (quant_type, 64)
    assert parameter.compress_statistics == nested
    found = from_torch(bnb.dequantize_4bit(parameter.data, parameter.quant_state))
    assert_equal_but_for_zeros(found, dequantize(capsys, target)[name], quant_type)


@over_nested
@over_their_types
def test_bitsandbytes_reads_odd_sizes_in_one_row(
    tmp_path: Path, capsys: Capture, quant_type: str, nested: bool
) -> None:
    """Where rows are no whole blocks, its CPU backend may take another block's absmax."""
    tensors = {"a": weight(5, 301), "b": weight(3, 129, seed=2), "c": weight(1, 3)}
    options = "--nested" if nested else ""
    target, _ = quantize(tmp_path, capsys, tensors, quant_type, options)
    back = dequantize(capsys, target)
    for name, x in tensors.items():
        found = theirs(target, name, (1, x.size)).reshape(x.shape)
        assert_equal_but_for_zeros(found, back[name], quant_type)


@over_their_dtypes
@over_nested
def test_bitsandbytes_reads_8_bits_once_the_state_is_unpacked(
    tmp_path: Path, capsys: Capture, nested: bool, dtype: str
) -> None:
    tensors = {"a": weight(16, 1024, dtype), "b": weight(5, 301, dtype), "c": weight(1, 1, dtype)}
    options = "--nested" if nested else ""
    target, _ = quantize(tmp_path, capsys, tensors, "dynamic8", options)
    loaded, back = safetensors.torch.load_file(target), dequantize(capsys, target)
    for name in tensors:
        unpacked = planq.QuantState.from_dict(keys_of(loaded, name)).to_dict()
        found = bnb.dequantize_blockwise(loaded[name], bnb.QuantState.from_dict(unpacked, CPU))
        assert np.array_equal(bits(from_torch(found)), bits(back[name])), name


def test_bitsandbytes_knows_no_af4(tmp_path: Path, capsys: Capture) -> None:
    target, _ = quantize(tmp_path, capsys, {"w": weight(4, 64)}, "int4-af4")
    with pytest.raises(ValueError, match="bitsandbytes__af4"):
        theirs(target, "w")


def write_theirs(
    path: Path, x: dict[str, Array], quant_type: str, nested: bool, **options: Any
) -> dict[str, Array]:
    """Writes a file with bitsandbytes; returns what it dequantizes to, as one row."""
    tensors, values = {"bias": torch.ones(3)}, {}
    for name, array in x.items():
        codes, state = bnb.quantize_4bit(
            as_torch(array), quant_type=quant_type, compress_statistics=nested, **options
        )
        tensors[name] = codes
        tensors |= {f"{name}.{k}": v for k, v in state.as_dict(packed=True).items()}
        state.shape = torch.Size((1, array.size))
        values[name] = from_torch(bnb.dequantize_4bit(codes, state)).reshape(array.shape)
    safetensors.torch.save_file(tensors, path)
    return values


@over_their_dtypes
@over_nested
@over_their_types
def test_what_bitsandbytes_wrote_is_restored(
    tmp_path: Path, capsys: Capture, quant_type: str, nested: bool, dtype: str
) -> None:
    tensors = {
        "a.weight": weight(40, 192, dtype),
        "odd.weight": weight(3, 129, dtype),
        "vector": weight(1, 1000, dtype).reshape(1000),
        "conv": weight(6, 100, dtype).reshape(6, 4, 25),
    }
    source = tmp_path / "theirs.st"
    want = write_theirs(source, tensors, quant_type, nested)
    back = dequantize(capsys, source)
    assert set(back) == {*tensors, "bias"}
    for name, values in want.items():
        assert back[name].shape == values.shape
        assert_equal_but_for_zeros(back[name], values, quant_type)


@pytest.mark.parametrize("storage", [torch.bfloat16, torch.float32], ids=str)
def test_codes_that_are_stored_as_another_type_are_restored(
    tmp_path: Path, capsys: Capture, storage: torch.dtype
) -> None:
    """As for sharded training."""
    source = tmp_path / "theirs.st"
    x = {"w": weight(16, 256, "bfloat16")}
    want = write_theirs(source, x, "nf4", True, quant_storage=storage, blocksize=128)
    assert safetensors.torch.load_file(source)["w"].dtype == storage
    assert np.array_equal(bits(dequantize(capsys, source)["w"]), bits(want["w"]))


def test_codes_in_a_row_are_restored(tmp_path: Path, capsys: Capture) -> None:
    target, _ = quantize(tmp_path, capsys, {"w": weight(4, 64)}, "nf4")
    want, made = dequantize(capsys, target)["w"], load(target)
    checkpoint(target, {**made.tensors, "w": made.tensors["w"].reshape(1, -1)})
    (tmp_path / "back.st").unlink()
    assert np.array_equal(dequantize(capsys, target)["w"], want)


@over_nested
def test_8_bits_of_bitsandbytes_are_restored(tmp_path: Path, capsys: Capture, nested: bool) -> None:
    """Its states have no shape, which is that of the codes; planq packs them."""
    x = as_torch(weight(9, 301, "bfloat16"))
    codes, state = bnb.quantize_blockwise(x, blocksize=256, nested=nested)
    want = from_torch(bnb.dequantize_blockwise(codes, state))
    packed = planq.QuantState.from_dict(state.as_dict()).to_dict(packed=True)
    source = tmp_path / "theirs.st"
    tensors = {"w": codes, **{f"w.{key}": values for key, values in packed.items()}}
    safetensors.torch.save_file(tensors, source)
    assert np.array_equal(bits(dequantize(capsys, source)["w"]), bits(want))


@pytest.mark.parametrize("part", ["w", "w.absmax", "w.quant_map", f"w.{PACKED}nf4"])
def test_a_disk_that_gives_back_other_bytes_is_noticed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    sound, _ = quantize(tmp_path, capsys, {"w": weight(8, 64)}, "nf4", "--nested")
    at = load(sound).offsets[part]
    sound.unlink()

    def spoil(fd: int, start: int, length: int, advice: int) -> None:
        os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 1]), at)

    monkeypatch.setattr(os, "posix_fadvise", spoil)
    source = checkpoint(tmp_path / "in.st", {"w": weight(8, 64)})
    arguments = ("--scheme", "nf4", "--nested", "--verify")
    line = refuse(capsys, "quantize", source, tmp_path / "out.st", *arguments)
    assert f"out.st: tensor {part!r}: expected bytes of SHA-256 " in line
    assert [path.name for path in tmp_path.iterdir()] == ["in.st"]


SCALES = (
    "int8-channel, int8-tensor, uint8-channel, int4-group128, int4-group, uint4-group, "
    "fp8-channel, fp8-tensor, fp8-block128"
)
TABLES = "nf4, fp4, int4-af4, dynamic8"
REFUSED = [
    ("nf4 --calibrate none.json", f"--calibrate: expected one of the schemes {SCALES}, got nf4"),
    ("int8-tensor --nested", f"--nested: expected one of the schemes {TABLES}, got int8-tensor"),
    (
        "fp8-channel --block-size 64",
        f"--block-size: expected one of the schemes {TABLES}, got fp8-channel",
    ),
    ("nf4 --block-size 0", "block_size: expected at least 1, got 0"),
    (
        "dynamic8 --block-size 99999999999999999999",
        "block_size: expected an integer of at most 64 bits, got 99999999999999999999",
    ),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
def test_options_that_do_not_go_with_the_scheme_are_refused(
    tmp_path: Path, capsys: Capture, arguments: str, said: str
) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(2, 8)})
    command = ("quantize", source, tmp_path / "out.st", "--scheme", *arguments.split())
    assert refuse(capsys, *command) == f"planq: error: {said}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["in.st"]


def test_a_file_that_is_quantized_already_is_refused(tmp_path: Path, capsys: Capture) -> None:
    """Whoever did it."""
    source = tmp_path / "theirs.st"
    write_theirs(source, {"w": weight(4, 64)}, "nf4", False)
    line = refuse(capsys, "quantize", source, tmp_path / "out.st", "--scheme", "fp4")
    assert line == f"planq: error: {source}: already quantized\n"


def test_a_name_that_the_state_needs_is_refused(tmp_path: Path, capsys: Capture) -> None:
    tensors = {"w": weight(2, 8), "w.absmax": np.ones(2, np.float32)}
    source = checkpoint(tmp_path / "in.st", tensors)
    line = refuse(capsys, "quantize", source, tmp_path / "out.st", "--scheme", "nf4")
    assert line == "planq: error: two tensors of the output would be named 'w.absmax'\n"


def as_json(text: str) -> Array:
    """A tensor that holds a text."""
    return np.frombuffer(text.encode(), np.uint8)


NF4 = f"w.{PACKED}nf4"
GOOD = '"quant_type": "nf4", "blocksize": 64, "dtype": "float32"'
U8, F32 = np.uint8, np.float32
DAMAGED: dict[str, tuple[dict[str, Array | None], str]] = {
    "no codes": ({"w": None}, "no tensor 'w', but a state of it"),
    "too few codes": (
        {"w": np.zeros(127, U8)},
        "tensor 'w': expected 128 bytes of codes, found 127",
    ),
    "no absmax": ({"w.absmax": None}, "state of 'w': absmax: expected a value, got none"),
    "too few absmax": (
        {"w.absmax": np.zeros(3, F32)},
        "state of 'w': absmax: expected shape (4,) float32 or float64, got shape (3,) float32",
    ),
    "absmax of another type": (
        {"w.absmax": np.zeros(4, np.float16)},
        "tensor 'w.absmax': expected one of U8, F32, F64, found F16",
    ),
    "wider absmax": (
        {"w.absmax": np.zeros(4, np.float64)},
        "state of 'w': absmax_dtype: float64 goes with output_dtype float64, got float32",
    ),
    "no table": ({"w.quant_map": None}, "state of 'w': quant_map: expected a value, got none"),
    "no JSON": (
        {NF4: as_json("{")},
        f"state of 'w': {PACKED}nf4: expected JSON in a uint8 tensor, got ndarray",
    ),
    "JSON of another type": (
        {NF4: np.zeros(8, np.int8)},
        f"tensor '{NF4}': expected one of U8, F32, F64, found I8",
    ),
    "too deep": (
        {NF4: as_json("[" * 60_000)},
        f"state of 'w': {PACKED}nf4: expected JSON in a uint8 tensor, got ndarray",
    ),
    "another shape": (
        {NF4: as_json(f'{{{GOOD}, "shape": [4, 63]}}')},
        "tensor 'w': expected 126 bytes of codes, found 128",
    ),
    "a scalar": ({NF4: as_json(f'{{{GOOD}, "shape": []}}')}, "state of 'w': absmax: expected"),
    "two states": (
        {f"w.{PACKED}fp4": as_json('{"quant_type": "fp4"}')},
        "state of 'w': quant_type: expected one value, got two",
    ),
    "a state of another": (
        {f"v.{PACKED}nf4": as_json("{}")},
        "no tensor 'v', but a state of it",
    ),
    "an unknown state": (
        {f"w.{PACKED}nf5": as_json("{}")},
        f"state of 'w': {PACKED}nf5: expected a key of a quantization state, got another",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_state_that_does_not_fit_is_refused(tmp_path: Path, capsys: Capture, damage: str) -> None:
    target, _ = quantize(tmp_path, capsys, {"w": weight(4, 64)}, "nf4")
    changes, said = DAMAGED[damage]
    tensors = {**load(target).tensors, **changes}
    checkpoint(target, {name: values for name, values in tensors.items() if values is not None})
    line = refuse(capsys, "dequantize", target, tmp_path / "out.st")
    assert line.startswith(f"planq: error: {target}: {said}")
    assert [path.name for path in tmp_path.iterdir()] == ["q.st"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"w": np.zeros((4, 63), U8)}, "tensor 'w': expected U8 [4, 64], found U8 [4, 63]"),
        ({"w": np.zeros((4, 64), np.int8)}, "tensor 'w': expected U8 [4, 64], found I8 [4, 64]"),
        (
            {
                "w": np.zeros((5, 1000), U8),
                f"w.{PACKED}": as_json(
                    '{"quant_type": null, "blocksize": 4096, "dtype": "float32", "shape": null}'
                ),
            },
            "tensor 'w.absmax': expected F32 [2], found F32 [1]",
        ),
    ],
    ids=["another shape", "another type", "too few absmax"],
)
def test_8_bit_codes_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: Capture, changes: dict[str, Array], said: str
) -> None:
    target, _ = quantize(tmp_path, capsys, {"w": weight(4, 64)}, "dynamic8")
    checkpoint(target, {**load(target).tensors, **changes})
    line = refuse(capsys, "dequantize", target, tmp_path / "out.st")
    assert line == f"planq: error: {target}: {said}\n"
