"""MX and NVFP4: their formulas on every bfloat16 and on hostile groups, and other libraries."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import planq
from planq.audit.memory import Host, Layout
from planq.audit.ops.affine import microscaling
from planq.audit.ops.affine.dynamic_range_quantize.adapter import descriptor
from planq.audit.ops.affine.dynamic_range_quantize.cases import FORMATS, outputs
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array, bits, unpack_nibbles
from planq.audit.runner import Bench

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torchao_mx: Any = importlib.import_module("torchao.prototype.mx_formats.mx_tensor")
    torchao_nvfp4: Any = importlib.import_module("torchao.prototype.mx_formats.nvfp4_tensor")

F32 = np.float32
HOST = Host()
EVERY_BFLOAT16 = np.arange(2**16, dtype=np.uint16).view(ml_dtypes.bfloat16)
MX_CODES = ("float4_e2m1fn", "float8_e4m3fn", "float8_e5m2")
TORCH_CODES = {
    "float4_e2m1fn": torch.float4_e2m1fn_x2,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}
FP4: dict[str, Any] = {
    "shape": (64, 64),
    "input_dtype": "bfloat16",
    "output_dtype": "float4_e2m1fn",
}


def problem_of(
    x: Array, convention: str, output_dtype: str = "float4_e2m1fn", order: str = "low_first"
) -> Problem:
    """`x` in a format of groups."""
    return Problem(
        shape=x.shape,
        input_dtype=x.dtype.name,
        output_dtype=output_dtype,
        scope=("group", microscaling.GROUP[convention], -1),
        quotient="reciprocal" if convention == "nvfp4" else "divide",
        nibble_order=order,
        convention=convention,
    )


def run(
    problem: Problem,
    x: Array,
    factor: float | None = None,
    layouts: dict[str, Layout] | None = None,
) -> dict[str, Array]:
    """The outputs, after every byte was compared with the reference."""
    given = {"input": x}
    if factor is not None:
        given["inverse_tensor_scale"] = np.array([factor], F32)
    bench = Bench(HOST, descriptor(problem), layouts=layouts)
    bench.load(given)
    bench.run()
    wanted = outputs(problem, x, given.get("inverse_tensor_scale"))
    bench.check(given, wanted, problem.id)
    return bench.outputs()


def codes_of(problem: Problem, made: dict[str, Array]) -> Array:
    """Codes, one a byte."""
    if problem.output_dtype != "float4_e2m1fn":
        return made["output"].view(np.uint8)
    return unpack_nibbles(made["output"], problem.shape[-1], problem.nibble_order)


def scale_bytes(made: dict[str, Array]) -> Array:
    """The stored scales as bytes."""
    return made["scale"].view(np.uint8)


class TestEveryBfloat16:
    """All 2^16 of them."""

    @pytest.mark.parametrize("convention", microscaling.MX)
    @pytest.mark.parametrize("output_dtype", MX_CODES)
    def test_alone_in_a_group(self, convention: str, output_dtype: str) -> None:
        """A number is its own maximum: a quarter of it is lost at most, as 8 becomes 6."""
        x = EVERY_BFLOAT16[:, None]
        problem = problem_of(x, convention, output_dtype)
        made = run(problem, x)
        values = x[:, 0].astype(F32)
        assert np.array_equal(scale_bytes(made)[:, 0] == 255, np.isnan(values))
        codes = microscaling.code_values(codes_of(problem, made)[:, 0], output_dtype)
        power = microscaling.scale_values(scale_bytes(made)[:, 0], "mx", F32(1))
        with np.errstate(over="ignore", invalid="ignore"):
            back = codes * power
        assert np.isinf(back[np.isinf(values)]).all()
        inside = np.isfinite(values) & (np.abs(values) >= 2.0**-126) & np.isfinite(back)
        error = np.abs(back[inside].astype(np.float64) - values[inside]) / np.abs(values[inside])
        assert error.max() <= 0.25

    @pytest.mark.parametrize("convention", [*microscaling.MX, "nvfp4"])
    @pytest.mark.parametrize("peak", [0.0, 2.0**-133, 2.0**-126, 1.0, 1.75, 6.0, 448.0, 3.0e38])
    def test_beside_a_larger_number(self, convention: str, peak: float) -> None:
        """Under the scale of a given maximum, with whatever is not larger."""
        with np.errstate(invalid="ignore"):
            smaller = np.abs(EVERY_BFLOAT16.astype(F32)) <= peak
        x = np.where(smaller, EVERY_BFLOAT16, ml_dtypes.bfloat16(0))
        size = microscaling.GROUP[convention] - 1
        x = np.pad(x, (0, -x.size % size)).reshape(-1, size)
        first = np.full((len(x), 1), peak, ml_dtypes.bfloat16)
        x = np.concatenate([first, x], axis=1)
        for output_dtype in MX_CODES if convention != "nvfp4" else MX_CODES[:1]:
            for factor in (None,) if convention != "nvfp4" else (1.0, 0.37, 2.0**100):
                run(problem_of(x, convention, output_dtype), x, factor)

    def test_codes_of_a_scale_of_one_are_those_of_ml_dtypes(self) -> None:
        """Its cast to float4_e2m1fn rounds and saturates likewise."""
        with np.errstate(invalid="ignore"):
            x = EVERY_BFLOAT16[np.abs(EVERY_BFLOAT16.astype(F32)) < 8]
        x = np.pad(x, (0, -x.size % 31)).reshape(-1, 31)
        x = np.concatenate([np.full((len(x), 1), 4, ml_dtypes.bfloat16), x], axis=1)
        problem = problem_of(x, "mx")
        made = run(problem, x)
        assert (scale_bytes(made) == 127).all()
        inside = np.clip(x.astype(F32), -6, 6)
        assert np.array_equal(
            codes_of(problem, made), inside.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
        )


class TestScales:
    """What a group of few numbers gets, by hand."""

    @pytest.mark.parametrize(
        ("peak", "floor", "up"),
        [
            (0.0, (0, 0, 0), (0, 0, 0)),
            (1.0, (125, 119, 112), (125, 119, 112)),
            (1.75, (125, 119, 112), (126, 119, 112)),
            (1.7499999, (125, 119, 112), (125, 119, 112)),
            (1.875, (125, 119, 112), (126, 119, 113)),
            (1.9375, (125, 119, 112), (126, 120, 113)),
            (1.9374999, (125, 119, 112), (126, 119, 113)),
            (2.0**-149, (0, 0, 0), (0, 0, 0)),
            (2.0**-126, (0, 0, 0), (0, 0, 0)),
            (2.0**-124, (1, 0, 0), (1, 0, 0)),
            (2.0**-118, (7, 1, 0), (7, 1, 0)),
            (2.0**-111, (14, 8, 1), (14, 8, 1)),
            (3.4028234663852886e38, (252, 246, 239), (253, 247, 240)),
            (np.inf, (253, 247, 240), (253, 247, 240)),
            (np.nan, (255, 255, 255), (255, 255, 255)),
        ],
    )
    def test_of_a_maximum(self, peak: float, floor: tuple[int, ...], up: tuple[int, ...]) -> None:
        """The exponent of the maximum, less that of the code's largest, of either sign."""
        for sign in (1, -1):
            x = np.array([[0, sign * peak, 2.0**-149 if peak else 0]], F32)
            for convention, stored in zip(microscaling.MX, (floor, up), strict=True):
                for output_dtype, byte in zip(MX_CODES, stored, strict=True):
                    made = run(problem_of(x, convention, output_dtype), x)
                    assert scale_bytes(made).tolist() == [[byte]]

    def test_zeros_keep_their_signs(self) -> None:
        """In a group of zeros, and beside numbers."""
        for values in ([0.0, -0.0] * 16, [-0.0, 5.0] * 16):
            x = np.array([values], F32)
            for convention, output_dtype, order in FORMATS:
                problem = problem_of(x, convention, output_dtype, order)
                made = run(problem, x, 1.0 if convention == "nvfp4" else None)
                sign = 8 if output_dtype == "float4_e2m1fn" else 0x80
                zeros = codes_of(problem, made)[x == 0]
                assert np.array_equal(zeros == sign, np.signbit(x[x == 0]))
                assert set(zeros.tolist()) <= {0, sign}

    def test_ties_go_to_even_codes(self) -> None:
        """Every midpoint of two e2m1 numbers, its neighbours, and what lies beyond the largest."""
        ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], F32)
        even = np.array([0, 2, 2, 4, 4, 6, 6], np.uint8)
        odd = np.array([1, 1, 3, 3, 5, 5, 7], np.uint8)
        below, above = np.nextafter(ties, F32(0)), np.nextafter(ties, F32(9))
        x = np.concatenate([ties, below, above, [4.0, 6.0, 7.99]]).astype(F32)[None]
        down, up = np.minimum(even, odd), np.maximum(even, odd)
        wanted = np.concatenate([even, down, up, [6, 7, 7]])
        problem = problem_of(x, "mx")
        for sign, bit in ((F32(1), 0), (F32(-1), 8)):
            assert codes_of(problem, run(problem, x * sign))[0].tolist() == (wanted | bit).tolist()

    def test_nibbles(self) -> None:
        """The first of two codes is in the low nibble unless told, and the spare one is 0."""
        x = np.array([[4, -1.5, 6]], F32)
        assert run(problem_of(x, "mx"), x)["output"].tolist() == [[0xB6, 0x07]]
        made = run(problem_of(x, "mx", order="high_first"), x)
        assert made["output"].tolist() == [[0x6B, 0x70]]

    def test_an_infinity_counts_as_the_number_after_the_largest(self) -> None:
        """Its code is the largest, which dequantizes to an infinity; the others are as coarse."""
        x = np.array([[np.inf, -np.inf, 2.0e38, -1.0, 0.0]], F32)
        for output_dtype, most in zip(MX_CODES, (7, 0x7E, 0x7B), strict=True):
            problem = problem_of(x, "mx", output_dtype)
            made = run(problem, x)
            codes = codes_of(problem, made)[0]
            assert codes[0] == most
            with np.errstate(over="ignore"):
                back = microscaling.code_values(codes, output_dtype) * microscaling.scale_values(
                    scale_bytes(made)[0], "mx", F32(1)
                )
            assert back[0] == np.inf
            assert back[1] == -np.inf
            assert abs(back[2] / F32(2.0e38) - 1) < 0.25
            assert back[3] == 0
            assert back[4] == 0

    def test_a_nan_stays_in_its_group(self) -> None:
        """The codes of the group say nothing, those of others are as without it."""
        x = inputs.make("normal", (4, 96), "float32", 3)
        x[1, 40], x[2, 0], x[2, 95] = np.nan, -np.nan, np.inf
        for convention, output_dtype, order in FORMATS:
            problem = problem_of(x, convention, output_dtype, order)
            made = run(problem, x, 5.0 if convention == "nvfp4" else None)
            size = microscaling.GROUP[convention]
            lost = np.isnan(x.reshape(4, -1, size)).any(axis=-1)
            nan = 0x7F if convention == "nvfp4" else 0xFF
            assert np.array_equal(scale_bytes(made) == nan, lost)
            codes = codes_of(problem, made).reshape(4, -1, size)[lost]
            assert set(codes.ravel().tolist()) == {microscaling.NAN_CODE[output_dtype]}


class TestNvfp4:
    """The two scales."""

    def test_of_ranges(self) -> None:
        """Rounded to float8_e4m3fn, at least 2^-9, at most 448."""
        peaks = np.array(
            [0, 2.0**-20, 6 * 2.0**-10, 6 * 2.0**-9, 6.0, 6.3, 2688, 3000, np.inf], F32
        )
        x = np.zeros((peaks.size, 16), F32)
        x[:, 3] = peaks
        made = run(problem_of(x, "nvfp4"), x, 1.0)
        wanted = [2.0**-9, 2.0**-9, 2.0**-9, 2.0**-9, 1, 1, 448, 448, 448]
        assert made["scale"][:, 0].astype(F32).tolist() == wanted
        codes = codes_of(problem_of(x, "nvfp4"), made)[:, 3]
        assert codes.tolist() == [0, 0, 5, 7, 7, 7, 7, 7, 7]

    @pytest.mark.parametrize("factor", [0.0, -0.0, -2.0, np.inf, -np.inf, np.nan, 1e-45, 3e38])
    def test_any_factor(self, factor: float) -> None:
        """The formulas hold as they stand, and a spare nibble is 0."""
        for dtype in microscaling.INPUTS:
            for columns in (80, 81, 1):
                x = inputs.make("nonfinite", (40, columns), dtype, 11)
                x[3:6] = 0
                for order in ("low_first", "high_first"):
                    run(problem_of(x, "nvfp4", order=order), x, factor)

    def test_a_tensor_comes_back_within_the_error_of_its_codes(self) -> None:
        """With the usual factor, and 1 / factor as the tensor's scale."""
        x = inputs.make("normal", (64, 256), "float32", 1)
        factor = F32(2688) / np.abs(x).max()
        problem = problem_of(x, "nvfp4")
        made = run(problem, x, float(factor))
        s = microscaling.scale_values(made["scale"], "nvfp4", F32(1) / factor)
        back = microscaling.code_values(codes_of(problem, made), "float4_e2m1fn")
        back *= np.repeat(s, 16, axis=1)
        peaks = np.abs(x.reshape(64, 16, 16)).max(axis=-1)
        assert (np.abs(back - x) <= np.repeat(peaks, 16, axis=1) / 5).all()


class TestLayouts:
    """Any alignment, padded rows, tails."""

    @pytest.mark.parametrize("columns", [*range(1, 34), 63, 64, 65, 95, 511, 512, 513, 1000])
    def test_tails(self, columns: int) -> None:
        """The last group of a row may be shorter."""
        for dtype in microscaling.INPUTS:
            x = inputs.make("mixed", (3, columns), dtype, columns)
            for convention, output_dtype, order in FORMATS:
                problem = problem_of(x, convention, output_dtype, order)
                run(problem, x, 0.75 if convention == "nvfp4" else None)

    @pytest.mark.parametrize("pitch", [0, 1, 5, 32])
    @pytest.mark.parametrize("offset", [0, 1, 3])
    def test_misaligned_and_padded(self, offset: int, pitch: int) -> None:
        """Nothing beside the operands is written."""
        for convention, output_dtype, order in FORMATS:
            x = inputs.make("mixed", (2, 3, 96), "bfloat16", 7)
            layouts = {
                name: Layout(offset=offset + number, pitch=pitch + number)
                for number, name in enumerate(("input", "output", "scale"))
            }
            problem = problem_of(x, convention, output_dtype, order)
            run(problem, x, 3.0 if convention == "nvfp4" else None, layouts)

    @pytest.mark.parametrize("rank", range(1, 9))
    def test_ranks(self, rank: int) -> None:
        """Groups lie along the last axis of any shape."""
        x = inputs.make("mixed", (2, 1, 3, 2, 1, 2, 2, 40)[-rank:], "float16", rank)
        for convention, output_dtype, order in FORMATS:
            problem = problem_of(x, convention, output_dtype, order)
            run(problem, x, 2.0 if convention == "nvfp4" else None)

    def test_threads(self) -> None:
        """Any number of them gives the same bits."""
        x = inputs.make("mixed", (300, 1024), "bfloat16", 2)
        for convention, output_dtype, _ in FORMATS:
            problem = problem_of(x, convention, output_dtype)
            given = {"input": x}
            if convention == "nvfp4":
                given["inverse_tensor_scale"] = np.array([0.5], F32)
            wanted = outputs(problem, x, given.get("inverse_tensor_scale"))
            for threads in (1, 2, 5):
                bench = Bench(Host(threads), descriptor(problem))
                bench.load(given)
                bench.run()
                bench.check(given, wanted, f"{threads} threads")


class TestPeers:
    """torchao's reference code, where its rule is the same."""

    @pytest.mark.parametrize("output_dtype", MX_CODES)
    @pytest.mark.parametrize(("convention", "mode"), [("mx", "FLOOR"), ("mx_round_up", "EVEN")])
    def test_torchao_mx(self, convention: str, mode: str, output_dtype: str) -> None:
        """All of it but scales of 2^-127, by which torchao does not divide; infinities too."""
        for dtype in (torch.float32, torch.bfloat16):
            for kind in ("normal", "patterns", "ties", "huge", "nonfinite"):
                x = inputs.make(kind, (256, 128), str(dtype).removeprefix("torch."), 5)
                groups = np.abs(np.nan_to_num(x.astype(F32), nan=1.0)).reshape(256, 4, 32)
                x[np.repeat(groups.max(axis=-1) < 2.0**-100, 32, axis=1)] = 1
                lost = np.isnan(x.astype(F32)).reshape(256, 4, 32).any(axis=-1)
                theirs = torch.from_numpy(x.astype(F32)).to(dtype)
                scale, codes = torchao_mx.to_mx(
                    theirs,
                    TORCH_CODES[output_dtype],
                    32,
                    getattr(torchao_mx.ScaleCalculationMode, mode),
                )
                ours = run(problem_of(x, convention, output_dtype), x)
                assert np.array_equal(scale_bytes(ours), scale.view(torch.uint8).numpy())
                width = ours["output"].shape[-1] // 4
                same = ours["output"].view(np.uint8) == codes.view(torch.uint8).numpy()
                assert (same | np.repeat(lost, width, axis=1)).all()

    def test_torchao_nvfp4(self) -> None:
        """For a factor that is a power of two, and scales that are normal numbers."""
        for dtype in (torch.float32, torch.bfloat16):
            for factor in (1.0, 0.25, 64.0):
                x = inputs.make("ties", (64, 128), str(dtype).removeprefix("torch."), 9)
                x[:, ::16] = 1.5
                scale, codes = torchao_nvfp4.nvfp4_quantize(
                    torch.from_numpy(x.astype(F32)).to(dtype),
                    per_tensor_scale=torch.tensor(1 / factor),
                )
                ours = run(problem_of(x, "nvfp4"), x, factor)
                assert np.array_equal(
                    scale_bytes(ours), scale.view(torch.uint8).numpy().reshape(64, 8)
                )
                assert np.array_equal(ours["output"], codes.view(torch.uint8).numpy())

    @pytest.mark.parametrize("output_dtype", MX_CODES[1:])
    def test_torch_casts(self, output_dtype: str) -> None:
        """torch's own fp8 and float8_e8m0fnu, given planq's scale."""
        x = inputs.make("finite", (64, 96), "float32", 4)
        made = run(problem_of(x, "mx", output_dtype), x)
        scale = torch.from_numpy(scale_bytes(made).copy()).view(torch.float8_e8m0fnu)
        power = scale.to(torch.float64).repeat_interleave(32, dim=1)
        most = microscaling.CODES[output_dtype].largest
        quotient = torch.clamp(torch.from_numpy(x).double() / power, -most, most).float()
        codes = quotient.to(TORCH_CODES[output_dtype]).view(torch.uint8).numpy()
        assert np.array_equal(made["output"].view(np.uint8), codes)


class TestDescriptors:
    """Defaults, and what is refused."""

    @pytest.mark.parametrize("convention", microscaling.GROUP)
    def test_defaults(self, convention: str) -> None:
        """All that the format fixes is filled in."""
        group = microscaling.GROUP[convention]
        desc = planq.DynamicRangeQuantizeDescriptor(
            **FP4, scope=planq.Scope.group(group), convention=convention
        )
        assert (desc.q_min, desc.q_max) == (-6, 6)
        assert desc.scale_dtype == microscaling.SCALES[convention]
        wanted = planq.Quotient.RECIPROCAL if convention == "nvfp4" else planq.Quotient.DIVIDE
        assert desc.quotient is wanted
        specs = desc.operands()
        assert specs["scale"].shape == (64, 64 // group)
        assert specs["output"].storage == "uint8"
        assert specs["output"].shape == (64, 32)
        assert ("inverse_tensor_scale" in specs) == (convention == "nvfp4")
        assert planq.Plan.select(planq.HOST, desc).workspace_size() == 0

    @pytest.mark.parametrize(
        ("field", "values"),
        [
            ("scope", {"scope": planq.Scope.token()}),
            ("scope", {"scope": planq.Scope.group(64)}),
            ("scope", {"scope": planq.Scope.group(32, axis=0)}),
            ("mode", {"mode": "asymmetric"}),
            ("q_min", {"q_min": -4}),
            ("q_max", {"q_max": 4}),
            ("quotient", {"quotient": "ratio"}),
            ("quotient", {"quotient": "reciprocal"}),
            ("nonfinite", {"nonfinite": "saturate"}),
            ("input_dtype", {"input_dtype": "float64"}),
            ("output_dtype", {"output_dtype": "int8"}),
            ("scale_dtype", {"scale_dtype": "float32"}),
            ("scope", {"convention": "nvfp4"}),
            ("output_dtype", {"convention": "nvfp4", "output_dtype": "float8_e4m3fn"}),
            ("output_dtype", {"convention": "planq"}),
        ],
    )
    def test_refused(self, field: str, values: dict[str, Any]) -> None:
        """The error names the field."""
        fields = {**FP4, "scope": planq.Scope.group(32), "convention": "mx"}
        with pytest.raises(planq.DescriptorError) as caught:
            planq.DynamicRangeQuantizeDescriptor(**{**fields, **values})
        assert caught.value.field == field

    def test_the_factor_is_an_operand(self) -> None:
        """One float32 in memory, and an error that names it."""
        desc = planq.DynamicRangeQuantizeDescriptor(
            **FP4, scope=planq.Scope.group(16), convention="nvfp4"
        )
        plan = planq.Plan.select(planq.HOST, desc)
        made = plan.empty_outputs(np)
        x = np.zeros((64, 64), ml_dtypes.bfloat16)
        for factor in (None, np.ones(2, F32), np.ones(1, np.float64)):
            args = planq.DynamicRangeQuantizeArgs(input=x, **made, inverse_tensor_scale=factor)
            status = plan.can_implement(args)
            assert not status
            assert status.operand == "inverse_tensor_scale"

    def test_torch_tensors_of_these_types(self) -> None:
        """torch's float8_e8m0fnu and bytes for codes; bytes for scales as well."""
        x = torch.randn(8, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
        desc = planq.DynamicRangeQuantizeDescriptor(
            **{**FP4, "shape": (8, 64)}, scope=planq.Scope.group(32), convention="mx"
        )
        plan = planq.Plan.select(planq.HOST, desc)
        made = plan.empty_outputs(torch, device="cpu")
        assert made["scale"].dtype is torch.float8_e8m0fnu
        plan.run(planq.HOST, None, planq.DynamicRangeQuantizeArgs(input=x, **made))
        raw = torch.empty(8, 2, dtype=torch.uint8)
        plan.run(
            planq.HOST,
            None,
            planq.DynamicRangeQuantizeArgs(input=x, output=made["output"], scale=raw),
        )
        assert torch.equal(raw, made["scale"].view(torch.uint8))

    def test_rows_that_are_known_at_run(self) -> None:
        """A `Dim` gives the bits of the fixed plan."""
        x = inputs.make("mixed", (37, 80), "float32", 8)
        desc = planq.DynamicRangeQuantizeDescriptor(
            shape=(planq.Dim("m", max=64), 80),
            input_dtype="float32",
            output_dtype="float8_e4m3fn",
            scope=planq.Scope.group(32),
            convention="mx",
        )
        plan = planq.Plan.select(planq.HOST, desc)
        codes, scale = np.empty((37, 80), np.uint8), np.empty((37, 3), np.uint8)
        args = planq.DynamicRangeQuantizeArgs(input=x, output=codes, scale=scale)
        plan.run(planq.HOST, None, args)
        wanted = outputs(problem_of(x, "mx", "float8_e4m3fn"), x)
        assert np.array_equal(codes, wanted["output"])
        assert np.array_equal(scale, bits(wanted["scale"]))
