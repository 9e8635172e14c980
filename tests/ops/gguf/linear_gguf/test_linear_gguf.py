"""`linear_gguf` on the host: the package `gguf`, rows alone, instruction sets, what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import gguf
import numpy as np
import pytest

import planq
from ops.gguf.linear_gguf import layers_of_blocks
from ops.gguf.linear_gguf.layers_of_blocks import COLUMNS, blocks_of, codes, digest, layer
from planq import _core
from planq.audit import places
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.linear_gguf.cases import KNOWN
from planq.audit.reference.formats import STORAGE, Array

PACKAGED = sorted(set(KNOWN) - {"q1_0", "q2_0"})
HALF_UNIT = 2.0**-24  # what one rounding to float32 loses at most, of its result


def quantized(x: Array) -> dict[str, Array]:
    """The codes of floating activations, by the operator that makes them."""
    desc = planq.DynamicRangeQuantizeDescriptor(
        shape=x.shape,
        input_dtype=x.dtype.name,
        output_dtype="int8",
        scope=planq.Scope.group(32),
        quotient=planq.Quotient.RATIO,
        scale_dtype="float32",
    )
    given = {
        "input": np.empty(x.shape, np.int8),
        "input_scale": np.empty((*x.shape[:-1], x.shape[-1] // 32), np.float32),
    }
    args = planq.DynamicRangeQuantizeArgs(
        input=x, output=given["input"], scale=given["input_scale"]
    )
    plan = planq.Plan.select(planq.HOST, desc)
    plan.run(planq.HOST, plan.empty_workspace(np), args)
    return given


def test_every_type_of_files_has_a_plan_and_no_other() -> None:
    """Those of ggml's own activations are in no file."""
    assert {member.value for member in planq.GgufType} == {*KNOWN, "q8_1", "q8_k"}
    for kind, form in FORMATS.items():
        fields = {"input_shape": (3, 512), "weight_shape": (5, 512), "type": kind}
        fields |= {"input_dtype": "bfloat16", "output_dtype": "bfloat16"}
        if kind not in KNOWN:
            with pytest.raises(planq.DescriptorError) as caught:
                planq.LinearGgufDescriptor(**fields)
            assert caught.value.field == "type"
            assert kind in str(caught.value)
            continue
        weight = planq.LinearGgufDescriptor(**fields).operands()["weight"]
        assert weight.shape == (5, 512 // form.elements * form.nbytes)
        assert weight.dtype is planq.DType.UINT8


@pytest.mark.parametrize("kind", PACKAGED)
def test_codes_meet_the_weights_of_the_package(kind: str) -> None:
    """Within what roundings lose: of each sub-block at most three, of each chain all its steps."""
    terms = 1024
    weight = blocks_of(kind, terms)
    w = gguf.quants.dequantize(weight, gguf.GGMLQuantizationType[kind.upper()]).astype(np.float64)
    given = codes((6, terms))
    x = given["input"] * np.repeat(given["input_scale"].astype(np.float64), 32, axis=1)
    found = layer(given | {"weight": weight}, kind)
    # What is added: a weight is a product and a minimum, whose parts may be larger than it is.
    form = FORMATS[kind]
    code, scale, minimum = form.decode(weight.reshape(-1, form.nbytes).astype(np.int64))
    parts = np.abs(scale * code) + (0 if minimum is None else np.abs(minimum))
    magnitude = np.abs(x) @ parts.reshape(w.shape).T
    steps = 32 + terms // 256 + 2  # of a span at most, spans, factors
    assert (np.abs(found - x @ w.T) <= steps * HALF_UNIT * magnitude).all()
    assert np.abs(x @ w.T).max() > 100 * steps * HALF_UNIT * magnitude.max()


@pytest.mark.parametrize("kind", ["q4_0", "q4_k", "q6_k"])
def test_floats_lose_half_a_step_of_their_codes(kind: str) -> None:
    """Against the product of the floats themselves: a step is 1/127 of the largest of 32."""
    terms = 768
    x = np.random.default_rng(4).standard_normal((5, terms)).astype(np.float32)
    weight = blocks_of(kind, terms)
    w = gguf.quants.dequantize(weight, gguf.GGMLQuantizationType[kind.upper()]).astype(np.float64)
    found = layer({"input": x, "weight": weight}, kind)
    step = np.abs(x).reshape(5, -1, 32).max(axis=2).repeat(32, axis=1) / 127
    lost = step / 2 @ np.abs(w).T
    assert (np.abs(found - x.astype(np.float64) @ w.T) <= 1.001 * lost).all()


@pytest.mark.parametrize("kind", KNOWN)
def test_a_row_alone_has_the_bits_that_it_has_among_32(kind: str) -> None:
    """And among any other number of rows, whatever way these are computed."""
    given = codes((32, 544 if FORMATS[kind].elements == 32 else 768))
    weight = {"weight": blocks_of(kind, given["input"].shape[1])}
    whole = layer(given | weight, kind)
    for first, last in ((0, 1), (31, 32), (7, 10), (8, 16), (3, 24)):
        rows = {name: np.ascontiguousarray(each[first:last]) for name, each in given.items()}
        assert layer(rows | weight, kind).tobytes() == whole[first:last].tobytes()


@pytest.mark.parametrize("output_dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("input_dtype", ["float16", "bfloat16", "float32"])
def test_floats_are_their_codes(input_dtype: str, output_dtype: str) -> None:
    """To the bit: those of `dynamic_range_quantize`, NaN, zeros and tiny numbers among them."""
    x = np.random.default_rng(5).standard_normal((2, 4, 512)).astype(np.float32)
    x[0, 1, 33], x[1, 0, 400], x[1, 2, :64] = np.nan, -np.inf, 0
    x[1, 3] *= 2.0**-14
    x = x.astype(STORAGE[input_dtype])
    for kind in ("q8_0", "q2_k", "nvfp4"):
        weight = {"weight": blocks_of(kind, 512)}
        with np.errstate(all="ignore"):
            floating = layer({"input": x} | weight, kind, output_dtype)
            assert np.isnan(floating[0, 1].astype(np.float32)).all()
        assert layer(quantized(x) | weight, kind, output_dtype).tobytes() == floating.tobytes()


def test_the_largest_sums_are_exact() -> None:
    """Of the lowest codes on both sides, which have no opposite in int8."""
    weight = np.full((COLUMNS, 8 * 34), 0x80, np.uint8)
    weight.reshape(-1, 34)[:, :2] = np.array([1], np.float16).view(np.uint8)
    for rows in (1, 2, 8, 17, 33):
        x = np.full((rows, 256), -128, np.int8)
        given = {"input": x, "input_scale": np.ones((rows, 8), np.float32), "weight": weight}
        assert (layer(given, "q8_0") == 256 * 2.0**14).all()


def test_a_scale_that_is_no_number_spoils_its_column_alone() -> None:
    """Also where all codes are 0; an infinite one keeps its sign where they are not."""
    given = codes((3, 256))
    given["input"][0] = 0
    weight = blocks_of("q8_0", 256)
    plain = layer(given | {"weight": weight}, "q8_0")
    weight[2, :2] = np.array([np.inf], np.float16).view(np.uint8)
    weight[5, 34:36] = np.array([np.nan], np.float16).view(np.uint8)
    found = layer(given | {"weight": weight}, "q8_0")
    assert np.isnan(found[:, 5]).all()
    assert np.isnan(found[0, 2])
    assert np.isinf(found[1:, 2]).all()
    others = np.delete(np.arange(COLUMNS), (2, 5))
    assert found[:, others].tobytes() == plain[:, others].tobytes()


def test_rows_of_bytes_may_lie_anywhere() -> None:
    """At any address, at any distance, backwards; so may codes, scales and the output."""
    given = codes((2, 5, 512))
    weight = blocks_of("q6_k", 512)
    wanted = layer(given | {"weight": weight}, "q6_k")
    room = np.zeros((COLUMNS, weight.shape[1] + 11), np.uint8)
    moved = room[::-1, 3:-8]
    moved[...] = weight
    wide = np.zeros((5, 2, 515), np.int8).swapaxes(0, 1)[..., 1:513]
    wide[...] = given["input"]
    scales = np.zeros((2, 5, 17), np.float32)[::-1, :, 1:]
    scales[...] = given["input_scale"]
    desc = planq.LinearGgufDescriptor(
        input_shape=(2, 5, 512),
        weight_shape=(COLUMNS, 512),
        type="q6_k",
        input_dtype="int8",
        output_dtype="float32",
    )
    output = np.zeros((5, 2, COLUMNS + 2), np.float32).swapaxes(0, 1)[..., 1:-1]
    args = planq.LinearGgufArgs(input=wide, weight=moved, output=output, input_scale=scales)
    plan = planq.Plan.select(planq.HOST, desc)
    plan.run(planq.HOST, plan.empty_workspace(np), args)
    assert output.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("input_dtype", ["int8", "float32"])
def test_one_plan_takes_every_number_of_rows(input_dtype: str) -> None:
    """The axis before the last may be a Dim; no rows are nothing to do."""
    desc = planq.LinearGgufDescriptor(
        input_shape=(planq.Dim("m", max=33), 256),
        weight_shape=(COLUMNS, 256),
        type="q5_k",
        input_dtype=input_dtype,
        output_dtype="float32",
    )
    plan = planq.Plan.select(planq.HOST, desc)
    given = codes((33, 256))
    if input_dtype == "float32":
        given = {"input": given["input"].astype(np.float32)}
    weight = {"weight": blocks_of("q5_k", 256)}
    whole = layer(given | weight, "q5_k")
    room = np.empty(plan.workspace_size() + planq.WORKSPACE_ALIGNMENT, np.uint8)
    room = room[-room.ctypes.data % planq.WORKSPACE_ALIGNMENT :][: plan.workspace_size()]
    for rows in (0, 1, 9, 33):
        made_outputs = plan.empty_outputs(np, m=rows)
        own = {name: each[:rows] for name, each in given.items()}
        args = planq.LinearGgufArgs(**own, **weight, **made_outputs)
        plan.run(planq.HOST, room if room.size else None, args)
        assert made_outputs["output"].tobytes() == whole[:rows].tobytes()


def test_an_empty_sum_is_zero_and_the_bias() -> None:
    """Without terms."""
    given = {
        "input": np.zeros((2, 0), np.int8),
        "input_scale": np.zeros((2, 0), np.float32),
        "weight": np.zeros((3, 0), np.uint8),
    }
    assert layer(given, "q4_k").tobytes() == np.zeros((2, 3), np.float32).tobytes()
    bias = np.array([1, -2, 3], np.float16)
    assert layer(given | {"bias": bias}, "q4_k").tolist() == [[1, -2, 3]] * 2


def test_every_instruction_set_has_the_same_bits() -> None:
    """A process for each that the processor has."""
    wanted = digest()
    for name in _core.instruction_sets()[:-1]:
        environment = {**os.environ, places.INSTRUCTION_SET: name}
        command = [sys.executable, "-P", layers_of_blocks.__file__]
        told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert told.stdout.split() == [wanted], name


FAULTS = {
    "no block": ("weight_shape", {"input_shape": (3, 48), "weight_shape": (5, 48)}, "32 elements"),
    "half a block": ("weight_shape", {"type": "q4_k"}, "blocks of 256 elements, as q4_k has them"),
    "another k": ("weight_shape", {"weight_shape": (5, 96)}, "expected k = 64"),
    "three axes": ("weight_shape", {"weight_shape": (2, 5, 64)}, "expected (n, k)"),
    "one axis": ("input_shape", {"input_shape": (64,)}, "2 to 8 axes"),
    "codes without a sign": ("input_dtype", {"input_dtype": "uint8"}, "uint8"),
    "doubles": ("input_dtype", {"input_dtype": "float64"}, "float64"),
    "integers": ("output_dtype", {"output_dtype": "int32"}, "int32"),
    "a bias of codes": ("bias_dtype", {"bias_dtype": "int8"}, "int8"),
    "a type that files lack": ("type", {"type": "q8_k"}, "q8_k"),
    "an unknown type": ("type", {"type": "iq2_m"}, "iq2_m"),
    "terms that vary": ("input_shape", {"input_shape": (3, planq.Dim("k", max=64))}, "last axis"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_descriptors_that_are_refused(fault: str) -> None:
    """Each names its field and what came."""
    field, changes, text = FAULTS[fault]
    fields: dict[str, Any] = {"input_shape": (3, 64), "weight_shape": (5, 64), "type": "q4_0"}
    fields |= {"input_dtype": "int8", "output_dtype": "float32"}
    with pytest.raises(planq.DescriptorError) as caught:
        planq.LinearGgufDescriptor(**(fields | changes))
    assert caught.value.field == field
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("weight", np.zeros((5, 35), np.uint8)),
        ("weight", np.zeros((5, 36), np.int8)),
        ("weight", np.zeros((5, 72), np.uint8)[:, ::2]),
        ("input", np.zeros((3, 64), np.uint8)),
        ("input_scale", np.zeros((3, 1), np.float32)),
        ("input_scale", np.zeros((3, 2), np.float16)),
        ("input_scale", None),
        ("bias", np.zeros(5, np.float32)),
    ],
)
def test_operands_that_do_not_fit_are_named_and_nothing_is_written(name: str, other: Any) -> None:
    """Before anything runs."""
    desc = planq.LinearGgufDescriptor(
        input_shape=(3, 64),
        weight_shape=(5, 64),
        type="q4_0",
        input_dtype="int8",
        output_dtype="float32",
    )
    output = np.full((3, 5), 7, np.float32)
    given = {"weight": np.zeros((5, 36), np.uint8), "input": np.zeros((3, 64), np.int8)}
    given["input_scale"] = np.zeros((3, 2), np.float32)
    args = planq.LinearGgufArgs(**(given | {name: other}), output=output)
    plan = planq.Plan.select(planq.HOST, desc)
    with pytest.raises(planq.ArgumentError, match=rf"^{name}: "):
        plan.run(planq.HOST, plan.empty_workspace(np), args)
    assert (output == 7).all()
