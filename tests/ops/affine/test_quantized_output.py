"""Codes that other operators leave: what is refused, and that the plans apart have the bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import planq
import planq.memory
from support import vllm

SHARED: dict[str, Any] = {"shape": (3, 64), "input_dtype": "float32"}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rms_norm": (planq.RmsNormDescriptor, {"weight_dtype": "float32"}),
    "layer_norm": (planq.LayerNormDescriptor, {"weight_dtype": "float32"}),
    "activation": (planq.ActivationDescriptor, {"function": "silu"}),
}
ARGS = {
    "rms_norm": planq.RmsNormArgs,
    "layer_norm": planq.LayerNormArgs,
    "activation": planq.ActivationArgs,
}
every = pytest.mark.parametrize("name", KINDS)
VLLM: dict[str, Any] = {"output_dtype": "float8_e4m3fn", "convention": "vllm"}
REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"output_dtype": "float16", "mode": "asymmetric"}, "mode: goes with an output_dtype of codes"),
    ({"output_dtype": None, "also_output": True}, "also_output: goes with"),
    ({"output_dtype": "float32", "q_max": 100.0}, "q_max: goes with"),
    ({"output_dtype": "int32"}, "output_dtype"),
    ({"norm_dtype": "float64"}, "norm_dtype"),
    ({"norm_dtype": "int8"}, "norm_dtype"),
    ({"scope": planq.Scope.tensor()}, "scope: expected tokens or groups along the last axis"),
    ({"scope": planq.Scope.channel(-1)}, "scope: expected tokens or groups"),
    ({"scope": planq.Scope.group(32, 0)}, "scope: expected tokens or groups"),
    ({"convention": "ggml", "scope": planq.Scope.group(32, -1)}, "convention: expected planq,"),
    ({"convention": "nvfp4"}, "output_dtype"),
    ({"output_dtype": "uint8"}, "mode: a symmetric range needs a signed output_dtype"),
    ({"mode": "asymmetric", "output_dtype": "float8_e4m3fn"}, "mode: an asymmetric range"),
    ({"q_max": 128.0}, "q_max: expected a value"),
    ({"scale_given": True, "include_zero": False}, "include_zero: goes with scales that are"),
    ({"scale_given": True, "convention": "compressed_tensors"}, "convention: expected planq where"),
    ({"output_dtype": "float16", "scale_ub": 1.0}, "scale_ub: goes with an output_dtype of codes"),
    ({"scale_given": True, "scale_ub": 1.0}, "scale_ub: goes with scales that are measured"),
    ({"scale_ub": 1.0}, "scale_ub: goes with Convention.VLLM"),
    ({"convention": "vllm"}, "output_dtype: expected"),
    ({**VLLM, "scale_given": True}, "convention: expected planq where scales are given"),
    ({**VLLM, "scope": planq.Scope.group(32, -1)}, "scope: Convention.VLLM has a scale for each"),
    ({**VLLM, "scale_ub": 0.0}, "scale_ub: expected a finite number above 0 in float32, got 0"),
    ({**VLLM, "quotient": "reciprocal"}, "quotient: Convention.VLLM divides"),
    ({**VLLM, "scale_dtype": "bfloat16"}, "scale_dtype: expected"),
    ({**VLLM, "q_max": 240.0}, "q_max: Convention.VLLM has q_max 448"),
)


def described(name: str, **changes: Any) -> planq.Descriptor:
    """The operator with codes of int8, but for these fields."""
    kind, own = KINDS[name]
    made: planq.Descriptor = kind(**SHARED | own | {"output_dtype": "int8"} | changes)
    return made


@every
@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_is_refused(name: str, changes: dict[str, Any], words: str) -> None:
    """With the field's own name, and what was expected."""
    with pytest.raises(planq.DescriptorError) as raised:
        described(name, **changes)
    assert words in str(raised.value)


def operands(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """Inputs of the operator, and memory of its codes."""
    given: dict[str, Any] = {"input": rng.standard_normal((3, 64)).astype(np.float32)}
    if name != "activation":
        given |= {"weight": np.ones(64, np.float32), "eps": 1e-5}
    return given | {"output": np.zeros((3, 64), np.int8), "scale": np.zeros(3, np.float32)}


def run(desc: planq.Descriptor, args: Any) -> None:
    """By the host."""
    plan = planq.Plan.select(planq.HOST, desc)
    size = plan.workspace_size()
    plan.run(planq.HOST, planq.memory.empty(planq.HOST, (size,), "uint8") if size else None, args)


@every
@pytest.mark.parametrize("operand", ["scale", "floating_output"])
def test_operands_that_codes_need_are_asked_for(name: str, operand: str) -> None:
    """A missing one has its name in the error, and nothing is written."""
    desc = described(name, also_output=True)
    given = operands(name, np.random.default_rng(1))
    given |= {"floating_output": np.zeros((3, 64), np.float32)}
    with pytest.raises(planq.ArgumentError) as raised:
        run(desc, ARGS[name](**given | {operand: None}))
    assert raised.value.operand == operand
    assert not given["output"].any()


@every
def test_codes_may_not_lie_over_the_input(name: str) -> None:
    """They have another size: a norm's floating output may."""
    given = operands(name, np.random.default_rng(2))
    given["output"] = given["input"].view(np.int8)[:, :64]
    before = given["input"].copy()
    with pytest.raises(planq.ArgumentError) as raised:
        run(described(name), ARGS[name](**given))
    assert raised.value.operand == "output"
    assert np.array_equal(given["input"], before)


@every
def test_the_workspace_is_the_floating_results(name: str) -> None:
    """Of a kernel of parts, unless they are an output; without codes there is none."""
    plans = [
        planq.Plan.select(planq.HOST, described(name, **changes))
        for changes in ({}, {"also_output": True}, {"output_dtype": "float32"})
    ]
    assert [plan.workspace_size() for plan in plans] == [3 * 64 * 4, 0, 0]


@every
def test_one_plan_has_the_bits_of_two(name: str) -> None:
    """The plan of the codes, and those that it stands for, through the library alone."""
    given = operands(name, np.random.default_rng(3))
    floating = np.zeros((3, 64), np.float32)
    run(described(name, also_output=True), ARGS[name](**given, floating_output=floating))
    first = {n: v for n, v in given.items() if n not in ("output", "scale")}
    apart, codes, scale = np.zeros_like(floating), np.zeros((3, 64), np.int8), np.zeros(3)
    run(described(name, output_dtype="float32"), ARGS[name](**first, output=apart))
    scale = scale.astype(np.float32)
    run(
        planq.DynamicRangeQuantizeDescriptor(**SHARED, output_dtype="int8"),
        planq.DynamicRangeQuantizeArgs(input=apart, output=codes, scale=scale),
    )
    assert np.array_equal(apart, floating)
    assert np.array_equal(codes, given["output"])
    assert np.array_equal(scale, given["scale"])


@every
@pytest.mark.parametrize("norm_dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("nonfinite", ["propagate", "saturate"])
def test_vllms_codes_of_results(name: str, norm_dtype: str, nonfinite: str) -> None:
    """By the formula, on results as they are stored: bounds at ranges of rows and next to them."""
    shape, fields = (24, 64), VLLM | {"norm_dtype": norm_dtype, "nonfinite": nonfinite}
    given = operands(name, np.random.default_rng(4))
    given["input"] = vllm.spoiled(vllm.hostile(np.float32, 64, 1.0))
    floating = np.zeros(shape, ml_dtypes.bfloat16 if norm_dtype == "bfloat16" else norm_dtype)
    given |= {"output": np.zeros(shape, ml_dtypes.float8_e4m3fn), "scale": np.zeros(24, np.float32)}
    middle = np.float32(1)
    for turn in range(4):
        ends = (None, np.float32(0), middle, np.float32(np.inf))
        bound = None if turn == 0 else float(np.nextafter(middle, ends[turn]))
        desc = described(name, **fields, shape=shape, also_output=True, scale_ub=bound)
        run(desc, ARGS[name](**given, floating_output=floating))
        wanted = vllm.quantized(floating, bound, nonfinite)
        assert np.array_equal(wanted["output"], given["output"].view(np.uint8))
        assert wanted["scale"].tobytes() == given["scale"].tobytes()
        ranges = np.abs(floating.astype(np.float32)).max(axis=1)
        middle = np.sort(ranges[np.isfinite(ranges)])[-3]
