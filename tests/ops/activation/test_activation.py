"""`activation` on the host: every 16-bit number, torch, layouts, places, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import planq
from planq.audit.ops.activation.activation.adapter import computed
from planq.audit.ops.activation.activation.reference import Problem, function_of
from planq.audit.ops.elementwise.elements import special
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array, Arrays, bits, canonical
from support.tensors import as_torch, from_torch

# The largest errors of docs/numerics/functions.md in float32, in units in the last place.
MOST_ULP = {"silu": 1.0929, "gelu_tanh": 1.3902, "gelu_erf": 4.8367, "sigmoid": 1.0004}
THEIRS: dict[str, Any] = {
    "silu": functional.silu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu_erf": functional.gelu,
    "sigmoid": torch.sigmoid,
    "relu": functional.relu,
    "relu_squared": lambda x: functional.relu(x).square(),
}
every_function = pytest.mark.parametrize("function", list(THEIRS))


def alone(function: str, x: Array, dtype: str | None = None) -> Array:
    """Without a gate."""
    own = (x.dtype.name, dtype or x.dtype.name)
    return computed(Problem(x.shape, function, False, "halves", *own), {"input": x})


def test_every_function_is_here() -> None:
    """Those of the vocabulary."""
    assert list(THEIRS) == [function.value for function in planq.ActivationFunction]


@every_function
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_number(dtype: str, function: str) -> None:
    """Against the function's sequence in NumPy, whose float32 ml_dtypes and NumPy round once."""
    x = np.arange(2**16).astype(np.uint16).view(STORAGE[dtype])
    with np.errstate(all="ignore"):
        exact = function_of(function, x.astype(np.float32))
        wanted = canonical(exact.astype(x.dtype), dtype)
    assert np.array_equal(bits(alone(function, x)), bits(wanted))
    assert np.array_equal(bits(alone(function, x, "float32")), bits(canonical(exact, "float32")))


@pytest.mark.parametrize("function", list(MOST_ULP))
def test_torch_in_float64_is_as_near_as_promised(function: str) -> None:
    """Of float32 the errors that docs/numerics/functions.md has; results below 2^-126 aside.

    torch computes x Phi(x) by 1 + erf, which loses what is far below 0.
    """
    x = inputs.make("normal", (60_000,), "float32", 3)
    x = np.where(x < (-2 if function.startswith("gelu") else -np.inf), -x, x)
    exact = THEIRS[function](torch.from_numpy(x).double()).numpy()
    normal = np.abs(exact) >= 2.0**-126
    assert normal.sum() > 50_000
    unit = np.ldexp(1.0, np.frexp(exact[normal])[1] - 24)
    errors = np.abs(alone(function, x)[normal] - exact[normal]) / unit
    assert errors.max() <= MOST_ULP[function] + 1e-3


@pytest.mark.parametrize("function", ["relu", "relu_squared"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_relu_is_that_of_torch(dtype: str, function: str) -> None:
    """Bit by bit, but for the sign of a zero and for NaN, of which torch keeps the payload."""
    x = special((5000,), dtype, 4)
    ours, theirs = alone(function, x), from_torch(THEIRS[function](as_torch(x)))
    with np.errstate(invalid="ignore"):  # some NaN signal
        x, ours, theirs = (each.astype(np.float32) for each in (x, ours, theirs))
    nan = np.isnan(x)
    assert nan.any()
    assert np.array_equal(nan, np.isnan(ours))
    assert np.array_equal(ours[~nan], theirs[~nan])
    assert not np.signbit(ours[~nan]).any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_gated_layer_of_torch_rounds_once_more(dtype: str) -> None:
    """It rounds the gate to 16 bits before the product: two half units more, by 1 + 2^-p."""
    gate, up = (inputs.make("normal", (40_000,), dtype, seed) for seed in (1, 2))
    problem = Problem(gate.shape, "silu", True, "separate", dtype, "float32")
    ours = computed(problem, {"input": gate, "up": up})
    theirs = from_torch(functional.silu(as_torch(gate)) * as_torch(up)).astype(np.float64)
    precision = 8 if dtype == "bfloat16" else 11
    kept = np.isfinite(theirs) & (np.abs(theirs) > 2.0**-8) & (np.abs(up.astype(float)) < 2.0**6)
    assert kept.sum() > 20_000
    apart = np.abs(ours[kept] - theirs[kept]) / np.abs(theirs[kept])
    assert 2.0**-precision < apart.max() <= 2.02 * 2.0**-precision


def pair_of(layout: str, gate: Array, up: Array) -> Arrays:
    """Both sides as operands."""
    if layout == "separate":
        return {"input": gate, "up": up}
    if layout == "interleaved":
        both = np.stack([bits(gate), bits(up)], -1).reshape(*gate.shape[:-1], -1)
        return {"input": both.view(gate.dtype)}
    first, second = (gate, up) if layout == "halves" else (up, gate)
    return {"input": np.concatenate([first, second], -1)}


@every_function
@pytest.mark.parametrize("shape", [(3, 64), (7, 33), (40,), (2, 3, 8), (1, 1), (5, 1)])
def test_layouts_are_one(shape: tuple[int, ...], function: str) -> None:
    """Of the same sides, and the gate times 1 is what it is alone."""
    gate, up = special(shape, "bfloat16", 1), special(shape, "bfloat16", 2)
    problem = Problem(shape, function, True, "separate", "bfloat16", "float32")
    apart = computed(problem, pair_of("separate", gate, up))
    for layout in ("halves", "halves_up_first", "interleaved"):
        packed = computed(replace(problem, layout=layout), pair_of(layout, gate, up))
        assert np.array_equal(bits(packed), bits(apart)), layout
    ones = computed(problem, {"input": gate, "up": np.ones_like(up)})
    assert np.array_equal(bits(ones), bits(alone(function, gate, "float32")))


@pytest.mark.parametrize("layout", [layout.value for layout in planq.GateLayout])
def test_rows_that_lie_apart_and_any_number_of_threads(layout: str) -> None:
    """As views of larger tensors, backwards, and as rows that overlap each other."""
    gate, up = (inputs.make("tiled", (90, 401), "float16", seed) for seed in (1, 2))
    operands = pair_of(layout, gate, up)
    problem = Problem(gate.shape, "gelu_tanh", True, layout, "float16", "float16")
    wanted = computed(problem, operands)
    desc = planq.ActivationDescriptor(
        shape=gate.shape, function="gelu_tanh", gated=True, layout=layout, input_dtype="float16"
    )
    plan = planq.Plan.select(planq.HOST, desc)
    for threads in (1, 3):
        held = {name: np.pad(each, ((0, 0), (3, 2)))[::-1, 3:-2] for name, each in operands.items()}
        output = np.empty((90, 500), np.float16)[:, 7:408]
        args = planq.ActivationArgs(output=output, **held)
        plan.run(planq.host_stream(threads=threads), None, args)
        assert np.array_equal(bits(output[::-1]), bits(wanted))


def test_windows_of_one_row() -> None:
    """Rows of an input may begin anywhere: H elements apart, where they have 2H."""
    line = inputs.make("normal", (9 * 8,), "float32", 1)
    windows = np.lib.stride_tricks.as_strided(line, (8, 16), (32, 4))
    for layout in ("halves", "interleaved"):
        problem = Problem((8, 8), "silu", True, layout, "float32", "float32")
        desc = planq.ActivationDescriptor(
            shape=(8, 8), function="silu", gated=True, layout=layout, input_dtype="float32"
        )
        output = np.empty((8, 8), np.float32)
        args = planq.ActivationArgs(input=windows, output=output)
        planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
        wanted = computed(problem, {"input": np.ascontiguousarray(windows)})
        assert np.array_equal(bits(output), bits(wanted))


def test_tokens_may_be_a_dim() -> None:
    """One plan for every number of tokens."""
    gate, up = special((6, 48), "bfloat16", 1), special((6, 48), "bfloat16", 2)
    packed = pair_of("halves", gate, up)["input"]
    desc = planq.ActivationDescriptor(
        shape=(planq.Dim("tokens", 16), 48), function="silu", gated=True, input_dtype="bfloat16"
    )
    plan = planq.Plan.select(planq.HOST, desc)
    problem = Problem((6, 48), "silu", True, "halves", "bfloat16", "bfloat16")
    wanted = computed(problem, {"input": packed})
    for tokens in (0, 1, 6):
        output = np.empty((tokens, 48), packed.dtype)
        plan.run(planq.HOST, None, planq.ActivationArgs(input=packed[:tokens], output=output))
        assert np.array_equal(bits(output), bits(wanted[:tokens]))


def test_what_is_refused() -> None:
    """By its field, or by its operand."""
    own: dict[str, Any] = {"shape": (4, 8), "function": "silu", "input_dtype": "float32"}
    for wrong in (
        {"input_dtype": "float64"},
        {"output_dtype": "int32"},
        {"function": "tanh"},
        {"layout": "separate"},
        {"shape": ()},
    ):
        with pytest.raises(planq.DescriptorError) as error:
            planq.ActivationDescriptor(**own | wrong)
        assert [error.value.field] == list(wrong)
    x, y = np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32)
    for fields, args, operand in (
        ({}, {"up": y}, "up"),
        ({"gated": True}, {}, "input"),
        ({"gated": True, "layout": "separate"}, {}, "up"),
        ({}, {"output": x}, "output"),
    ):
        plan = planq.Plan.select(planq.HOST, planq.ActivationDescriptor(**own, **fields))
        with pytest.raises(planq.ArgumentError) as refused:
            plan.run(planq.HOST, None, planq.ActivationArgs(**{"input": x, "output": y} | args))
        assert refused.value.operand == operand
