"""`quantize` on the host: its whole table, its edges, and values worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planq.audit.memory import Host
from planq.audit.ops.affine import inputs as affine_inputs
from planq.audit.ops.affine.cases import BOUNDS, DATA, FLOAT8, OUTPUTS, PARAMETERS
from planq.audit.ops.affine.quantize.adapter import TESTS
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference.formats import (
    FLOATS,
    INPUT_DTYPES,
    INTEGER_RANGES,
    STORAGE,
    Array,
    Arrays,
    bits,
)
from support.tables import share

F32 = np.float32
INF, NAN = float("inf"), float("nan")
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
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
SCALE_DTYPES = (None, "float16", "bfloat16", "float32", "float64")


def conventions(output_dtype: str) -> Iterator[dict[str, Any]]:
    """Every mode with every quotient and type of zero points that goes with it."""
    for quotient in ("divide", "reciprocal", "ratio"):
        yield {"mode": "symmetric", "quotient": quotient}
    if output_dtype not in FLOAT8:
        for quotient, kind in itertools.product(("divide", "reciprocal"), ("int32", output_dtype)):
            yield {"mode": "asymmetric", "quotient": quotient, "zero_point_dtype": kind}


def check(problem: QuantizeProblem, data: str, parameters: str, seed: int) -> None:
    """The reference's bits on operands of this kind."""
    TESTS.check(problem, **affine_inputs.make(problem, data, parameters, seed))


@pytest.mark.parametrize("output", OUTPUTS, ids="-".join)
@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
def test_the_whole_table(input_dtype: str, output: tuple[str, str]) -> None:
    """Every scope x convention x NonFinite x scale dtype; bounds and operands take turns.

    Of these a type of input has a third.
    """
    output_dtype, order = output
    rows = share(
        INPUT_DTYPES.index(input_dtype),
        *(list(conventions(output_dtype)), ("propagate", "saturate"), SCALE_DTYPES, SCOPES),
    )
    for turn, (convention, nonfinite, scale_dtype, scope) in enumerate(rows):
        bounds = ((None, None), *BOUNDS.get((output_dtype, convention["mode"]), ()))
        q_min, q_max = bounds[turn % len(bounds)]
        problem = QuantizeProblem(
            shape=(4, 5, 9),
            scope=scope,
            scale_dtype=scale_dtype,
            input_dtype=input_dtype,
            output_dtype=output_dtype,
            q_min=q_min,
            q_max=q_max,
            nonfinite=nonfinite,
            nibble_order=order,
            **convention,
        )
        check(problem, DATA[turn // 3 % len(DATA)], PARAMETERS[turn // 7 % len(PARAMETERS)], turn)


def row(*values: float, dtype: str = "float32") -> Array:
    """Values as a vector."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float64).astype(FLOATS[dtype].dtype)


def codes_of(
    x: Array, scale: float = 1.0, zero_point: int | None = None, **fields: Any
) -> list[int]:
    """The codes of a vector under one scale and, where it is given, one zero point."""
    fields = {"input_dtype": x.dtype.name, **fields}
    if zero_point is not None:
        fields["mode"] = "asymmetric"
    problem = QuantizeProblem(x.shape, **fields)
    given: Arrays = {"input": x, "scale": row(scale, dtype=problem.stored_scale)}
    if zero_point is not None:
        kind = STORAGE[problem.zero_point_dtype or "int32"]
        given["zero_point"] = np.array([zero_point]).astype(kind)
    codes: list[int] = TESTS.run(problem, **given)["output"].tolist()
    return codes


class TestValuesWorkedOutByHand:
    """The contract's sentences, one by one, without the reference."""

    def test_halves_go_to_even_and_the_bounds_hold(self) -> None:
        """`s = 1`: codes are the rounded values."""
        x = row(0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, -127.5, 200, -200)
        assert codes_of(x) == [0, 2, 2, 0, -2, 126, 127, -127, 127, -127]
        assert codes_of(x, q_min=-128)[-3:] == [-128, 127, -128]

    def test_symmetric_codes_of_an_unsigned_type(self) -> None:
        """The whole range, with 0 at its lower end."""
        assert codes_of(row(-1, 0.5, 1.5, 254.5, 300), output_dtype="uint8") == [0, 0, 2, 254, 255]
        assert codes_of(row(-3, 15.5), output_dtype="uint4") == [0xF0]

    def test_the_zero_point_is_added_after_rounding(self) -> None:
        """An odd zero point moves no tie: `rne(0.5) + 1`, not `rne(1.5)`."""
        assert codes_of(row(0.5, 1.5, -0.5, -1.5), zero_point=1) == [1, 3, 1, -1]

    def test_a_large_zero_point_loses_no_bit(self) -> None:
        """`2^24 + 1` and `-(2^24)` add up exactly, which float32 would not."""
        assert codes_of(row(-(2.0**24)), zero_point=2**24 + 1) == [1]
        assert codes_of(row(2.0**30), zero_point=5 - 2**30) == [5]

    @pytest.mark.parametrize("value", [1e30, 3e9, 2.0**31, 2.0**30, 1.0, INF])
    def test_the_largest_zero_point_does_not_wrap(self, value: float) -> None:
        """A sum beyond int32 stays at its end of the range."""
        for output_dtype in ("int8", "uint8", "int4", "uint4"):
            lowest, highest = INTEGER_RANGES[output_dtype]
            top = codes_of(row(value), zero_point=INT_MAX, output_dtype=output_dtype)
            assert top == [highest & 15 if output_dtype.endswith("t4") else highest]
            bottom = codes_of(row(-value), zero_point=INT_MIN, output_dtype=output_dtype)
            assert bottom == [lowest & 15 if output_dtype.endswith("t4") else lowest]

    def test_an_infinite_quotient_beats_any_zero_point(self) -> None:
        """While a finite one counts as 2^30 at most."""
        assert codes_of(row(INF, 1e30), zero_point=INT_MIN) == [127, -128]
        assert codes_of(row(-INF, -1e30), zero_point=INT_MAX) == [-128, 127]

    @pytest.mark.parametrize("nonfinite", ["propagate", "saturate"])
    @pytest.mark.parametrize(("zero_point", "code"), [(5, 5), (300, 127), (-(2**30), -128)])
    def test_a_nan_takes_the_zero_point(self, zero_point: int, code: int, nonfinite: str) -> None:
        """Clamped like any other code."""
        assert codes_of(row(NAN, -NAN), 1.0, zero_point, nonfinite=nonfinite) == [code, code]

    @pytest.mark.parametrize(
        ("scale", "codes"),
        [
            (0.0, [127, -128, 3, 3, 127]),
            (-0.0, [-128, 127, 3, 3, -128]),
            (INF, [3, 3, 3, 3, 3]),
            (NAN, [3, 3, 3, 3, 3]),
            (-1.0, [2, 4, 3, 3, -128]),
        ],
    )
    def test_peculiar_scales_follow_ieee(self, scale: float, codes: list[int]) -> None:
        """Of 1, -1, 0, NaN and infinity with zero point 3."""
        assert codes_of(row(1, -1, 0, NAN, INF), scale, 3) == codes

    @pytest.mark.parametrize(
        ("quotient", "codes"),
        [("divide", [2, 2]), ("reciprocal", [2, 3]), ("ratio", [1, 2])],
    )
    def test_quotients_differ_near_ties(self, quotient: str, codes: list[int]) -> None:
        """Two elements under one scale: three divisions, three pairs of codes."""
        scale = float.fromhex("0x1.e85672p-1")
        x = row(float.fromhex("0x1.6e40d6p0"), float.fromhex("0x1.313608p1"))
        assert codes_of(x, scale, quotient=quotient) == codes

    def test_the_ratio_is_that_of_q_max(self) -> None:
        """`fl(q_max / fl(s * q_max))`: where the product overflows, every quotient is 0."""
        x = row(2.0**127, 2.0**120)
        assert codes_of(x, 2.0**122) == [32, 0]
        assert codes_of(x, 2.0**122, quotient="ratio") == [0, 0]

    def test_a_reciprocal_that_overflows(self) -> None:
        """`1 / s` is infinite for a small subnormal scale; the division is not."""
        x = row(2.0**-148, 0.0)
        assert codes_of(x, 2.0**-149) == [2, 0]
        assert codes_of(x, 2.0**-149, quotient="reciprocal") == [127, 0]

    def test_float64_is_never_computed_through_float32(self) -> None:
        """A tie in float32 that is none: the last bit decides."""
        x = row(0.5 + 2.0**-53, 0.5, 2.0**31 + 5.0, dtype="float64")
        assert codes_of(x) == [1, 0, 127]
        assert codes_of(x[2:], zero_point=INT_MIN) == [-128]
        x = row(1e300, dtype="float64")
        assert codes_of(x, 1e299, output_dtype="uint8") == [10]

    def test_a_float64_scale_is_rounded_to_float32_once(self) -> None:
        """For float32 elements `1 + 2^-30` is 1; for float64 elements it is not."""
        scale = 1 + 2.0**-30
        assert codes_of(row(1.5), scale, scale_dtype="float64") == [2]
        assert codes_of(row(1.5, dtype="float64"), scale, scale_dtype="float64") == [1]

    @pytest.mark.parametrize("scale_dtype", ["float16", "bfloat16", "float32", "float64"])
    def test_scales_of_every_type(self, scale_dtype: str) -> None:
        """0.375 is a number of each."""
        assert codes_of(row(0.375, 0.9375, -3), 0.375, scale_dtype=scale_dtype) == [1, 2, -8]

    def test_float8_keeps_the_sign_of_zero_and_subnormals(self) -> None:
        """`s = 1`: codes are the casts themselves."""
        x = row(448, -0.0, 0.0, 2.0**-9, -(2.0**-9), -(2.0**-11), 2.0**-10, 3 * 2.0**-10)
        codes = codes_of(x, output_dtype="float8_e4m3fn")
        assert codes == [0x7E, 0x80, 0x00, 0x01, 0x81, 0x80, 0x00, 0x02]

    @pytest.mark.parametrize(("dtype", "top"), [("float8_e4m3fn", 0x7E), ("float8_e5m2", 0x7B)])
    def test_float8_saturates_and_a_nan_is_the_descriptors_choice(
        self, dtype: str, top: int
    ) -> None:
        """PROPAGATE: 0x7F in both formats. SATURATE: a NaN counts as +0."""
        x = row(1e30, INF, -INF, NAN, -NAN)
        lost, kept = [0x7F, 0x7F], [0x00, 0x00]
        assert codes_of(x, output_dtype=dtype) == [top, top, top | 0x80, *lost]
        saturated = codes_of(x, output_dtype=dtype, nonfinite="saturate")
        assert saturated == [top, top, top | 0x80, *kept]

    def test_a_scale_that_is_no_number_makes_float8_nan(self) -> None:
        """The quotient counts, and 0 / 0 is none."""
        assert codes_of(row(1, 0), NAN, output_dtype="float8_e5m2") == [0x7F, 0x7F]
        assert codes_of(row(1, 0), 0.0, output_dtype="float8_e5m2") == [0x7B, 0x7F]

    def test_float8_bounds(self) -> None:
        """What is not above q_min becomes q_min itself, also -0 and, saturated, a NaN."""
        fields: dict[str, Any] = {"output_dtype": "float8_e4m3fn", "nonfinite": "saturate"}
        x = row(-0.0, -5, 500, NAN)
        assert codes_of(x, q_min=0.0, q_max=448.0, **fields) == [0x00, 0x00, 0x7E, 0x00]
        assert codes_of(x, q_min=-0.0, q_max=448.0, **fields) == [0x00, 0x00, 0x7E, 0x00]
        assert codes_of(x, q_min=1.5, q_max=240.0, **fields) == [0x3C, 0x3C, 0x77, 0x3C]

    @pytest.mark.parametrize(
        ("order", "packed"), [("low_first", [0x21, 0x0F]), ("high_first", [0x12, 0xF0])]
    )
    def test_nibbles_and_the_spare_one(self, order: str, packed: list[int]) -> None:
        """Codes 1, 2, -1; the fourth nibble is 0."""
        assert codes_of(row(1, 2, -1), output_dtype="int4", nibble_order=order) == packed

    @pytest.mark.parametrize(("order", "bytes_"), [("low_first", 0xE3), ("high_first", 0x3E)])
    def test_packed_zero_points(self, order: str, bytes_: int) -> None:
        """Two channels share a byte of zero points, 3 and -2, in the order of the codes."""
        problem = QuantizeProblem(
            (2, 2),
            ("channel", 0),
            mode="asymmetric",
            zero_point_dtype="int4",
            output_dtype="int4",
            nibble_order=order,
        )
        given = {"input": row(0, 0, 1, 1).reshape(2, 2), "scale": row(1, 1)}
        given["zero_point"] = np.array([bytes_], np.uint8)
        codes = TESTS.run(problem, **given)["output"]
        assert codes.tolist() == [[0x33], [0xFF]]

    def test_a_packed_zero_point_of_a_vector_by_token(self) -> None:
        """Parameters of shape () have one byte, whose first nibble counts."""
        for order, byte in (("low_first", 0xA5), ("high_first", 0x5A)):
            problem = QuantizeProblem(
                (3,),
                ("token",),
                mode="asymmetric",
                zero_point_dtype="uint4",
                output_dtype="uint4",
                nibble_order=order,
            )
            given = {"input": row(0, 1, 2), "scale": row(1).reshape(())}
            given["zero_point"] = np.array(byte, np.uint8)
            packed = {"low_first": [0x65, 0x07], "high_first": [0x56, 0x70]}[order]
            assert TESTS.run(problem, **given)["output"].tolist() == packed

    def test_blocks_at_the_ends_are_smaller(self) -> None:
        """Three rows and five columns in blocks of 2 x 2: six scales."""
        problem = QuantizeProblem((3, 5), ("block", 2, 2))
        scale = row(1, 2, 4, 8, 16, 32).reshape(2, 3)
        given = {"input": np.full((3, 5), 64, F32), "scale": scale}
        wanted = [[64, 64, 32, 32, 16], [64, 64, 32, 32, 16], [8, 8, 4, 4, 2]]
        assert TESTS.run(problem, **given)["output"].tolist() == wanted


class TestShapes:
    """Rank 1 to 8, tails of every length, and scopes that mean the same."""

    @pytest.mark.parametrize("rank", range(1, 9))
    @pytest.mark.parametrize("output_dtype", ["int8", "uint4", "float8_e5m2"])
    def test_every_rank_with_every_scope(self, rank: int, output_dtype: str) -> None:
        """Channels and groups along every axis, blocks of the last two."""
        shape = (2, 3, 1, 4, 2, 3, 2, 5)[-rank:]
        scopes: list[ScopeSpec] = [("tensor",), ("token",)]
        for axis in range(-rank, rank):
            scopes += [("channel", axis), ("group", 2, axis), ("group", 64, axis)]
        if rank > 1:
            scopes += [("block", 1, 2), ("block", 2, 3), ("block", 128, 128)]
        mode = "symmetric" if output_dtype in FLOAT8 else "asymmetric"
        for scope in scopes:
            narrow = output_dtype if mode == "asymmetric" else None
            for kind in {None, narrow}:
                problem = QuantizeProblem(
                    shape,
                    scope,
                    input_dtype="bfloat16",
                    mode=mode,
                    zero_point_dtype=kind,
                    output_dtype=output_dtype,
                )
                check(problem, "near", "ordinary", rank)

    @pytest.mark.parametrize("columns", [1, 2, 3, 15, 16, 17, 31, 63, 64, 65, 255, 1023, 4097])
    @pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
    def test_every_tail_length(self, input_dtype: str, columns: int) -> None:
        """Kernels for vectors leave tails; the outputs' guards catch one that runs over."""
        for output_dtype, order in OUTPUTS:
            problem = QuantizeProblem(
                (5, columns),
                input_dtype=input_dtype,
                output_dtype=output_dtype,
                nibble_order=order,
            )
            for scope in (("token",), ("group", 16, -1), ("channel", -1), ("block", 2, 16)):
                check(replace(problem, scope=scope), "near", "special", columns)

    def test_scopes_that_mean_the_same(self) -> None:
        """A token is a group as long as the row is a block of one row."""
        token = QuantizeProblem((20, 48), ("token",), mode="asymmetric")
        given = affine_inputs.make(token, "near", "far", 3)
        wanted = TESTS.run(token, **given)["output"]
        scopes: tuple[ScopeSpec, ...] = (
            ("channel", 0),
            ("group", 48, -1),
            ("group", 2**40, 1),
            ("block", 1, 48),
            ("block", 1, 2**40),
        )
        for scope in scopes:
            problem = replace(token, scope=scope)
            shaped = {
                name: value if name == "input" else value.reshape(problem.parameter_shape)
                for name, value in given.items()
            }
            assert np.array_equal(TESTS.run(problem, **shaped)["output"], wanted), scope

    def test_a_transposed_tensor_has_transposed_codes(self) -> None:
        """Two scopes, one meaning."""
        token = QuantizeProblem((70, 130), ("token",), mode="asymmetric")
        given = affine_inputs.make(token, "near", "special", 4)
        turned = {**given, "input": np.ascontiguousarray(given["input"].T)}
        channel = replace(token, shape=(130, 70), scope=("channel", -1))
        codes = TESTS.run(token, **given)["output"]
        assert np.array_equal(codes, TESTS.run(channel, **turned)["output"].T)

    def test_threads_share_one_long_row(self) -> None:
        """Any number of threads gives the bits of one."""
        for scope in SCOPES[:1] + SCOPES[4:6]:
            problem = QuantizeProblem((1, 2**19 + 7), scope, output_dtype="uint4")
            given = affine_inputs.make(problem, "near", "ordinary", 1)
            for threads in (1, 2, 5):
                TESTS.check(problem, Host(threads), **given)


@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
@pytest.mark.parametrize("quotient", ["divide", "reciprocal", "ratio"])
def test_negating_the_input_negates_symmetric_codes(input_dtype: str, quotient: str) -> None:
    """Rounding to even and the default bounds are symmetric."""
    problem = QuantizeProblem((40, 333), ("token",), input_dtype=input_dtype, quotient=quotient)
    given = affine_inputs.make(problem, "near", "ordinary", 5)
    up = TESTS.run(problem, **given)["output"]
    down = TESTS.run(problem, **{**given, "input": -given["input"]})["output"]
    assert np.array_equal(up, -down)
    assert len(set(bits(up).ravel().tolist())) > 200
