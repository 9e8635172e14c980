"""`dynamic_range_quantize` on the host: its whole table, its edges, and what it refuses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.from_reference import scope as make_scope
from planq.audit.memory import Host
from planq.audit.ops.affine.cases import BOUNDS, FLOAT8, OUTPUTS
from planq.audit.ops.affine.dynamic_range_quantize.adapter import (
    check_problem,
    descriptor,
    quantize,
)
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference import inputs
from planq.audit.reference.formats import (
    CANONICAL_NAN,
    FLOATS,
    INPUT_DTYPES,
    Array,
    bits,
    unpack_nibbles,
)
from support.tables import share

F32 = np.float32
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
    ("block", 3, 1),
    ("block", 2, 5),
)
SCALE_DTYPES = (None, "float16", "bfloat16", "float32", "float64")
KINDS = ("mixed", "finite", "ties", "huge", "offset", "nonfinite", "patterns", "zeros", "subnormal")
INF, NAN = float("inf"), float("nan")


def conventions(output_dtype: str) -> Iterator[dict[str, Any]]:
    """Every mode with every quotient and treatment of zero that goes with it."""
    if not output_dtype.startswith("u"):
        for quotient in ("divide", "reciprocal", "ratio"):
            yield {"mode": "symmetric", "quotient": quotient}
    if output_dtype not in FLOAT8:
        for quotient, include_zero in itertools.product(("divide", "reciprocal"), (True, False)):
            yield {"mode": "asymmetric", "quotient": quotient, "include_zero": include_zero}


@pytest.mark.parametrize("output", OUTPUTS, ids="-".join)
@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
def test_the_whole_table(input_dtype: str, output: tuple[str, str]) -> None:
    """Every scope x convention x NonFinite x scale dtype; bounds and inputs take turns.

    Of these a type of input has a third.
    """
    output_dtype, order = output
    rows = share(
        INPUT_DTYPES.index(input_dtype),
        *(list(conventions(output_dtype)), ("propagate", "saturate"), SCALE_DTYPES, SCOPES),
    )
    for turn, (convention, nonfinite, scale_dtype, scope) in enumerate(rows):
        bounds = ((None, None), *BOUNDS[output_dtype, convention["mode"]])
        q_min, q_max = bounds[turn % len(bounds)]
        problem = Problem(
            shape=(7, 5, 9),
            input_dtype=input_dtype,
            output_dtype=output_dtype,
            scope=scope,
            q_min=q_min,
            q_max=q_max,
            scale_dtype=scale_dtype,
            nonfinite=nonfinite,
            nibble_order=order,
            **convention,
        )
        kind = KINDS[turn // 3 % len(KINDS)]
        check_problem(problem, inputs.make(kind, problem.shape, input_dtype, turn))


def row(*values: float, dtype: str = "float32") -> Array:
    """One row of values."""
    return np.array([values], np.float64).astype(FLOATS[dtype].dtype)


def codes_of(problem: Problem, x: Array) -> list[int]:
    """The output of one row as plain integers."""
    codes: list[int] = quantize(problem, x)["output"].ravel().tolist()
    return codes


def scale_of(problem: Problem, x: Array) -> Any:
    """The scale of the first segment."""
    return quantize(problem, x)["scale"].ravel()[0]


def zero_point_of(problem: Problem, x: Array) -> int:
    """The zero point of the first segment."""
    return int(quantize(problem, x)["zero_point"].ravel()[0])


class TestValuesWorkedOutByHand:
    """The contract's sentences, one by one, without the reference."""

    def test_the_largest_magnitude_takes_q_max_and_halves_go_to_even(self) -> None:
        """`M = 127` makes `s = 1`, so codes are the rounded values."""
        x = row(127, -127, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5)
        assert codes_of(Problem(x.shape), x) == [127, -127, 0, 2, 2, 0, -2, 126]
        assert scale_of(Problem(x.shape), x) == F32(1)

    def test_the_scale_is_one_ieee_division(self) -> None:
        """`fl(3 / 127)` in float32."""
        x = row(3, 1)
        assert scale_of(Problem(x.shape), x) == F32(3) / F32(127)

    def test_a_zero_row_has_scale_one(self) -> None:
        """Of either sign of zero."""
        x = row(0.0, -0.0)
        assert scale_of(Problem(x.shape), x) == 1
        assert codes_of(Problem(x.shape), x) == [0, 0]

    def test_a_tiny_row_takes_the_smallest_normal_as_scale(self) -> None:
        """`M / q_max` would be subnormal."""
        x = row(2.0**-140, -(2.0**-149))
        assert scale_of(Problem(x.shape), x) == F32(2.0**-126)
        assert codes_of(Problem(x.shape), x) == [0, 0]

    @pytest.mark.parametrize("bad", [NAN, INF, -INF])
    def test_bad_data_stays_bad_and_stays_in_its_row(self, bad: float) -> None:
        """PROPAGATE: canonical NaN scale, codes 0, and the next row untouched."""
        x = np.concatenate([row(1, bad, 3), row(1, 2, 127)])
        results = quantize(Problem(x.shape), x)
        assert bits(results["scale"]).tolist() == [CANONICAL_NAN["float32"], 0x3F800000]
        assert results["output"].tolist() == [[0, 0, 0], [1, 2, 127]]

    @pytest.mark.parametrize("dtype", FLOAT8)
    def test_bad_data_becomes_fp8_nan(self, dtype: str) -> None:
        """0x7F is a NaN in both formats."""
        x = row(1, NAN)
        assert codes_of(Problem(x.shape, output_dtype=dtype), x) == [0x7F, 0x7F]

    @pytest.mark.parametrize("scale_dtype", ["float16", "bfloat16", "float32", "float64"])
    def test_the_nan_scale_is_canonical_in_every_scale_dtype(self, scale_dtype: str) -> None:
        """The quiet NaN with no payload and no sign."""
        x = row(-NAN, 1)
        scale = quantize(Problem(x.shape, scale_dtype=scale_dtype), x)["scale"]
        assert bits(scale).tolist() == [CANONICAL_NAN[scale_dtype]]

    def test_saturate_ranges_over_the_finite_elements(self) -> None:
        """+Inf takes q_max, -Inf q_min, NaN the zero point."""
        x = row(INF, -INF, NAN, 63.5, -127)
        problem = Problem(x.shape, nonfinite="saturate")
        assert codes_of(problem, x) == [127, -127, 0, 64, -127]
        assert scale_of(problem, x) == 1

    def test_saturate_without_a_finite_element(self) -> None:
        """Nothing to range over: scale 1."""
        x = row(INF, -INF, NAN)
        assert codes_of(Problem(x.shape, nonfinite="saturate"), x) == [127, -127, 0]
        assert scale_of(Problem(x.shape, nonfinite="saturate"), x) == 1

    def test_saturate_asymmetric_nan_takes_the_zero_point(self) -> None:
        """Which here is 128."""
        x = row(NAN, -128, 127, INF, -INF)
        problem = Problem(x.shape, output_dtype="uint8", mode="asymmetric", nonfinite="saturate")
        assert zero_point_of(problem, x) == 128
        assert codes_of(problem, x) == [128, 0, 255, 255, 0]

    def test_asymmetric_with_zero_in_the_range(self) -> None:
        """`lo = 0` although every value is larger: ONNX's rule."""
        x = row(51, 255)
        problem = Problem(x.shape, output_dtype="uint8", mode="asymmetric")
        assert (scale_of(problem, x), zero_point_of(problem, x)) == (1, 0)
        assert codes_of(problem, x) == [51, 255]

    def test_asymmetric_without_zero_in_the_range(self) -> None:
        """The zero point leaves the code range, unclamped."""
        x = row(1000, 1255, 1100)
        problem = Problem(x.shape, output_dtype="uint8", mode="asymmetric", include_zero=False)
        assert (scale_of(problem, x), zero_point_of(problem, x)) == (1, -1000)
        assert codes_of(problem, x) == [0, 255, 100]

    def test_the_zero_point_saturates_at_two_to_the_thirty(self) -> None:
        """A float64 range so narrow that `lo / s` is beyond it."""
        x = row(1.0, 1.0 + 2.0**-40, dtype="float64")
        problem = Problem(
            x.shape,
            input_dtype="float64",
            output_dtype="uint8",
            mode="asymmetric",
            include_zero=False,
        )
        assert zero_point_of(problem, x) == -(2**30)
        assert zero_point_of(problem, -x) == 2**30

    @pytest.mark.parametrize(("value", "zero_point"), [(2.5, -1), (-3.25, 1)])
    def test_a_constant_row_is_reproduced_exactly(self, value: float, zero_point: int) -> None:
        """`s = |c|`, `zero_point = q_min - sign(c)`: every code is q_min."""
        x = row(value, value, value)
        problem = Problem(x.shape, output_dtype="uint8", mode="asymmetric", include_zero=False)
        results = quantize(problem, x)
        assert results["scale"].tolist() == [abs(value)]
        assert results["zero_point"].tolist() == [zero_point]
        difference = results["output"].astype(np.int64) - zero_point
        assert (results["scale"] * difference == x).all()

    def test_a_range_beyond_the_largest_float_does_not_overflow(self) -> None:
        """`hi - lo` would be infinite."""
        big = float(np.finfo(F32).max)
        x = row(big, -big)
        problem = Problem(x.shape, output_dtype="uint8", mode="asymmetric")
        assert scale_of(problem, x) == F32(big) / F32(127.5)
        assert codes_of(problem, x) == [255, 0]

    @pytest.mark.parametrize(
        ("quotient", "codes"),
        [("divide", [127, 5, 12]), ("reciprocal", [127, 5, 11]), ("ratio", [127, 6, 12])],
    )
    def test_quotients_differ_near_ties(self, quotient: str, codes: list[int]) -> None:
        """Two elements of a row with `M = 11`: three divisions, three pairs of codes."""
        x = row(11, float.fromhex("0x1.e7cf9ep-2"), float.fromhex("0x1.fdfbf8p-1"))
        assert codes_of(Problem(x.shape, quotient=quotient), x) == codes

    def test_a_ratio_that_overflows_keeps_zero_at_zero(self) -> None:
        """`q_max / M` is infinite; 0 times it is no number, and takes the zero point."""
        x = row(2.0**-149, 0.0, -(2.0**-149))
        assert codes_of(Problem(x.shape, quotient="ratio"), x) == [127, 0, -127]

    def test_float8_keeps_the_sign_of_zero_and_subnormals(self) -> None:
        """`s = 1`: codes are the casts themselves."""
        x = row(448, -0.0, 0.0, 2.0**-9, -(2.0**-9), -(2.0**-11), 2.0**-10, 3 * 2.0**-10)
        problem = Problem(x.shape, output_dtype="float8_e4m3fn")
        assert codes_of(problem, x) == [0x7E, 0x80, 0x00, 0x01, 0x81, 0x80, 0x00, 0x02]

    def test_float8_saturates(self) -> None:
        """With bounds narrower than the format."""
        x = row(240, -240, 100)
        problem = Problem(x.shape, output_dtype="float8_e4m3fn", q_min=-120.0, q_max=240.0)
        assert codes_of(problem, x) == [0x77, 0xEF, 0x6C]

    def test_the_scale_is_rounded_once_and_codes_follow_the_stored_one(self) -> None:
        """bfloat16 scales: 1/3 is stored as 0.333984375."""
        x = row(127 / 3, 14.1941, dtype="float32")
        problem = Problem(x.shape, scale_dtype="bfloat16")
        results = quantize(problem, x)
        assert bits(results["scale"]).tolist() == [0x3EAB]
        assert results["output"].tolist() == [[127, 42]]

    def test_a_float64_scale_is_rounded_to_bfloat16_in_one_step(self) -> None:
        """Through float32 it would fall on a tie and go down."""
        M = 1 + 2.0**-8 + 2.0**-40
        x = row(M, dtype="float64")
        problem = Problem(x.shape, input_dtype="float64", q_max=1, q_min=-1, scale_dtype="bfloat16")
        assert bits(quantize(problem, x)["scale"]).tolist() == [0x3F81]

    def test_float64_is_never_computed_through_float32(self) -> None:
        """A tie in float64 that is none: the last bit decides."""
        x = row(127, 0.5 + 2.0**-53, 0.5, dtype="float64")
        assert codes_of(Problem(x.shape, input_dtype="float64"), x) == [127, 1, 0]

    @pytest.mark.parametrize(
        ("order", "packed"), [("low_first", [0x21, 0x0F]), ("high_first", [0x12, 0xF0])]
    )
    def test_nibbles_and_the_spare_one(self, order: str, packed: list[int]) -> None:
        """Codes 1, 2, -1 with `s = 1`; the fourth nibble is 0."""
        x = row(1, 2, -1)
        problem = Problem(x.shape, output_dtype="int4", q_min=-2, q_max=2, nibble_order=order)
        assert codes_of(problem, x) == packed

    @pytest.mark.parametrize("include_zero", [True, False])
    def test_an_empty_row_takes_scale_one_and_q_min(self, include_zero: bool) -> None:
        """The formulas with `lo = hi = 0`."""
        problem = Problem(
            (3, 0), output_dtype="int8", mode="asymmetric", include_zero=include_zero, q_min=-100
        )
        results = quantize(problem, np.empty((3, 0), F32))
        assert results["scale"].tolist() == [1, 1, 1]
        assert results["zero_point"].tolist() == [-100, -100, -100]

    def test_a_shorter_last_group_has_its_own_range(self) -> None:
        """Five elements in groups of two."""
        x = row(127, 1, 254, 2, 508)
        problem = Problem(x.shape, scope=("group", 2, -1))
        results = quantize(problem, x)
        assert results["scale"].tolist() == [[1, 2, 4]]
        assert results["output"].tolist() == [[127, 1, 127, 1, 127]]

    def test_a_block_spans_rows_and_the_last_ones_are_smaller(self) -> None:
        """Three rows of three in blocks of two by two: maxima 127, 254, 508 and 1016."""
        x = np.array([[1, 127, 254], [-2, 0, 6], [508, 4, -1016]], F32)
        results = quantize(Problem(x.shape, scope=("block", 2, 2)), x)
        assert results["scale"].tolist() == [[1, 2], [4, 8]]
        assert results["output"].tolist() == [[1, 127, 127], [-2, 0, 3], [127, 1, -127]]

    def test_odd_blocks_of_nibbles_share_bytes(self) -> None:
        """Two rows in blocks of one column and a spare one: byte 0 holds codes of two scales."""
        x = np.array([[7, 2, 4], [1, 7, -28]], F32)
        problem = Problem(x.shape, output_dtype="int4", scope=("block", 2, 1))
        results = quantize(problem, x)
        assert results["scale"].tolist() == [[1, 1, 4]]
        assert results["output"].tolist() == [[0x27, 0x01], [0x71, 0x09]]
        wide = np.concatenate([x, x[:, :2] * 2], axis=1)
        results = quantize(replace(problem, shape=wide.shape, scope=("block", 2, 3)), wide)
        assert results["scale"].tolist() == [[4, 2]]
        assert results["output"].tolist() == [[0x02, 0x71, 0x02], [0x20, 0x19, 0x07]]


class TestShapes:
    """Rank 1 to 8, long and tall, and beyond 2^31 elements."""

    @pytest.mark.parametrize("rank", range(1, 9))
    @pytest.mark.parametrize("output_dtype", ["int8", "int4", "float8_e4m3fn"])
    def test_every_rank_with_every_scope(self, rank: int, output_dtype: str) -> None:
        """Channels and groups along every axis."""
        shape = (2, 3, 1, 4, 2, 3, 2, 5)[-rank:]
        scopes: list[ScopeSpec] = [("tensor",), ("token",)]
        if rank > 1:
            scopes += [("block", 2, 2), ("block", 1, 3), ("block", 2, 3), ("block", 64, 64)]
        for axis in range(-rank, rank):
            scopes += [("channel", axis), ("group", 2, axis), ("group", 64, axis)]
        x = inputs.make("finite", shape, "bfloat16", rank)
        for scope in scopes:
            check_problem(Problem(shape, "bfloat16", output_dtype, scope), x)

    @pytest.mark.parametrize("columns", [1, 2, 3, 15, 16, 17, 31, 63, 64, 65, 255, 1023, 4097])
    @pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
    def test_every_tail_length(self, input_dtype: str, columns: int) -> None:
        """Kernels for vectors leave tails; the outputs' guards catch one that runs over."""
        x = inputs.make("mixed", (5, columns), input_dtype, columns)
        for output_dtype, order in OUTPUTS:
            mode = "asymmetric" if output_dtype.startswith("u") else "symmetric"
            problem = Problem(
                (5, columns), input_dtype, output_dtype, mode=mode, nibble_order=order
            )
            scopes = (("token",), ("group", 16, -1), ("channel", -1), ("tensor",), ("block", 3, 16))
            for scope in scopes:
                check_problem(replace(problem, scope=scope), x)

    @pytest.mark.parametrize("scope", [("token",), ("tensor",), ("channel", -1), ("group", 48, -1)])
    def test_one_row_of_two_to_the_twenty_columns(self, scope: ScopeSpec) -> None:
        """With the largest value near the end."""
        x = inputs.make("normal", (1, 2**20), "float32")
        x[0, -5] = 1000
        check_problem(Problem(x.shape, scope=scope), x)

    def test_ten_million_rows_of_sixteen(self) -> None:
        """More rows than fit a 16-bit grid dimension, 160 million elements."""
        pattern = inputs.make("mixed", (1000, 16), "bfloat16")
        once = quantize(Problem(pattern.shape, "bfloat16"), pattern)
        check_problem(Problem(pattern.shape, "bfloat16"), pattern)
        x = np.tile(pattern.view(np.uint16), (10_000, 1)).view(pattern.dtype)
        q, s = np.empty(x.shape, np.int8), np.empty(len(x), F32)
        run_in_place(Problem(x.shape, "bfloat16"), x, q, s)
        assert (q.reshape(10_000, -1) == once["output"].reshape(1, -1)).all()
        assert (s.view(np.uint32).reshape(10_000, -1) == once["scale"].view(np.uint32)).all()

    @pytest.mark.parametrize("scope", [("tensor",), ("token",), ("group", 2**20, 0)])
    def test_more_than_two_to_the_thirty_one_elements(self, scope: ScopeSpec) -> None:
        """A tensor of zeros with a few values planted before, at and after 2^31."""
        rows, columns = (2**31 + 2**20 + 24, 1) if scope[0] == "group" else (2**20 + 3, 2049)
        problem = Problem((rows, columns), "bfloat16", "int8", scope)
        x = np.zeros(rows * columns, np.uint16)
        planted = {0: 127.0, 2**31 - 1: 3.0, 2**31: -127.0, 2**31 + 1: 5.0, x.size - 1: 127.0}
        where = np.array(list(planted))
        x[where] = np.array(list(planted.values())).astype(FLOATS["bfloat16"].dtype).view(np.uint16)
        q = np.empty((rows, columns), np.int8)
        s = np.full(descriptor(problem).operands()["scale"].shape, -1, F32)
        run_in_place(problem, x.view(FLOATS["bfloat16"].dtype).reshape(rows, columns), q, s)
        segment = where // s_length(problem)
        alone = {g: max(abs(planted[int(i)]) for i in where[segment == g]) for g in segment}
        for g, magnitude in alone.items():
            assert s.ravel()[g] == F32(magnitude) / F32(127)
        assert np.count_nonzero(s != 1) == sum(m != 127 for m in alone.values())
        wanted = [
            round(planted[int(i)] * 127 / alone[g]) for i, g in zip(where, segment, strict=True)
        ]
        assert q.ravel()[where].tolist() == wanted
        assert np.count_nonzero(q) == len(planted)


def s_length(problem: Problem) -> int:
    """Elements a segment, for the scopes of the test above."""
    rows, columns = problem.shape
    return {"tensor": rows * columns, "token": columns, "group": 2**20}[problem.scope[0]]


def run_in_place(problem: Problem, x: Array, q: Array, s: Array) -> None:
    """Runs on the caller's arrays, without the guarded copies that large ones cannot afford."""
    plan = planq.Plan.select(planq.HOST, descriptor(problem))
    workspace = np.empty(plan.workspace_size() + 256, np.uint8)
    start = -workspace.ctypes.data % 256
    plan.run(
        planq.HOST,
        workspace[start : start + plan.workspace_size()] if plan.workspace_size() else None,
        planq.DynamicRangeQuantizeArgs(input=x, output=q, scale=s),
    )


class TestInvariances:
    """Properties that need no reference."""

    @pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
    def test_negating_the_input_negates_symmetric_codes(self, input_dtype: str) -> None:
        """Rounding to even and the default bounds are symmetric."""
        x = inputs.make("finite", (40, 333), input_dtype)
        for quotient in ("divide", "reciprocal", "ratio"):
            problem = Problem(x.shape, input_dtype, quotient=quotient)
            up, down = quantize(problem, x), quantize(problem, -x)
            assert np.array_equal(up["output"], -down["output"])
            assert np.array_equal(bits(up["scale"]), bits(down["scale"]))

    def test_scaling_by_a_power_of_two_scales_the_scale(self) -> None:
        """And leaves every code, away from the ends of the exponent range."""
        x = inputs.make("normal", (40, 333), "float32")
        for output_dtype in ("int8", "int4", "float8_e4m3fn", "float8_e5m2"):
            problem = Problem(x.shape, output_dtype=output_dtype)
            once, more = quantize(problem, x), quantize(problem, x * F32(1024))
            assert np.array_equal(once["output"], more["output"])
            assert np.array_equal(once["scale"] * F32(1024), more["scale"])

    def test_reordering_a_segment_reorders_its_codes(self) -> None:
        """The range is exact in any order."""
        x = inputs.make("finite", (8, 1000), "float32")
        order = np.argsort(inputs.hashed(1, 1000))
        problem = Problem(x.shape, output_dtype="uint8", mode="asymmetric")
        straight, shuffled = quantize(problem, x), quantize(problem, x[:, order])
        assert np.array_equal(straight["output"][:, order], shuffled["output"])
        assert np.array_equal(bits(straight["scale"]), bits(shuffled["scale"]))
        assert np.array_equal(straight["zero_point"], shuffled["zero_point"])

    def test_a_transposed_tensor_by_channel_is_the_tensor_by_token(self) -> None:
        """Two scopes, one meaning."""
        x = inputs.make("mixed", (70, 130), "float16")
        token = quantize(Problem((70, 130), "float16"), x)
        channel = quantize(Problem((130, 70), "float16", scope=("channel", -1)), x.T.copy())
        assert np.array_equal(token["output"], channel["output"].T)
        assert np.array_equal(bits(token["scale"]), bits(channel["scale"]))

    def test_groups_as_long_as_the_row_are_tokens(self) -> None:
        """Or longer."""
        x = inputs.make("mixed", (20, 300), "bfloat16")
        token = quantize(Problem(x.shape, "bfloat16"), x)
        for size in (300, 301, 2**40):
            grouped = quantize(Problem(x.shape, "bfloat16", scope=("group", size, -1)), x)
            assert np.array_equal(token["output"], grouped["output"])
            assert np.array_equal(bits(token["scale"]), bits(grouped["scale"].ravel()))

    @pytest.mark.parametrize("output_dtype", ["int8", "int4", "float8_e4m3fn"])
    @pytest.mark.parametrize(("rows", "columns"), [(64, 64), (5, 7), (1, 128), (70, 1), (9, 500)])
    def test_a_block_alone_is_a_tensor(self, rows: int, columns: int, output_dtype: str) -> None:
        """Block by block, the codes and scales of the whole; in the second of two planes."""
        x = inputs.make("mixed", (2, 75, 131), "bfloat16")
        problem = Problem(x.shape, "bfloat16", output_dtype, ("block", rows, columns))
        whole = quantize(problem, x)
        codes = whole["output"][1]
        if output_dtype == "int4":
            codes = unpack_nibbles(codes, 131, "low_first")
        for i, j in itertools.product(range(0, 75, rows), range(0, 131, columns)):
            block = np.ascontiguousarray(x[1, i : i + rows, j : j + columns])
            alone = quantize(Problem(block.shape, "bfloat16", output_dtype, ("tensor",)), block)
            among = codes[i : i + rows, j : j + columns]
            if output_dtype == "int4":
                alone["output"] = unpack_nibbles(alone["output"], block.shape[1], "low_first")
            assert np.array_equal(alone["output"], among)
            assert bits(alone["scale"]) == bits(whole["scale"])[1, i // rows, j // columns]

    @pytest.mark.parametrize("output_dtype", ["int4", "uint4"])
    def test_both_nibble_orders_hold_the_same_codes(self, output_dtype: str) -> None:
        """And differ as bytes."""
        x = inputs.make("normal", (9, 77), "float32")
        low = Problem(x.shape, output_dtype=output_dtype, mode="asymmetric")
        high = replace(low, nibble_order="high_first")
        first, second = quantize(low, x)["output"], quantize(high, x)["output"]
        assert np.array_equal(
            unpack_nibbles(first, 77, "low_first"), unpack_nibbles(second, 77, "high_first")
        )
        assert not np.array_equal(first, second)


REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("rank 0", "shape", {"shape": ()}),
    ("rank 9", "shape", {"shape": (1,) * 9}),
    ("a negative size", "shape", {"shape": (3, -1)}),
    ("more elements than 64 bits count", "shape", {"shape": (2**40, 2**40)}),
    ("an integer input", "input_dtype", {"input_dtype": "int8"}),
    ("an fp8 input", "input_dtype", {"input_dtype": "float8_e4m3fn"}),
    ("a float output", "output_dtype", {"output_dtype": "float16"}),
    ("an int32 output", "output_dtype", {"output_dtype": "int32"}),
    ("an unknown dtype", "output_dtype", {"output_dtype": "int3"}),
    ("an integer scale", "scale_dtype", {"scale_dtype": "int32"}),
    ("an fp8 scale", "scale_dtype", {"scale_dtype": "float8_e4m3fn"}),
    ("a channel axis beyond the rank", "scope", {"scope": ("channel", 2)}),
    ("a channel axis before the first", "scope", {"scope": ("channel", -3)}),
    ("a group axis beyond the rank", "scope", {"scope": ("group", 4, 2)}),
    ("groups of no elements", "scope", {"scope": ("group", 0, -1)}),
    ("groups of negative size", "scope", {"scope": ("group", -4, -1)}),
    ("blocks of no rows", "scope", {"scope": ("block", 0, 4)}),
    ("blocks of no columns", "scope", {"scope": ("block", 4, 0)}),
    ("blocks of one axis", "scope", {"scope": ("block", 4, 4), "shape": (64,)}),
    ("symmetric codes in uint8", "mode", {"output_dtype": "uint8"}),
    ("symmetric codes in uint4", "mode", {"output_dtype": "uint4"}),
    (
        "asymmetric fp8",
        "mode",
        {"output_dtype": "float8_e4m3fn", "mode": planq.Mode.ASYMMETRIC},
    ),
    (
        "the ratio of an asymmetric range",
        "quotient",
        {"mode": planq.Mode.ASYMMETRIC, "quotient": planq.Quotient.RATIO},
    ),
    ("q_min below int8", "q_min", {"q_min": -129}),
    ("q_max above int8", "q_max", {"q_max": 128}),
    ("q_max above int4", "q_max", {"output_dtype": "int4", "q_max": 8}),
    ("q_min below int4", "q_min", {"output_dtype": "int4", "q_min": -9}),
    (
        "q_min below uint8",
        "q_min",
        {"output_dtype": "uint8", "mode": planq.Mode.ASYMMETRIC, "q_min": -1},
    ),
    (
        "q_max above uint4",
        "q_max",
        {"output_dtype": "uint4", "mode": planq.Mode.ASYMMETRIC, "q_max": 16},
    ),
    ("a symmetric q_max of zero", "q_max", {"q_max": 0}),
    ("a symmetric q_max below zero", "q_max", {"q_max": -3, "q_min": -7}),
    ("bounds of one code", "q_min", {"q_min": 7, "q_max": 7}),
    ("bounds the wrong way round", "q_min", {"q_min": 9, "q_max": 7}),
    ("a broken bound of an integer dtype", "q_max", {"q_max": 7.5}),
    ("NaN as a bound", "q_max", {"output_dtype": "float8_e5m2", "q_max": NAN}),
    ("infinity as a bound", "q_min", {"output_dtype": "float8_e5m2", "q_min": -INF}),
    ("a bound above e4m3", "q_max", {"output_dtype": "float8_e4m3fn", "q_max": 480.0}),
    ("a bound between e4m3 codes", "q_max", {"output_dtype": "float8_e4m3fn", "q_max": 447.0}),
    ("a bound between e5m2 codes", "q_min", {"output_dtype": "float8_e5m2", "q_min": -57000.0}),
]


def construct(fields: dict[str, Any]) -> planq.DynamicRangeQuantizeDescriptor:
    """A descriptor whose scope is written as a tuple: a Scope may refuse its own arguments."""
    scope = make_scope(fields.get("scope", ("token",)))
    return planq.DynamicRangeQuantizeDescriptor(**{**fields, "scope": scope})


@pytest.mark.parametrize(
    ("field", "change"), [pytest.param(f, c, id=name) for name, f, c in REFUSED]
)
def test_a_descriptor_outside_the_table_is_refused(field: str, change: dict[str, Any]) -> None:
    """At construction, with the field that is wrong."""
    good: dict[str, Any] = {"shape": (4, 64), "input_dtype": "float32", "output_dtype": "int8"}
    spec = {**good, **change}
    with pytest.raises(planq.DescriptorError) as caught:
        construct(spec)
    assert caught.value.field == field
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).startswith(f"{field}: ")


def test_threads_share_one_long_row() -> None:
    """Segments cut among threads give the bits of one thread."""
    x = inputs.make("finite", (1, 2**19 + 7), "float32")
    for scope in (("tensor",), ("token",), ("channel", 0)):
        problem = Problem(x.shape, output_dtype="uint8", mode="asymmetric", scope=scope)
        for threads in (1, 2, 5):
            check_problem(problem, x, Host(threads))


def test_threads_share_a_few_large_blocks() -> None:
    """And the batches of neighbours whose codes share bytes."""
    x = inputs.make("finite", (800, 1400), "float32")
    for output_dtype, scope in (("uint8", ("block", 500, 1100)), ("uint4", ("block", 130, 129))):
        problem = Problem(x.shape, output_dtype=output_dtype, mode="asymmetric", scope=scope)
        for threads in (1, 2, 5):
            check_problem(problem, x, Host(threads))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("mode", {"mode": "asymmetric", "convention": "compressed_tensors"}),
        ("quotient", {"quotient": "ratio", "convention": "compressed_tensors"}),
        ("scope", {"scope": planq.Scope.token()}),
        ("scope", {"scope": planq.Scope.group(64)}),
        ("scope", {"scope": planq.Scope.group(32, 0)}),
        ("shape", {"shape": (64, 48)}),
        ("mode", {"mode": "asymmetric"}),
        ("q_min", {"q_min": -128}),
        ("q_max", {"q_max": 126}),
        ("quotient", {"quotient": "ratio"}),
        ("nonfinite", {"nonfinite": "saturate"}),
        ("input_dtype", {"input_dtype": "float64"}),
        ("output_dtype", {"output_dtype": "uint8", "mode": "asymmetric"}),
        ("scale_dtype", {"scale_dtype": "float32"}),
    ],
)
def test_a_convention_refuses_what_it_has_no_formula_for(
    field: str, values: dict[str, Any]
) -> None:
    """The error names the field."""
    fields = {"shape": (64, 64), "input_dtype": "float32", "output_dtype": "int8"}
    fields |= {"scope": planq.Scope.group(32), "convention": "ggml"}
    with pytest.raises(planq.DescriptorError) as caught:
        planq.DynamicRangeQuantizeDescriptor(**{**fields, **values})
    assert caught.value.field == field


@pytest.mark.parametrize("convention", ["bitsandbytes", "baracuda"])
def test_conventions_of_products_make_no_scales(convention: str) -> None:
    """They say how sums take scales, not how scales are measured."""
    with pytest.raises(planq.DescriptorError, match="mx_round_up, nvfp4 or vllm") as caught:
        planq.DynamicRangeQuantizeDescriptor(
            shape=(4, 8), input_dtype="float32", output_dtype="int8", convention=convention
        )
    assert caught.value.field == "convention"


def test_a_convention_has_defaults_of_its_own() -> None:
    """All codes, and the input's type for the scale; GGML divides by a product."""
    make = planq.DynamicRangeQuantizeDescriptor
    like = {"shape": (64, 64), "input_dtype": "bfloat16", "output_dtype": "int4"}
    peers = make(**like, convention=planq.Convention.COMPRESSED_TENSORS)
    assert (peers.q_min, peers.q_max, peers.scale_dtype) == (-8, 7, planq.DType.BFLOAT16)
    blocks = make(**like, scope=planq.Scope.group(32), convention=planq.Convention.GGML)
    assert (blocks.q_min, blocks.q_max, blocks.scale_dtype) == (-8, 7, planq.DType.FLOAT16)
    assert blocks.quotient is planq.Quotient.RECIPROCAL
