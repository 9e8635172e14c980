"""`dequantize` on the host: its whole table, its edges, and values worked out by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import planq
from planq.audit.memory import Host
from planq.audit.ops.affine import inputs as affine_inputs
from planq.audit.ops.affine.cases import FLOAT8, OUTPUTS, PARAMETERS
from planq.audit.ops.affine.dequantize.adapter import TESTS
from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference.formats import (
    CANONICAL_NAN,
    FLOATS,
    INPUT_DTYPES,
    STORAGE,
    Array,
    Arrays,
    bits,
)
from support.bitsandbytes_host import bnb
from support.tables import share

F32 = np.float32
INF, NAN = float("inf"), float("nan")
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
CODES = (*OUTPUTS, ("int32", "low_first"))
SCALE_DTYPES = (None, "float16", "bfloat16", "float32", "float64")
SCOPES: tuple[ScopeSpec, ...] = (
    ("tensor",),
    ("channel", 0),
    ("channel", 1),
    ("channel", -1),
    ("token",),
    ("group", 4, -1),
    ("group", 3, 0),
    ("group", 2, 1),
    ("block", 2, 4),
    ("block", 64, 1),
)


def conventions(input_dtype: str) -> list[dict[str, Any]]:
    """Every mode with every type of zero point, scale and bias that goes with it."""
    listed: list[dict[str, Any]] = [{}]
    if input_dtype == "int32":
        listed += [{"bias_dtype": dtype} for dtype in INPUT_DTYPES]
    elif input_dtype not in FLOAT8:
        kinds = ("int32", input_dtype)
        listed += [{"mode": "asymmetric", "zero_point_dtype": kind} for kind in kinds]
    return listed


@pytest.mark.parametrize("output_dtype", INPUT_DTYPES)
@pytest.mark.parametrize("codes", CODES, ids="-".join)
def test_the_whole_table(codes: tuple[str, str], output_dtype: str) -> None:
    """Every scope x convention x scale dtype; operands take turns.

    Of these a type of output has a third.
    """
    input_dtype, order = codes
    scopes = (*SCOPES, ("pair",)) if input_dtype == "int32" else SCOPES
    number = INPUT_DTYPES.index(output_dtype)
    rows = share(number, conventions(input_dtype), SCALE_DTYPES, scopes)
    for turn, (convention, scale_dtype, scope) in enumerate(rows):
        problem = DequantizeProblem(
            shape=(4, 5, 9),
            scope=scope,
            scale_dtype=scale_dtype,
            input_dtype=input_dtype,
            output_dtype=output_dtype,
            nibble_order=order,
            **convention,
        )
        parameters = PARAMETERS[turn // 3 % len(PARAMETERS)]
        TESTS.check(problem, **affine_inputs.make(problem, "mixed", parameters, turn))


def vector(values: list[float], dtype: str) -> Array:
    """Values as a vector of a float type."""
    return np.array(values, np.float64).astype(FLOATS[dtype].dtype)


def values_of(
    codes: list[int], scale: float = 1.0, zero_point: int | None = None, **fields: Any
) -> Array:
    """What codes stand for under one scale and, where it is given, one zero point."""
    if zero_point is not None:
        fields["mode"] = "asymmetric"
    fields = {"shape": (len(codes),), **fields}
    problem = DequantizeProblem(**fields)
    kind = STORAGE[problem.input_dtype]
    fp8 = problem.input_dtype in FLOAT8
    stored = np.array(codes, np.uint8).view(kind) if fp8 else np.array(codes).astype(kind)
    given: Arrays = {"input": stored, "scale": vector([scale], problem.stored_scale)}
    if zero_point is not None:
        given["zero_point"] = np.array([zero_point]).astype(
            STORAGE[problem.zero_point_dtype or "int32"]
        )
    return TESTS.run(problem, **given)["output"]


class TestValuesWorkedOutByHand:
    """The contract's sentences, one by one, without the reference."""

    def test_a_difference_times_a_scale(self) -> None:
        """`0.5 * (q - 3)`."""
        assert values_of([3, 4, -128, 127], 0.5, 3).tolist() == [0, 0.5, -65.5, 62]

    @pytest.mark.parametrize("zero_point", [INT_MIN, INT_MAX, 2**30, -(2**24) - 1])
    def test_the_difference_does_not_wrap(self, zero_point: int) -> None:
        """Beyond int32 as beyond float32, rounded once to C."""
        for output_dtype, C in (("float32", np.float32), ("float64", np.float64)):
            got = values_of([-128, 0, 127], 1.0, zero_point, output_dtype=output_dtype)
            assert got.tolist() == [C(q - zero_point) for q in (-128, 0, 127)]

    def test_accumulators_beyond_two_to_the_twenty_four(self) -> None:
        """One rounding to float32, to even; float64 holds them all."""
        codes = [2**24 + 1, 2**24 + 3, INT_MIN, INT_MAX, -(2**24) - 1]
        rounded = [2**24, 2**24 + 4, INT_MIN, 2**31, -(2**24)]
        assert values_of(codes, input_dtype="int32").tolist() == rounded
        assert values_of(codes, input_dtype="int32", output_dtype="float64").tolist() == codes

    def test_rows_are_multiplied_before_columns(self) -> None:
        """`fl(fl(3 * row) * column)`, where the other order overflows."""
        problem = DequantizeProblem((2, 2), ("pair",), input_dtype="int32")
        given = {
            "input": np.array([[3, 5], [7, 11]], np.int32),
            "scale": vector([2.0**-100, 1], "float32"),
            "column_scale": vector([2.0**100, 0.5], "float32"),
        }
        wanted = [[3, 5 * 2.0**-101], [7 * 2.0**100, 5.5]]
        assert TESTS.run(problem, **given)["output"].tolist() == wanted
        rows = vector([1 / 3, 2.0**-149], "float32")
        given |= {"scale": rows, "column_scale": vector([3, 2.0**127], "float32")}
        ours = TESTS.run(problem, **given)["output"]
        assert ours.tolist() == [
            [F32(3) * rows[0] * F32(3), F32(5) * rows[0] * F32(2.0**127)],
            [7 * 2.0**-149 * 3, 11 * 2.0**-22],
        ]

    def test_a_bias_is_added_after_the_scales(self) -> None:
        """In C, with one rounding, before the rounding to the output."""
        problem = DequantizeProblem(
            (1, 2), ("pair",), input_dtype="int32", output_dtype="bfloat16", bias_dtype="float32"
        )
        one = vector([1], "float32")
        given = {
            "input": np.array([[256, 256]], np.int32),
            "scale": one,
            "column_scale": vector([1, 1], "float32"),
            "bias": vector([1, 1.0078125], "float32"),
        }
        assert TESTS.run(problem, **given)["output"].astype(F32).tolist() == [[256, 258]]

    def test_a_bias_with_any_scope(self) -> None:
        """Along the last axis, whatever the scale's."""
        problem = DequantizeProblem(
            (2, 3), ("channel", 0), input_dtype="int32", bias_dtype="float16"
        )
        given = {
            "input": np.array([[1, 2, 3], [4, 5, 6]], np.int32),
            "scale": vector([10, 100], "float32"),
            "bias": vector([0.5, 0, -1], "float16"),
        }
        wanted = [[10.5, 20, 29], [400.5, 500, 599]]
        assert TESTS.run(problem, **given)["output"].tolist() == wanted

    @pytest.mark.parametrize("output_dtype", INPUT_DTYPES)
    @pytest.mark.parametrize("scale", [NAN, -NAN])
    def test_every_nan_is_canonical(self, output_dtype: str, scale: float) -> None:
        """Of a scale, and of 0 times infinity."""
        nan = CANONICAL_NAN[output_dtype]
        got = values_of([1, 0], scale, output_dtype=output_dtype)
        assert bits(got).tolist() == [nan, nan]
        infinite = values_of([1, -1, 0], INF, output_dtype=output_dtype)
        assert infinite[:2].astype(np.float64).tolist() == [INF, -INF]
        assert bits(infinite)[2] == nan

    @pytest.mark.parametrize("output_dtype", INPUT_DTYPES)
    def test_float8_nan_and_infinity(self, output_dtype: str) -> None:
        """e4m3 has NaN codes, e5m2 infinities too."""
        nan = CANONICAL_NAN[output_dtype]
        fields: dict[str, Any] = {"output_dtype": output_dtype}
        got = values_of([0x7F, 0xFF], -1.0, input_dtype="float8_e4m3fn", **fields)
        assert bits(got).tolist() == [nan, nan]
        codes = [0x7D, 0xFE, 0x7F, 0x7C, 0xFC]
        got = values_of(codes, 1.0, input_dtype="float8_e5m2", **fields)
        assert bits(got)[:3].tolist() == [nan] * 3
        assert got[3:].astype(np.float64).tolist() == [INF, -INF]

    def test_float8_subnormals_and_signed_zeros(self) -> None:
        """The smallest codes are exact."""
        got = values_of([0x01, 0x80, 0x07], input_dtype="float8_e4m3fn")
        assert bits(got).tolist() == bits(vector([2.0**-9, -0.0, 7 * 2.0**-9], "float32")).tolist()
        assert values_of([0x81], input_dtype="float8_e5m2").tolist() == [-(2.0**-16)]

    def test_zero_keeps_the_sign_of_the_product(self) -> None:
        """A negative scale makes -0 of a zero difference."""
        assert bits(values_of([5], -1.0, 5)).tolist() == [0x80000000]
        assert bits(values_of([5], 1.0, 5)).tolist() == [0]

    def test_overflow_and_ties_of_the_narrow_types(self) -> None:
        """To infinity from 65520 on; ties go to even; subnormals are kept."""
        fields: dict[str, Any] = {"output_dtype": "float16", "input_dtype": "int32"}
        got = values_of([65519, 65520, -65520, 2049, 2051], **fields).tolist()
        assert got == [65504, INF, -INF, 2048, 2052]
        assert values_of([3, 1], 2.0**-25, **fields).tolist() == [2.0**-23, 0]
        got = values_of([257, 259, 1], input_dtype="int32", output_dtype="bfloat16")
        assert got.astype(F32).tolist() == [256, 260, 1]

    def test_float64_is_never_computed_through_float32(self) -> None:
        """`1/3` in float64 times 3, with all its bits."""
        got = values_of([3, 100], 1 / 3, output_dtype="float64")
        assert got.tolist() == [1 / 3 * 3, 1 / 3 * 100]

    def test_scales_in_float64_for_float32_values(self) -> None:
        """Rounded to float32 once, before the product."""
        got = values_of([3], 1 / 3, scale_dtype="float64")
        assert got.tolist() == [F32(1 / 3) * F32(3)]

    @pytest.mark.parametrize(
        ("order", "values"), [("low_first", [1, -2, -1]), ("high_first", [-2, 1, 5])]
    )
    def test_nibbles_and_what_the_spare_one_holds(self, order: str, values: list[int]) -> None:
        """The fourth nibble is not read."""
        fields: dict[str, Any] = {"input_dtype": "int4", "nibble_order": order, "shape": (3,)}
        assert values_of([0xE1, 0x5F], **fields).tolist() == values

    def test_uint4_has_no_sign(self) -> None:
        """0xF is 15."""
        assert values_of([0x8F], input_dtype="uint4", shape=(2,)).tolist() == [15, 8]

    @pytest.mark.parametrize("input_dtype", ["int8", "uint8"])
    def test_every_byte(self, input_dtype: str) -> None:
        """All 256 codes, less a narrow zero point."""
        codes = np.arange(256, dtype=np.uint8).view(input_dtype).tolist()
        zero_point = -7 if input_dtype == "int8" else 200
        got = values_of(
            codes, 0.25, zero_point, input_dtype=input_dtype, zero_point_dtype=input_dtype
        )
        assert got.tolist() == [(q - zero_point) / 4 for q in codes]


def from_bits(pattern: int) -> np.float32:
    """The float32 with these bits."""
    return np.array(pattern, np.uint32).view(F32)[()]


class TestOtherLibraries:
    """bitsandbytes' and baracuda's orders of scales."""

    PAIR: ClassVar[dict[str, Any]] = {"scope": ("pair",), "input_dtype": "int32"}
    ROWS: ClassVar[dict[str, Any]] = {"scope": ("token",), "input_dtype": "int8"}

    @pytest.mark.parametrize("output_dtype", INPUT_DTYPES)
    @pytest.mark.parametrize("scale_dtype", SCALE_DTYPES)
    def test_the_whole_table(self, scale_dtype: str | None, output_dtype: str) -> None:
        """Every convention x kind of parameters x bias."""
        kinds: list[dict[str, Any]] = [{"convention": "bitsandbytes", **self.ROWS}]
        for convention in ("bitsandbytes", "baracuda"):
            kinds += [
                {"convention": convention, **self.PAIR, "bias_dtype": dtype}
                for dtype in (None, *INPUT_DTYPES)
            ]
        for turn, (fields, parameters) in enumerate(itertools.product(kinds, set(PARAMETERS))):
            problem = DequantizeProblem(
                (3, 4, 33), scale_dtype=scale_dtype, output_dtype=output_dtype, **fields
            )
            TESTS.check(problem, **affine_inputs.make(problem, "mixed", parameters, turn))

    def run_pair(self, codes: list[int], row: float, column: float, **fields: Any) -> Array:
        """One row of accumulators under one scale of its own and one of all columns."""
        problem = DequantizeProblem((1, len(codes)), **self.PAIR, **fields)
        scale = problem.stored_scale
        given = {
            "input": np.array([codes], np.int32),
            "scale": vector([row], scale),
            "column_scale": vector([column] * len(codes), scale),
        }
        if problem.bias_dtype:
            given["bias"] = vector([1.0] * len(codes), problem.bias_dtype)
        return TESTS.run(problem, **given)["output"][0]

    def test_the_constant_is_not_off(self) -> None:
        """6.200012e-05, not 6.200124e-05, which makes every result 1.8e-5 too large."""
        got = self.run_pair([127 * 127, 1], 1, 1, convention="bitsandbytes")
        assert bits(got)[1] == 0x38820610
        assert got[0] == F32(16129 * float(from_bits(0x38820610)))
        assert abs(float(got[0]) - 1) < 1e-6
        wide = self.run_pair([1], 1, 1, convention="bitsandbytes", output_dtype="float64")
        assert wide[0] == float(from_bits(0x38820610))

    def test_the_bias_joins_in_the_same_rounding(self) -> None:
        """Where a rounded product loses what the fused one keeps."""
        fields = {"convention": "bitsandbytes", "bias_dtype": "float32"}
        got = self.run_pair([1, 3, 4097], 1, 1, **fields)
        c = Fraction(float(from_bits(0x38820610)))
        for code, value in zip((1, 3, 4097), got.tolist(), strict=True):
            error = abs(Fraction(value) - (code * c + 1))
            assert error <= Fraction(2) ** -24 * 2

    def test_no_bias_is_a_positive_zero(self) -> None:
        """A product of -0 is +0 with it."""
        assert bits(self.run_pair([0], -1, 1, convention="bitsandbytes")).tolist() == [0]
        assert bits(self.run_pair([0], -1, 1, convention="baracuda")).tolist() == [0x80000000]

    def test_baracuda_multiplies_the_scales_first(self) -> None:
        """Which underflows or overflows where the accumulator would have kept it in range."""
        got = self.run_pair([2**20], 2.0**-80, 2.0**-80, convention="baracuda")
        assert got.tolist() == [0]
        got = self.run_pair([2**20], 2.0**-80, 2.0**-80)
        assert got.tolist() == [2.0**-140]
        rows = 1 / 3
        got = self.run_pair([5], rows, 3.0, convention="baracuda")
        assert got[0] == F32(F32(rows) * F32(3)) * F32(5)

    def test_rows_of_codes(self) -> None:
        """`fl(fl(q * absmax) * 0x3C010204)`, of every code."""
        codes = np.arange(-128, 128).astype(np.int8)
        problem = DequantizeProblem((1, 256), convention="bitsandbytes", **self.ROWS)
        given = {"input": codes[None], "scale": vector([0.7], "float32")}
        wanted = codes.astype(F32) * F32(0.7) * from_bits(0x3C010204)
        assert TESTS.run(problem, **given)["output"][0].tobytes() == wanted.tobytes()

    def test_against_bitsandbytes(self) -> None:
        """Its own functions on the CPU: the codes bit for bit, accumulators within its constant."""
        random = np.random.default_rng(3)
        codes = random.integers(-127, 128, (9, 70)).astype(np.int8)
        absmax = random.uniform(0.1, 9, 9).astype(F32)
        theirs = bnb.int8_vectorwise_dequant(torch.from_numpy(codes), torch.from_numpy(absmax))
        problem = DequantizeProblem((9, 70), convention="bitsandbytes", **self.ROWS)
        ours = TESTS.run(problem, input=codes, scale=absmax)["output"]
        assert ours.tobytes() == theirs.numpy().tobytes()

    @pytest.mark.parametrize(
        ("field", "changes"),
        [
            ("convention", {"convention": "ggml", **PAIR}),
            ("convention", {"convention": "compressed_tensors", **ROWS}),
            ("input_dtype", {"convention": "baracuda", **ROWS}),
            ("input_dtype", {"convention": "bitsandbytes", "input_dtype": "uint8"}),
            ("input_dtype", {"convention": "bitsandbytes", "input_dtype": "float8_e5m2"}),
            ("scope", {"convention": "bitsandbytes", "input_dtype": "int8"}),
            ("scope", {"convention": "bitsandbytes", "input_dtype": "int32"}),
            ("scope", {"convention": "baracuda", "input_dtype": "int32", "scope": ("token",)}),
            ("mode", {"convention": "bitsandbytes", "mode": "asymmetric", **ROWS}),
        ],
    )
    def test_what_a_convention_refuses(self, field: str, changes: dict[str, Any]) -> None:
        """The field is named."""
        with pytest.raises(planq.DescriptorError) as caught:
            TESTS.descriptor(DequantizeProblem((4, 8), **changes))
        assert caught.value.field == field


class TestShapes:
    """Rank 1 to 8 and tails of every length."""

    @pytest.mark.parametrize("rank", range(1, 9))
    @pytest.mark.parametrize("input_dtype", ["int8", "uint4", "float8_e5m2", "int32"])
    def test_every_rank_with_every_scope(self, rank: int, input_dtype: str) -> None:
        """Channels and groups along every axis, blocks of the last two, pairs."""
        shape = (2, 3, 1, 4, 2, 3, 2, 5)[-rank:]
        scopes: list[ScopeSpec] = [("tensor",), ("token",)]
        for axis in range(-rank, rank):
            scopes += [("channel", axis), ("group", 2, axis), ("group", 64, axis)]
        if rank > 1:
            scopes += [("block", 1, 2), ("block", 2, 3), ("block", 128, 128)]
        if input_dtype == "int32":
            scopes.append(("pair",))
        integer = input_dtype in ("int8", "uint4")
        for scope in scopes:
            problem = DequantizeProblem(
                shape,
                scope,
                input_dtype=input_dtype,
                output_dtype="bfloat16",
                mode="asymmetric" if integer else "symmetric",
                zero_point_dtype=input_dtype if integer else None,
                bias_dtype="float32" if input_dtype == "int32" else None,
            )
            TESTS.check(problem, **affine_inputs.make(problem, "mixed", "ordinary", rank))

    @pytest.mark.parametrize("columns", [1, 2, 3, 15, 16, 17, 31, 63, 64, 65, 255, 1023, 4097])
    @pytest.mark.parametrize("output_dtype", INPUT_DTYPES)
    def test_every_tail_length(self, output_dtype: str, columns: int) -> None:
        """Kernels for vectors leave tails; the outputs' guards catch one that runs over."""
        for input_dtype, order in CODES:
            problem = DequantizeProblem(
                (5, columns),
                input_dtype=input_dtype,
                output_dtype=output_dtype,
                nibble_order=order,
            )
            scopes: list[ScopeSpec] = [("token",), ("group", 16, -1), ("channel", -1)]
            for scope in (*scopes, ("block", 2, 16), *([("pair",)] * (input_dtype == "int32"))):
                changed = replace(problem, scope=scope)
                TESTS.check(changed, **affine_inputs.make(changed, "mixed", "special", columns))

    def test_threads_share_one_long_row(self) -> None:
        """Any number of threads gives the bits of one."""
        for input_dtype, scope in (("uint4", ("tensor",)), ("int32", ("pair",))):
            problem = DequantizeProblem((1, 2**19 + 7), scope, input_dtype=input_dtype)
            given = affine_inputs.make(problem, "mixed", "ordinary", 1)
            for threads in (1, 2, 5):
                TESTS.check(problem, Host(threads), **given)
