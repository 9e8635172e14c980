"""MX and NVFP4 codes back to numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import planq
from planq.audit.memory import Host, Layout
from planq.audit.ops.affine import inputs as affine_inputs
from planq.audit.ops.affine import microscaling
from planq.audit.ops.affine.dequantize.adapter import TESTS
from planq.audit.ops.affine.dequantize.cases import FORMATS
from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.runner import Bench

F32 = np.float32
HOST = Host()
EVERY_BYTE = np.arange(256, dtype=np.uint8)


def problem_of(
    shape: tuple[int, ...], kind: tuple[str, str, str], output_dtype: str = "float32"
) -> DequantizeProblem:
    """Codes of a format."""
    convention, input_dtype, order = kind
    return DequantizeProblem(
        shape,
        ("group", microscaling.GROUP[convention], -1),
        input_dtype=input_dtype,
        output_dtype=output_dtype,
        nibble_order=order,
        convention=convention,
    )


class TestEveryValue:
    """All codes under all scales."""

    @pytest.mark.parametrize("output_dtype", microscaling.INPUTS)
    def test_mx(self, output_dtype: str) -> None:
        """256 scales, NaN among them, times all codes: exact but for one rounding."""
        for input_dtype in ("float4_e2m1fn", "float8_e4m3fn", "float8_e5m2"):
            codes = np.tile(EVERY_BYTE, (256, 1))
            four = input_dtype == "float4_e2m1fn"
            columns = 512 if four else 256
            problem = problem_of((256, columns), ("mx", input_dtype, "low_first"), output_dtype)
            scale = np.repeat(EVERY_BYTE[:, None], columns // 32, axis=1)
            given = {
                "input": codes if four else codes.view(input_dtype),
                "scale": scale.view(ml_dtypes.float8_e8m0fnu),
            }
            TESTS.check(problem, **given)

    def test_e8m0_is_that_of_ml_dtypes_and_torch(self) -> None:
        """2^(byte - 127), subnormal for 0 and NaN for 255."""
        codes = np.full((256, 16), 0x22, np.uint8)  # ones
        problem = problem_of((256, 32), ("mx", "float4_e2m1fn", "low_first"))
        scale = EVERY_BYTE[:, None].copy()
        ours = TESTS.run(problem, input=codes, scale=scale.view(ml_dtypes.float8_e8m0fnu))
        theirs = scale.view(ml_dtypes.float8_e8m0fnu).astype(F32)
        assert np.array_equal(ours["output"][:, :1], theirs, equal_nan=True)
        of_torch = torch.from_numpy(scale).view(torch.float8_e8m0fnu).float().numpy()
        assert np.array_equal(ours["output"][:, :1], of_torch, equal_nan=True)

    @pytest.mark.parametrize("output_dtype", microscaling.INPUTS)
    @pytest.mark.parametrize(
        "tensor_scale", [1.0, 0.3, -2.0, 0.0, 1e-45, 1e-38, 3e38, np.inf, np.nan]
    )
    def test_nvfp4(self, tensor_scale: float, output_dtype: str) -> None:
        """256 scales times all codes: the scales meet first."""
        problem = problem_of((256, 32), ("nvfp4", "float4_e2m1fn", "low_first"), output_dtype)
        codes = np.tile((EVERY_BYTE[:16] * 17), (256, 1))
        scale = np.repeat(EVERY_BYTE[:, None], 2, axis=1).view(ml_dtypes.float8_e4m3fn)
        TESTS.check(problem, input=codes, scale=scale, tensor_scale=np.array([tensor_scale], F32))

    def test_by_hand(self) -> None:
        """Both orders of nibbles, and the order of the products."""
        low = problem_of((1, 4), ("mx", "float4_e2m1fn", "low_first"))
        codes, scale = np.array([[0xF1, 0x3A]], np.uint8), np.array([[129]], np.uint8)
        given = {"input": codes, "scale": scale.view(ml_dtypes.float8_e8m0fnu)}
        assert TESTS.run(low, **given)["output"].tolist() == [[2.0, -24.0, -4.0, 6.0]]
        high = problem_of((1, 4), ("mx", "float4_e2m1fn", "high_first"))
        assert TESTS.run(high, **given)["output"].tolist() == [[-24.0, 2.0, 6.0, -4.0]]
        problem = problem_of((1, 2), ("nvfp4", "float4_e2m1fn", "low_first"))
        s, t = F32(0.40625), F32(0.1)
        made = TESTS.run(
            problem,
            input=np.array([[0x75]], np.uint8),
            scale=np.array([[s]], ml_dtypes.float8_e4m3fn),
            tensor_scale=np.array([t], F32),
        )
        assert made["output"].tolist() == [[F32(3) * (s * t), F32(6) * (s * t)]]


class TestLayouts:
    """Any alignment, padded rows, tails."""

    @pytest.mark.parametrize("columns", [*range(1, 34), 63, 64, 65, 511, 512, 513, 1000])
    def test_tails(self, columns: int) -> None:
        """The last group of a row may be shorter."""
        for kind, output_dtype in FORMATS:
            problem = problem_of((3, columns), kind, output_dtype)
            TESTS.check(problem, **affine_inputs.make(problem, "mixed", "special", columns))

    @pytest.mark.parametrize("pitch", [0, 1, 32])
    @pytest.mark.parametrize("offset", [0, 1, 3])
    def test_misaligned_and_padded(self, offset: int, pitch: int) -> None:
        """Nothing beside the operands is written."""
        for kind, output_dtype in FORMATS:
            problem = problem_of((2, 3, 96), kind, output_dtype)
            given = affine_inputs.make(problem, "mixed", "special", offset)
            layouts = {
                name: Layout(offset=offset + number, pitch=pitch + number)
                for number, name in enumerate(("input", "output", "scale"))
            }
            bench = Bench(HOST, TESTS.descriptor(problem), layouts=layouts)
            bench.load(given)
            bench.run()
            bench.check(given, problem.expected(given), problem.id)

    def test_threads(self) -> None:
        """Any number of them gives the same bits."""
        for kind, output_dtype in FORMATS[::4]:
            problem = problem_of((300, 1024), kind, output_dtype)
            given = affine_inputs.make(problem, "mixed", "ordinary", 1)
            for threads in (1, 2, 5):
                TESTS.check(problem, Host(threads), **given)


@pytest.mark.parametrize("convention", ["mx", "mx_round_up", "nvfp4"])
def test_what_was_quantized_comes_back(convention: str) -> None:
    """Numbers of the format itself are the same again; 1 / g is the tensor's scale."""
    x = np.array([0, 0.5, -1, 1.5, 2, -3, 4, 6] * 8, F32).reshape(2, 32)
    x *= np.array([[2.0**-40], [2.0**30]], F32) if convention != "nvfp4" else F32(8)
    group = planq.Scope.group(microscaling.GROUP[convention])
    desc = planq.DynamicRangeQuantizeDescriptor(
        shape=x.shape,
        input_dtype="float32",
        output_dtype="float4_e2m1fn",
        scope=group,
        convention=convention,
    )
    plan = planq.Plan.select(planq.HOST, desc)
    made = plan.empty_outputs(np)
    factor = {"inverse_tensor_scale": np.array([0.25], F32)} if convention == "nvfp4" else {}
    plan.run(planq.HOST, None, planq.DynamicRangeQuantizeArgs(input=x, **made, **factor))
    back = np.empty_like(x)
    desc_back = planq.DequantizeDescriptor(
        shape=x.shape,
        input_dtype="float4_e2m1fn",
        output_dtype="float32",
        scope=group,
        convention="nvfp4" if convention == "nvfp4" else "mx",
    )
    scale = {"tensor_scale": np.array([4], F32)} if convention == "nvfp4" else {}
    args = planq.DequantizeArgs(input=made["output"], output=back, scale=made["scale"], **scale)
    planq.Plan.select(planq.HOST, desc_back).run(planq.HOST, None, args)
    assert np.array_equal(back, x)


@pytest.mark.parametrize("parameters", ["ordinary", "special"])
@pytest.mark.parametrize("input_dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_torch_agrees(input_dtype: str, parameters: str) -> None:
    """torch widens fp8 codes and scales, and multiplies."""
    problem = problem_of((99, 64), ("mx", input_dtype, "low_first"), "bfloat16")
    given = affine_inputs.make(problem, "mixed", parameters, 2)
    codes = torch.from_numpy(given["input"].view(np.uint8)).view(getattr(torch, input_dtype))
    scale = torch.from_numpy(given["scale"].view(np.uint8)).view(torch.float8_e8m0fnu)
    theirs = (codes.float() * scale.float().repeat_interleave(32, dim=1)).bfloat16()
    ours = TESTS.run(problem, **given)["output"].astype(F32)
    assert np.array_equal(ours, theirs.float().numpy(), equal_nan=True)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("convention", {"convention": "mx_round_up"}),
        ("input_dtype", {"convention": "mx", "input_dtype": "int4"}),
        ("input_dtype", {"convention": "nvfp4", "input_dtype": "float8_e4m3fn"}),
        ("input_dtype", {"convention": "planq"}),
        ("output_dtype", {"output_dtype": "float64"}),
        ("scale_dtype", {"scale_dtype": "float32"}),
        ("scope", {"scope": ("group", 16, -1)}),
        ("scope", {"scope": ("token",)}),
        ("scope", {"scope": ("pair",)}),
        ("mode", {"mode": "asymmetric"}),
        ("bias_dtype", {"bias_dtype": "float32"}),
    ],
)
def test_refused(field: str, changes: dict[str, Any]) -> None:
    """The error names the field."""
    fields = {
        "scope": ("group", 32, -1),
        "input_dtype": "float4_e2m1fn",
        "output_dtype": "bfloat16",
        "convention": "mx",
    }
    with pytest.raises(planq.DescriptorError) as caught:
        TESTS.descriptor(DequantizeProblem((4, 64), **{**fields, **changes}))
    assert caught.value.field == field


def test_the_scale_of_the_tensor_is_an_operand() -> None:
    """One float32 in memory, and an error that names it."""
    problem = problem_of((4, 64), ("nvfp4", "float4_e2m1fn", "low_first"))
    plan = planq.Plan.select(planq.HOST, TESTS.descriptor(problem))
    given = affine_inputs.make(problem, "mixed", "ordinary", 1)
    for wrong in (None, np.ones(2, F32), np.ones(1, np.float64)):
        args = planq.DequantizeArgs(
            **{**given, "tensor_scale": wrong}, output=np.empty((4, 64), F32)
        )
        status = plan.can_implement(args)
        assert not status
        assert status.operand == "tensor_scale"
