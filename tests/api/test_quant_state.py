"""QuantState, and files that travel between planq and bitsandbytes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import planq
from planq import codebooks
from planq.audit.ops.codebook.blockwise_dequantize.reference import BlockwiseDequantizeProblem
from planq.audit.ops.codebook.blockwise_quantize.reference import BlockwiseQuantizeProblem
from planq.audit.reference.formats import STORAGE, Array
from support.bitsandbytes_host import bnb
from support.tensors import as_torch, from_torch

F32 = np.float32
TYPES = ("nf4", "fp4")
CPU = torch.device("cpu")
over_types = pytest.mark.parametrize("quant_type", TYPES)
over_nested = pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
over_packed = pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "packed"])
over_dtypes = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])


def elements(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """A weight: rows of different sizes."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * rng.uniform(0.1, 9, (shape[0], 1))).astype(STORAGE[dtype])


def quantized(
    x: Array, codebook: str, block_size: int = 64, nested_block_size: int | None = None
) -> tuple[Array, dict[str, Any]]:
    """The reference's codes of a weight, and what its state is made of."""
    output_dtype = "uint8" if codebook == "dynamic" else "uint4"
    problem = BlockwiseQuantizeProblem(
        shape=x.shape,
        input_dtype=x.dtype.name,
        output_dtype=output_dtype,
        codebook=codebook,
        block_size=block_size,
        nested_block_size=nested_block_size,
    )
    made = problem.expected({"input": x})
    fields = {
        "absmax": made["absmax"],
        "codebook": getattr(codebooks, codebook)(),
        "block_size": block_size,
        "dtype": x.dtype.name,
        "shape": x.shape,
        "quant_type": None if codebook == "dynamic" else codebook,
    }
    if nested_block_size is not None:
        fields |= {name: made[name] for name in ("nested_absmax", "nested_offset")}
        fields |= {"nested_codebook": codebooks.dynamic(), "nested_block_size": nested_block_size}
    return made["output"], fields


def dequantized(codes: Array, fields: dict[str, Any]) -> Array:
    """The reference's elements."""
    problem = BlockwiseDequantizeProblem(
        shape=fields["shape"],
        input_dtype="uint4" if fields["quant_type"] else "uint8",
        output_dtype=fields["dtype"],
        codebook=fields["quant_type"] or "given",
        block_size=fields["block_size"],
        nested_block_size=fields.get("nested_block_size"),
    )
    return problem.expected({"input": codes, **fields})["output"]


def in_torch(fields: dict[str, Any]) -> dict[str, Any]:
    """The arrays as tensors."""
    return {k: as_torch(v) if isinstance(v, np.ndarray) else v for k, v in fields.items()}


def equal(first: Any, second: Any) -> bool:
    """Values of a dictionary: tensors of one kind by their bits, others by value and type."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second) and first.dtype == second.dtype
    if isinstance(first, np.ndarray):
        return first.tobytes() == second.tobytes() and first.dtype == second.dtype
    return type(first) is type(second) and first == second


def theirs(codes: Array, state: dict[str, Any]) -> Array:
    """What bitsandbytes' CPU backend decodes."""
    read = bnb.QuantState.from_dict(dict(state), CPU)
    return from_torch(bnb.dequantize_4bit(as_torch(codes).reshape(-1, 1), read))


@over_types
@over_nested
@over_packed
@over_dtypes
def test_what_bitsandbytes_wrote_is_read(
    quant_type: str, nested: bool, packed: bool, dtype: str
) -> None:
    """And written again as it was, byte for byte, in the same order."""
    x = as_torch(elements((48, 128), dtype))
    codes, written = bnb.quantize_4bit(x, quant_type=quant_type, compress_statistics=nested)
    given = written.as_dict(packed)
    before = dict(given)
    state = planq.QuantState.from_dict(given)
    assert given == before
    assert (state.shape, state.dtype, state.block_size) == ((48, 128), planq.DType(dtype), 64)
    assert state.quant_type == quant_type
    assert state.nested == nested
    assert state.absmax is written.absmax
    assert state.codebook is written.code
    if nested:
        assert state.nested_offset.shape == (1,)
        assert torch.equal(state.nested_offset, written.offset.reshape(1))
        assert state.nested_block_size == 256
    again = state.to_dict(packed)
    assert list(again) == list(given)
    assert all(equal(given[key], again[key]) for key in given)
    fields = {name: getattr(state, name) for name in state.__slots__}
    arrays = {k: from_torch(v) if isinstance(v, torch.Tensor) else v for k, v in fields.items()}
    ours = dequantized(from_torch(codes).ravel(), arrays)
    assert np.array_equal(ours, from_torch(bnb.dequantize_4bit(codes, written)))


@over_types
@over_nested
@over_packed
@over_dtypes
def test_what_planq_writes_is_read_by_bitsandbytes(
    quant_type: str, nested: bool, packed: bool, dtype: str
) -> None:
    """Elements are equal, and have the same bits but for the sign of zero: fp4's code 8."""
    codes, fields = quantized(elements((40, 192), dtype), quant_type, 64, 256 if nested else None)
    found = theirs(codes, planq.QuantState(**in_torch(fields)).to_dict(packed))
    ours = dequantized(codes, fields)
    assert found.dtype == ours.dtype
    assert np.array_equal(found, ours)
    differs = np.signbit(found) != np.signbit(ours)
    assert quant_type == "fp4" or not differs.any()
    assert not ours[differs].any()


@over_types
def test_bitsandbytes_on_the_host_may_lose_its_place_where_rows_are_no_whole_blocks(
    quant_type: str,
) -> None:
    """Rows of 96 in blocks of 64: its AVX-512 kernel counts row * (96 // 64) + column // 64.

    What the file holds is right: read as one row, it decodes to the reference's bits.
    """
    codes, fields = quantized(elements((64, 96), "float32"), quant_type)
    ours, state = dequantized(codes, fields), planq.QuantState(**in_torch(fields))
    flat = replace(state, shape=(1, 64 * 96))
    assert np.array_equal(theirs(codes, flat.to_dict()).reshape(64, 96), ours)
    rows, columns = np.indices((64, 96))
    values = fields["codebook"][np.stack([codes >> 4, codes & 15], axis=-1).reshape(64, 96)]
    misplaced = values * fields["absmax"][rows * (96 // 64) + columns // 64]
    found = theirs(codes, state.to_dict())
    assert np.array_equal(found, ours) or np.array_equal(found, misplaced)


@over_nested
@over_dtypes
def test_8_bit_states_travel_too(nested: bool, dtype: str) -> None:
    """Unpacked, as bitsandbytes packs no state without a quant_type."""
    codes, fields = quantized(elements((16, 256), dtype), "dynamic", 256, 256 if nested else None)
    state = planq.QuantState(**in_torch(fields))
    read = bnb.QuantState.from_dict(state.to_dict(), CPU)
    found = from_torch(bnb.dequantize_blockwise(as_torch(codes), read))
    assert found.tobytes() == dequantized(codes, fields).tobytes()
    back = planq.QuantState.from_dict(read.as_dict())
    assert (back.quant_type, back.shape, back.nested) == (None, (16, 256), nested)
    _, written = bnb.quantize_blockwise(as_torch(elements((16, 256), dtype)), blocksize=256)
    assert planq.QuantState.from_dict(written.as_dict()).shape is None


@pytest.mark.parametrize("codebook", ["nf4", "fp4", "int4", "af4", "dynamic"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@over_packed
@over_nested
def test_a_state_comes_back_as_it_was(
    codebook: str, dtype: str, packed: bool, nested: bool
) -> None:
    """NumPy arrays and torch tensors, each as itself and none of them a copy."""
    _, fields = quantized(elements((7, 33), dtype), codebook, 10, 3 if nested else None)
    for made in (fields, in_torch(fields)):
        state = planq.QuantState(**made)
        written = state.to_dict(packed)
        assert written["absmax"] is made["absmax"]
        back = planq.QuantState.from_dict(written)
        for name in state.__slots__:
            assert equal(getattr(state, name), getattr(back, name)), name
        assert back.absmax is made["absmax"]
        if packed:
            assert {type(value) for value in written.values()} == {type(made["absmax"])}
            ending = codebook if codebook != "dynamic" else ""
            assert f"quant_state.bitsandbytes__{ending}" in written


@pytest.mark.parametrize("offset", [0.1, 1e-45, 3.4028235e38, 16777215.0, math.inf, math.nan])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_mean_comes_back_to_the_bit(offset: float, dtype: str) -> None:
    """A Python float holds it, and JSON writes as many digits as that takes."""
    _, fields = quantized(elements((4, 64), dtype), "nf4", 64, 256)
    fields["nested_offset"] = np.full(1, offset, dtype)
    for made in (fields, in_torch(fields)):
        for packed in (False, True):
            written = planq.QuantState(**made).to_dict(packed)
            assert packed or type(written["nested_offset"]) is float
            back = planq.QuantState.from_dict(written).nested_offset
            assert np.asarray(back).tobytes() == fields["nested_offset"].tobytes()


def test_a_checkpoint_travels(tmp_path: Path) -> None:
    """Tensors of a file with the prefixes that models have, by either library's functions."""
    codes, fields = quantized(elements((32, 128), "bfloat16"), "nf4", 64, 256)
    prefix = "model.layers.0.mlp.down_proj.weight"
    state = planq.QuantState(**fields).to_dict(packed=True)
    tensors = {prefix: codes.reshape(-1, 1)} | {f"{prefix}.{k}": v for k, v in state.items()}
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    loaded = safetensors.torch.load_file(tmp_path / "model.safetensors")
    weight = loaded.pop(prefix)
    assert sorted(loaded) == sorted(
        f"{prefix}.{ending}"
        for ending in (
            "absmax",
            "nested_absmax",
            "nested_quant_map",
            "quant_map",
            "quant_state.bitsandbytes__nf4",
        )
    )
    back = planq.QuantState.from_dict(loaded)
    assert (back.quant_type, back.shape, back.dtype) == ("nf4", (32, 128), planq.DType.BFLOAT16)
    read = bnb.QuantState.from_dict(loaded, CPU)
    found = from_torch(bnb.dequantize_4bit(weight, read))
    assert np.array_equal(found, dequantized(codes, fields))


def test_torch_is_not_imported_for_arrays() -> None:
    """Nor NumPy before it is needed."""
    code = """
import sys
import planq
assert not {"numpy", "torch"} & set(sys.modules)
import numpy as np
state = planq.QuantState(
    absmax=np.ones(2, np.float32), codebook=planq.codebooks.nf4(), block_size=64,
    dtype="bfloat16", shape=(2, 64), quant_type="nf4")
for packed in (False, True):
    planq.QuantState.from_dict(state.to_dict(packed))
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def good() -> dict[str, Any]:
    """A state that is nested, in arrays."""
    _, fields = quantized(elements((6, 64), "float32"), "nf4", 64, 4)
    return planq.QuantState(**fields).to_dict()


F64, EMPTY = np.float64, np.zeros(0, F32)
REFUSED: list[tuple[str, Any, str]] = [
    ("absmax", None, "a value, got none"),
    ("absmax", [1.0], "a tensor, got list"),
    ("absmax", np.zeros(6, F32), "shape (6,) uint8, got shape (6,) float32"),
    ("absmax", np.zeros(5, np.uint8), "shape (6,) uint8, got shape (5,) uint8"),
    ("absmax", np.zeros((6, 1), np.uint8), "shape (6,) uint8, got shape (6, 1) uint8"),
    ("quant_map", np.zeros(15, F32), "shape (16,) float32, got shape (15,) float32"),
    ("quant_map", np.zeros(16, F64), "shape (16,) float32, got shape (16,) float64"),
    ("blocksize", 0, "an integer of at least 1, got 0"),
    ("blocksize", 64.0, "an integer of at least 1, got 64.0"),
    ("blocksize", True, "an integer of at least 1, got True"),
    ("quant_type", "nf5", "nf4, fp4, int4, af4 or None, got 'nf5'"),
    ("dtype", "uint8", "float16, bfloat16, float32, float64, got 'uint8'"),
    ("dtype", "half", "float16, bfloat16, float32, float64, got 'half'"),
    ("dtype", None, "a value, got none"),
    ("shape", None, "a list of extents, got None"),
    ("shape", (6, -64), "a list of extents, got (6, -64)"),
    ("shape", "6x64", "a list of extents, got '6x64'"),
    ("nested_absmax", None, "a value, got none; nested_blocksize is there"),
    ("nested_absmax", EMPTY, "shape (2,) float32 or float64, got shape (0,) float32"),
    ("nested_blocksize", None, "a value, got none; nested_absmax is there"),
    ("nested_blocksize", -1, "an integer of at least 1, got -1"),
    ("nested_quant_map", np.zeros(16, F32), "shape (256,) float32, got shape (16,) float32"),
    ("nested_dtype", "float16", "float32, the dtype of nested_absmax, got 'float16'"),
    ("nested_offset", "1", "a number, got '1'"),
    ("nested_offset", True, "a number, got True"),
    ("nested_offset", 10**400, "a number that float32 holds, got 1000"),
    ("nested_offset", 1e39, "a number that float32 holds, got 1e+39"),
    ("quant_type", 5, "nf4, fp4, int4, af4 or None, got 5"),
    ("quant_type", ["nf4"], "nf4, fp4, int4, af4 or None, got ['nf4']"),
    ("shape", (10**3000, 10**3000), "a list of extents, got (1000"),
    (
        "shape",
        (2**32, 2**32),
        "a list of extents, got (4294967296, 4294967296); they overflow 63 bits",
    ),
    ("shape", (True, 384), "a list of extents, got (True, 384)"),
    ("shape", (10**5000,), "a list of extents, got a tuple that cannot be printed"),
    ("blocksize", 2**63, "an integer of at least 1, got 9223372036854775808"),
    ("blocksize", 10**5000, "an integer of at least 1, got an int that cannot be printed"),
    ("nested_blocksize", 10**400, "an integer of at least 1, got 1000"),
    ("dtype", 10**5000, "float16, bfloat16, float32, float64, got an int that cannot be printed"),
    (
        "nested_dtype",
        10**5000,
        "float32, the dtype of nested_absmax, got an int that cannot be printed",
    ),
    ("nested_dtype", np.zeros(2), "float32, the dtype of nested_absmax, got array([0., 0.])"),
    ("quant_type", np.zeros(2), "nf4, fp4, int4, af4 or None, got array([0., 0.])"),
]


@pytest.mark.parametrize(("key", "value", "message"), REFUSED, ids=[m[:40] for _, _, m in REFUSED])
def test_a_value_that_does_not_go_with_the_others_is_refused(
    key: str, value: Any, message: str
) -> None:
    """By its key."""
    with pytest.raises(planq.ArgumentError) as caught:
        planq.QuantState.from_dict(good() | {key: value})
    text = f"{key}: expected {message}"
    assert str(caught.value) == text or (
        str(caught.value).startswith(text) and 400 < len(str(caught.value)) < 1200
    )
    assert caught.value.operand == key


@pytest.mark.parametrize("key", sorted(good()))
def test_a_missing_key_is_named(key: str) -> None:
    values = {name: value for name, value in good().items() if name != key}
    with pytest.raises(planq.ArgumentError, match=f"^{key}: expected a value, got none"):
        planq.QuantState.from_dict(values)


def test_a_map_of_8_bits_has_2_to_256_values() -> None:
    _, fields = quantized(elements((4, 64), "float32"), "dynamic", 256)
    for count in (1, 257):
        with pytest.raises(planq.ArgumentError, match=rf"quant_map: expected 2 to 256 .* {count}"):
            planq.QuantState(**fields | {"codebook": np.zeros(count, F32)}).to_dict()


def test_a_state_that_contradicts_itself_is_not_written() -> None:
    """The same checks, by the same keys."""
    _, fields = quantized(elements((6, 64), "float32"), "nf4", 64, 4)
    for change, key in (
        ({"absmax": fields["nested_absmax"]}, "absmax"),
        ({"block_size": 32}, "absmax"),
        ({"nested_absmax": None}, "nested_absmax"),
        ({"nested_offset": fields["nested_absmax"]}, "nested_offset"),
        ({"nested_offset": None}, "nested_offset"),
        ({"shape": None}, "shape"),
    ):
        with pytest.raises(planq.ArgumentError) as caught:
            planq.QuantState(**fields | change).to_dict()
        assert caught.value.operand == key
    with pytest.raises(planq.ArgumentError, match="dtype: expected float16"):
        planq.QuantState(**fields | {"dtype": "int8"})


def as_json(value: Any) -> Array:
    """JSON in a uint8 tensor."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


NF4 = "quant_state.bitsandbytes__nf4"
KEYS: list[tuple[dict[Any, Any], str]] = [
    ({"weight": EMPTY}, "weight: expected a key of a quantization state, got another"),
    ({"quant_state.bitsandbytes__nf5": EMPTY}, "quant_state.bitsandbytes__nf5: expected a key of"),
    ({"a.absmax": EMPTY}, "a.absmax: expected the prefix of 'quant_type', got another"),
    ({NF4: as_json({"shape": [6, 64]})}, "shape: expected one value, got two; the second is in"),
    ({NF4: as_json({"quant_type": "fp4"})}, f"{NF4}: expected its quant_type as its ending, got"),
    ({NF4: as_json({"absmax": 1})}, f"{NF4}: expected names of values that are no tensors, got"),
    ({NF4: as_json([1])}, f"{NF4}: expected JSON in a uint8 tensor, got ndarray"),
    ({NF4: np.zeros(3, np.uint8)}, f"{NF4}: expected JSON in a uint8 tensor, got ndarray"),
    ({NF4: np.full(9**5, ord("["), np.uint8)}, f"{NF4}: expected JSON in a uint8 tensor, got"),
    ({NF4: "{}"}, f"{NF4}: expected JSON in a uint8 tensor, got str"),
    (
        {NF4: np.full(65537, 32, np.uint8)},
        f"{NF4}: expected JSON of at most 65536 bytes, got 65537",
    ),
    ({NF4: torch.full((65537,), 32).byte()}, f"{NF4}: expected JSON of at most 65536 bytes, got"),
    ({NF4: as_json({}).astype(np.float64)}, f"{NF4}: expected JSON in a uint8 tensor, got ndarray"),
    ({NF4: as_json({})[None]}, f"{NF4}: expected JSON in a uint8 tensor, got ndarray"),
    ({NF4: np.array(7, np.uint8)}, f"{NF4}: expected JSON in a uint8 tensor, got ndarray"),
    ({NF4: as_json({"quant_type": 5})}, f"{NF4}: expected its quant_type as its ending, got 5"),
    ({NF4: as_json({"quant_type": []})}, f"{NF4}: expected its quant_type as its ending, got []"),
    ({NF4: as_json({"\ud800": 1})}, f"{NF4}: expected names of values that are no tensors, got"),
    ({7: EMPTY}, "7: expected a key of a quantization state, got another"),
    ({10**5000: EMPTY}, "an int that cannot be printed: expected a key of a quantization state"),
]


@pytest.mark.parametrize(("more", "message"), KEYS, ids=[m for _, m in KEYS])
def test_a_key_that_has_no_place_is_refused(more: dict[Any, Any], message: str) -> None:
    """Other tensors of the model, another weight's state, or the same thing twice."""
    with pytest.raises(planq.ArgumentError) as caught:
        planq.QuantState.from_dict(good() | more)
    assert str(caught.value).startswith(message)


def test_a_prefix_may_be_any_text() -> None:
    """It is the name of a tensor, and nobody's business."""
    state = planq.QuantState.from_dict(
        {f"größe\n\u200b.{key}": value for key, value in good().items()}
    )
    assert state.shape == (6, 64)


@pytest.mark.parametrize("mapping", [None, 7, [], "absmax", [("absmax", EMPTY)]])
def test_what_is_no_mapping_is_refused(mapping: Any) -> None:
    with pytest.raises(planq.ArgumentError, match=r"^mapping: expected a mapping, got "):
        planq.QuantState.from_dict(mapping)


def test_json_that_is_too_long_is_not_read() -> None:
    """A tensor of another kind under its name may be as large as a model."""
    read = []

    class Large:
        dtype, shape = np.dtype(np.uint8), (10**12,)

        def __getattr__(self, name: str) -> Any:
            read.append(name)
            raise AttributeError(name)

    with pytest.raises(planq.ArgumentError, match="at most 65536 bytes, got 1000000000000"):
        planq.QuantState.from_dict(good() | {NF4: Large()})
    assert read == []
