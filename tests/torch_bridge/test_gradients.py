"""Gradients of what has one, and the lines for a person."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import planq
import planq.torch
from planq.audit.kernels import spread
from planq.audit.operators import Case, expected, inputs_of
from support.own import ADAPTERS
from support.tensors import as_torch, from_torch
from support.torch_operators import text

OPS: Any = torch.ops.planq
FORWARD = ("scope", "mode", "q_min", "q_max", "zero_point_dtype", "quotient")
BACKWARDS = spread(ADAPTERS["fake_quantize_backward"].cases(), 20)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
CODES = {
    "int8": "symmetric",
    "uint8": "asymmetric",
    "int4": "symmetric",
    "uint4": "asymmetric",
    "float8_e4m3fn": "symmetric",
    "float8_e5m2": "symmetric",
}


def sample(dtype: torch.dtype = torch.float32, rows: int = 6, width: int = 33) -> torch.Tensor:
    """Normal numbers."""
    values = np.random.default_rng(rows).standard_normal((rows, width))
    return torch.from_numpy(values).to(dtype)


@pytest.mark.parametrize("case", BACKWARDS, ids=lambda case: str(case.id))
def test_fake_quantize_has_the_references_gradient(case: Case) -> None:
    """With given parameters, whatever the draw."""
    inputs = {name: as_torch(values) for name, values in inputs_of(case).items()}
    desc: Any = ADAPTERS["fake_quantize_backward"].descriptor(case.problem)
    fields = {"mode_" if name == "mode" else name: text(getattr(desc, name)) for name in FORWARD}
    for more in ({}, {"rounding": "stochastic", "seed": 5, "offset": 0}):
        x = inputs["input"].clone().requires_grad_()
        (y,) = OPS.fake_quantize(x, inputs["scale"], inputs.get("zero_point"), **fields, **more)
        y.backward(inputs["grad_output"])
        assert x.grad is not None
        assert from_torch(x.grad).tobytes() == expected(case)["grad_input"].tobytes()


def straight_through(x: Any, dy: Any, low: float, high: float) -> Any:
    """Of rows in float32, symmetric, by the formula."""
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(high)
    codes = np.rint(x / scale)
    return np.where((codes >= low) & (codes <= high), dy, np.float32(0))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_range_that_clips_has_no_gradient_beyond(compiled: bool) -> None:
    """A dynamic range that has more room above zero than below."""

    def of_codes(x: torch.Tensor) -> torch.Tensor:
        return planq.torch.quantize_dequantize(x, torch.int8, q_min=-20)

    def of_fake(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = OPS.fake_quantize(x, scope="token()", q_min=-20, dynamic=True)[0]
        return result

    for function in (of_codes, of_fake):
        torch.compiler.reset()
        call: Any = function
        if compiled:
            call = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
        for rows in (2, 5):
            x, dy = sample(rows=rows), sample(rows=rows + 10)[:rows]
            leaf = x.clone().requires_grad_()
            call(leaf).backward(dy)
            wanted = straight_through(x.numpy(), dy.numpy(), -20, 127)
            assert (wanted == 0).any()
            assert leaf.grad is not None
            assert from_torch(leaf.grad).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("x_dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dtype", CODES)
def test_quantize_and_back(dtype: str, x_dtype: torch.dtype) -> None:
    """Within a step of every element; the gradient is whole, that of the largest element too."""
    x, mode = sample(x_dtype), CODES[dtype]
    scope = planq.Scope.group(16)
    codes, scale, *zero_points = planq.torch.quantize(x, dtype, scope=scope, mode=mode)
    assert len(zero_points) == (mode == "asymmetric")
    back = planq.torch.dequantize(
        codes,
        scale,
        *zero_points,
        scope=scope,
        dtype=dtype,
        output_dtype=x_dtype,
        shape=x.shape,
    )
    steps = scale.double().repeat_interleave(16, dim=1)[:, : x.shape[1]]
    most = {"float8_e4m3fn": 16, "float8_e5m2": 4096}.get(dtype, 0.51) * steps
    rounding = torch.finfo(x_dtype).eps * x.double().abs()
    assert ((back.double() - x.double()).abs() <= most + rounding).all()
    leaf = x.clone().requires_grad_()
    y = planq.torch.quantize_dequantize(leaf, dtype, scope=scope, mode=mode)
    assert torch.equal(y, back)
    dy = sample(x_dtype, rows=12)[:6]
    y.backward(dy)
    assert leaf.grad is not None
    exact = dtype.startswith(("int", "uint"))
    near = 0 if exact else 2 * max(torch.finfo(x_dtype).eps, 2**-52)
    assert torch.allclose(leaf.grad, dy, rtol=near, atol=0)


@pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
def test_scales_that_are_measured_carry_no_gradient(mode: str) -> None:
    """Asking for one raises, and that of the values is whole."""
    leaf = sample().requires_grad_()
    y, *measured = OPS.fake_quantize(leaf, mode_=mode, dynamic=True)
    assert len(measured) == 1 + (mode == "asymmetric")
    assert y.requires_grad
    for each in measured:
        assert not each.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(measured[0].sum(), leaf)
    (gradient,) = torch.autograd.grad(y.sum() + measured[0].sum(), leaf)
    assert torch.equal(gradient, torch.ones_like(leaf))


def test_words_and_members_are_the_same() -> None:
    """Of dtypes, scopes and enumerations."""
    x = sample()
    wanted = planq.torch.quantize(x, "int8", scope="channel(0)", mode="asymmetric")
    for dtype in (torch.int8, planq.DType.INT8, np.int8, np.dtype("int8")):
        found = planq.torch.quantize(
            x, dtype, scope=planq.Scope.channel(0), mode=planq.Mode.ASYMMETRIC
        )
        assert all(map(torch.equal, found, wanted))
