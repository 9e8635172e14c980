"""The straight-through gradients on the host: tables, masks, and values worked out by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planq.audit.memory import Host
from planq.audit.ops.affine import inputs as affine_inputs
from planq.audit.ops.affine.cases import BOUNDS, DATA, FLOAT8, PARAMETERS, RANGES
from planq.audit.ops.affine.dequantize_backward.adapter import TESTS as DEQUANTIZE_BACKWARD
from planq.audit.ops.affine.dequantize_backward.reference import DequantizeBackwardProblem
from planq.audit.ops.affine.fake_quantize_backward.adapter import TESTS as FAKE_QUANTIZE_BACKWARD
from planq.audit.ops.affine.fake_quantize_backward.reference import FakeQuantizeBackwardProblem
from planq.audit.ops.affine.quantize.adapter import TESTS as QUANTIZE
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.ops.affine.quantize_backward.adapter import TESTS as QUANTIZE_BACKWARD
from planq.audit.ops.affine.quantize_backward.reference import QuantizeBackwardProblem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference.formats import (
    CANONICAL_NAN,
    FLOATS,
    INPUT_DTYPES,
    INTEGER_RANGES,
    Array,
    Arrays,
    bits,
)
from support.tables import share

F32 = np.float32
INF, NAN = float("inf"), float("nan")
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
CODES = (*INTEGER_RANGES, *FLOAT8)
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
)
SCALE_DTYPES = (None, "float16", "bfloat16", "float32", "float64")
CONVENTIONS = (
    ("symmetric", "divide"),
    ("symmetric", "reciprocal"),
    ("symmetric", "ratio"),
    ("asymmetric", "divide"),
    ("asymmetric", "reciprocal"),
)


@pytest.mark.parametrize("output_dtype", CODES)
@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
def test_the_whole_table_of_quantize(input_dtype: str, output_dtype: str) -> None:
    """Every scope x convention x scale dtype; bounds, zero points and operands take turns.

    Of these a type of input has a third.
    """
    conventions = CONVENTIONS[:3] if output_dtype in FLOAT8 else CONVENTIONS
    rows = share(INPUT_DTYPES.index(input_dtype), conventions, SCALE_DTYPES, SCOPES)
    for turn, ((mode, quotient), scale_dtype, scope) in enumerate(rows):
        bounds = ((None, None), *BOUNDS.get((output_dtype, mode), ()))
        narrow = (None, "int32", output_dtype) if mode == "asymmetric" else (None,)
        problem = QuantizeBackwardProblem(
            shape=(4, 5, 9),
            scope=scope,
            scale_dtype=scale_dtype,
            input_dtype=input_dtype,
            mode=mode,
            q_min=bounds[turn % len(bounds)][0],
            q_max=bounds[turn % len(bounds)][1],
            zero_point_dtype=narrow[turn % len(narrow)],
            quotient=quotient,
            output_dtype=output_dtype,
        )
        data, parameters = DATA[turn // 3 % len(DATA)], PARAMETERS[turn // 7 % len(PARAMETERS)]
        QUANTIZE_BACKWARD.check(problem, **affine_inputs.make(problem, data, parameters, turn))


@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
def test_the_whole_table_of_fake_quantize(input_dtype: str) -> None:
    """Every scope x convention x scale dtype; bounds, zero points and operands take turns."""
    turns = itertools.count()
    for (mode, quotient), scale_dtype, scope in itertools.product(
        CONVENTIONS, SCALE_DTYPES, SCOPES
    ):
        turn = next(turns)
        bounds = ((None, None), *RANGES[mode])
        narrow = (None, "int8", "uint8") if mode == "asymmetric" else (None,)
        problem = FakeQuantizeBackwardProblem(
            shape=(4, 5, 9),
            scope=scope,
            scale_dtype=scale_dtype,
            input_dtype=input_dtype,
            mode=mode,
            q_min=bounds[turn % len(bounds)][0],
            q_max=bounds[turn % len(bounds)][1],
            zero_point_dtype=narrow[turn % len(narrow)],
            quotient=quotient,
        )
        data, parameters = DATA[turn // 3 % len(DATA)], PARAMETERS[turn // 7 % len(PARAMETERS)]
        given = affine_inputs.make(problem, data, parameters, turn)
        FAKE_QUANTIZE_BACKWARD.check(problem, **given)


@pytest.mark.parametrize("dtype", INPUT_DTYPES)
def test_the_whole_table_of_dequantize(dtype: str) -> None:
    """Every scope x scale dtype on operands of every kind."""
    kinds = itertools.product(SCALE_DTYPES, SCOPES, DATA[3:], PARAMETERS[::2])
    for turn, (scale_dtype, scope, data, parameters) in enumerate(kinds):
        problem = DequantizeBackwardProblem((4, 5, 9), scope, scale_dtype, dtype)
        DEQUANTIZE_BACKWARD.check(problem, **affine_inputs.make(problem, data, parameters, turn))


def row(*values: float, dtype: str = "float32") -> Array:
    """Values as a vector."""
    return np.array(values, np.float64).astype(FLOATS[dtype].dtype)


def operands(x: Array, dy: Array, scale: float, zero_point: int | None) -> Arrays:
    """Operands with one scale and one zero point."""
    wide = "float64" if x.dtype == np.float64 else "float32"
    given: Arrays = {"grad_output": dy, "input": x, "scale": row(scale, dtype=wide)}
    if zero_point is not None:
        given["zero_point"] = np.array([zero_point], np.int32)
    return given


def through_quantize(
    x: Array, dy: Array, scale: float = 1.0, zero_point: int | None = None, **fields: Any
) -> Array:
    """The gradient of a vector's elements."""
    mode = "symmetric" if zero_point is None else "asymmetric"
    fields = {"input_dtype": x.dtype.name, "mode": mode, **fields}
    problem = QuantizeBackwardProblem(x.shape, **fields)
    given = operands(x, dy, scale, zero_point)
    return QUANTIZE_BACKWARD.run(problem, **given)["grad_input"]


def through_fake(
    x: Array, dy: Array, scale: float = 1.0, zero_point: int | None = None, **fields: Any
) -> Array:
    """Likewise, of fake quantize."""
    mode = "symmetric" if zero_point is None else "asymmetric"
    fields = {"input_dtype": x.dtype.name, "mode": mode, **fields}
    problem = FakeQuantizeBackwardProblem(x.shape, **fields)
    given = operands(x, dy, scale, zero_point)
    return FAKE_QUANTIZE_BACKWARD.run(problem, **given)["grad_input"]


class TestValuesWorkedOutByHand:
    """The contract's sentences, one by one, without the reference."""

    @pytest.mark.parametrize("through", [through_quantize, through_fake])
    def test_both_ends_are_inside(self, through: Any) -> None:
        """126.5 and 127.5 round to 126 and 128; -127.5 to -128; ends are 127 and -127."""
        x = row(127, 127.49, 127.5, 128, -127, -127.49, -127.5, -128, 0)
        got = through(x, np.full(x.shape, -3, F32))
        wanted = row(-3, -3, 0, 0, -3, -3, 0, 0, -3)
        assert bits(got).tolist() == bits(wanted).tolist()

    @pytest.mark.parametrize("scope", [("token",), ("group", 2, -1), ("block", 1, 2)], ids=str)
    def test_both_ends_are_inside_of_every_scope(self, scope: ScopeSpec) -> None:
        """Codes of q_min and of q_max pass, per row and per group too."""
        x = row(-8, 7, -8.5, 7.5, -9, 8).reshape(1, 6)
        problem = QuantizeBackwardProblem(x.shape, scope, mode="asymmetric", output_dtype="int4")
        given: Arrays = {"grad_output": np.ones_like(x), "input": x}
        given["scale"] = np.ones(problem.parameter_shape, F32)
        given["zero_point"] = np.zeros(problem.parameter_shape, np.int32)
        got = QUANTIZE_BACKWARD.run(problem, **given)["grad_input"]
        assert got.tolist() == [[1, 1, 1, 0, 0, 0]]
        faked = FakeQuantizeBackwardProblem(x.shape, scope, mode="asymmetric", q_min=-8, q_max=7)
        got = FAKE_QUANTIZE_BACKWARD.run(faked, **given)["grad_input"]
        assert got.tolist() == [[1, 1, 1, 0, 0, 0]]

    @pytest.mark.parametrize("through", [through_quantize, through_fake])
    def test_what_is_no_number_does_not_pass(self, through: Any) -> None:
        """NaN and infinities, and elements of a scale of 0, infinity or NaN that make them."""
        x, one = row(NAN, INF, -INF, 5), row(1, 1, 1, 1)
        assert bits(through(x, one)).tolist() == bits(row(0, 0, 0, 1)).tolist()
        assert bits(through(row(1, 0, -1, 5), one, 0.0)).tolist() == [0] * 4
        assert bits(through(x, one, NAN)).tolist() == [0] * 4
        assert bits(through_fake(row(1, -2), row(3, 4), INF)).tolist() == bits(row(3, 4)).tolist()

    @pytest.mark.parametrize("through", [through_quantize, through_fake])
    def test_the_sum_is_exact(self, through: Any) -> None:
        """A zero point at the end of int32 brings no huge element back, but the right one."""
        one = row(1, 1, 1)
        x = row(1e30, 2.0**31, 2.0**31 + 1024)
        assert through(x, one, 1.0, INT_MIN).tolist() == [0, 1, 0]
        assert through(x, one, 1.0, INT_MAX).tolist() == [0, 0, 0]
        assert through(-x, one, 1.0, INT_MAX).tolist() == [0, 1, 0]
        assert through(row(-(2.0**24)), row(1), 1.0, 2**24 + 127).tolist() == [1]
        assert through(row(-(2.0**24)), row(1), 1.0, 2**24 + 128).tolist() == [0]

    def test_float8_compares_the_quotient_itself(self) -> None:
        """449 would round to 448, but is clamped."""
        x = row(448, 449, -448, -448.5, NAN, -0.0)
        got = through_quantize(x, np.ones_like(x), output_dtype="float8_e4m3fn")
        assert got.tolist() == [1, 0, 1, 0, 0, 1]
        got = through_quantize(x, np.ones_like(x), output_dtype="float8_e4m3fn", q_min=0.0)
        assert got.tolist() == [1, 0, 0, 0, 0, 1]

    @pytest.mark.parametrize(
        ("quotient", "passes"),
        [("divide", [1, 0]), ("reciprocal", [0, 0]), ("ratio", [1, 1])],
    )
    @pytest.mark.parametrize("through", [through_quantize, through_fake])
    def test_the_mask_divides_as_the_forward_does(
        self, through: Any, quotient: str, passes: list[int]
    ) -> None:
        """Two elements at 127.5 scales: three divisions, three masks."""
        x = row(float.fromhex("0x1.e66e1ap+6"), float.fromhex("0x1.e66e1cp+6"))
        got = through(x, row(1, 1), float.fromhex("0x1.e85672p-1"), quotient=quotient)
        assert np.count_nonzero(got) == sum(passes)
        assert (got != 0).tolist() == [bool(p) for p in passes]

    def test_the_gradient_is_divided_as_the_forward_is(self) -> None:
        """Three quotients of one gradient."""
        s, dy = F32(0.7), F32(0.1)
        zero = row(0)
        by = {q: through_quantize(zero, row(0.1), 0.7, quotient=q)[0] for q in RULES}
        assert by["divide"] == dy / s
        assert by["reciprocal"] == dy * (F32(1) / s)
        assert by["ratio"] == dy * (F32(127) / (s * F32(127)))

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    def test_arithmetic_makes_canonical_nan_and_copies_keep_theirs(self, dtype: str) -> None:
        """A NaN gradient: divided it is canonical, copied it keeps its payload."""
        unsigned = np.dtype(f"u{FLOATS[dtype].dtype.itemsize}")
        odd = np.array([CANONICAL_NAN[dtype] | 5 | 1 << (8 * unsigned.itemsize - 1)], unsigned)
        dy, x = odd.view(FLOATS[dtype].dtype), row(1, dtype=dtype)
        assert bits(through_quantize(x, dy)).tolist() == [CANONICAL_NAN[dtype]]
        assert bits(through_fake(x, dy)).tolist() == odd.tolist()
        wide = "float64" if dtype == "float64" else "float32"
        problem = DequantizeBackwardProblem((1,), output_dtype=dtype)
        got = DEQUANTIZE_BACKWARD.run(problem, grad_output=dy, scale=row(1, dtype=wide))
        assert bits(got["grad_input"]).tolist() == [CANONICAL_NAN[dtype]]

    def test_a_masked_gradient_is_plus_zero_whatever_it_was(self) -> None:
        """-5, NaN and infinity times a mask of 0 would be -0 and NaN."""
        x, dy = row(999, 999, 999, 999), row(-5, NAN, INF, -0.0)
        assert bits(through_quantize(x, dy)).tolist() == [0] * 4
        assert bits(through_fake(x, dy)).tolist() == [0] * 4

    def test_dequantize_multiplies(self) -> None:
        """`fl(dy * s)`, rounded to the gradient's type, infinite where it overflows."""
        problem = DequantizeBackwardProblem((3,), output_dtype="float16")
        given = {"grad_output": row(3, 65504, -1, dtype="float16"), "scale": row(1.0005)}
        got = DEQUANTIZE_BACKWARD.run(problem, **given)["grad_input"]
        products = given["grad_output"].astype(F32) * given["scale"]
        assert got[[0, 2]].tolist() == products[[0, 2]].astype(np.float16).tolist()
        assert got[1] == INF

    def test_float64_is_never_computed_through_float32(self) -> None:
        """The mask and the gradients."""
        x, dy = row(127.5 - 2.0**-46, 127.5, dtype="float64"), row(1 / 3, 1, dtype="float64")
        assert through_quantize(x, dy, 1.0).tolist() == [1 / 3, 0]
        assert through_fake(x, dy, 1.0).tolist() == [1 / 3, 0]
        problem = DequantizeBackwardProblem((2,), output_dtype="float64")
        got = DEQUANTIZE_BACKWARD.run(problem, grad_output=dy, scale=row(0.1, dtype="float64"))
        assert got["grad_input"].tolist() == [1 / 3 * 0.1, 0.1]


RULES = ("divide", "reciprocal", "ratio")


@pytest.mark.parametrize(("mode", "quotient"), CONVENTIONS)
@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
@pytest.mark.parametrize("output_dtype", list(INTEGER_RANGES))
def test_the_mask_is_where_the_forward_does_not_clip(
    output_dtype: str, input_dtype: str, mode: str, quotient: str
) -> None:
    """The library's own forward, with bounds one wider: what still lies in the bounds passed.

    A code of the wider forward is outside of the bounds exactly where the narrower one clips.
    """
    lowest, highest = INTEGER_RANGES[output_dtype]
    wider = QuantizeProblem(
        (40, 200),
        ("token",),
        input_dtype=input_dtype,
        mode=mode,
        quotient="divide" if quotient == "ratio" else quotient,
        q_min=lowest,
        q_max=highest,
        output_dtype=output_dtype,
    )
    low, high = lowest + 1, highest - 1
    problem = QuantizeBackwardProblem(
        wider.shape,
        wider.scope,
        input_dtype=input_dtype,
        mode=mode,
        quotient=wider.quotient,
        q_min=low,
        q_max=high,
        output_dtype=output_dtype,
    )
    given = affine_inputs.make(problem, "near", "ordinary", 1)
    codes = wider.logical(
        wider.outputs["output"],
        QUANTIZE.run(wider, **{n: v for n, v in given.items() if n != "grad_output"})["output"],
    )
    inside = (codes >= low) & (codes <= high)
    given["grad_output"] = np.ones_like(given["grad_output"])
    passed = QUANTIZE_BACKWARD.run(problem, **given)["grad_input"] != 0
    assert np.array_equal(passed, inside)
    assert np.count_nonzero(codes == low) > 0
    assert np.count_nonzero(codes == high) > 0
    faked = FakeQuantizeBackwardProblem(
        wider.shape,
        wider.scope,
        input_dtype=input_dtype,
        mode=mode,
        quotient=wider.quotient,
        q_min=low,
        q_max=high,
    )
    copied = FAKE_QUANTIZE_BACKWARD.run(faked, **given)["grad_input"] != 0
    assert np.array_equal(copied, inside)


@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
def test_both_masks_of_a_ratio_are_the_same(input_dtype: str) -> None:
    """The ratio depends on q_max, so that no wider forward shows its mask."""
    problem = QuantizeBackwardProblem(
        (40, 200), ("token",), input_dtype=input_dtype, quotient="ratio"
    )
    given = affine_inputs.make(problem, "near", "ordinary", 2)
    given["grad_output"] = np.ones_like(given["grad_output"])
    forward = QuantizeProblem(
        problem.shape, problem.scope, input_dtype=input_dtype, quotient="ratio", q_min=-128
    )
    parameters = {name: given[name] for name in ("input", "scale")}
    codes = QUANTIZE.run(forward, **parameters)["output"]
    passed = QUANTIZE_BACKWARD.run(problem, **given)["grad_input"] != 0
    faked = FakeQuantizeBackwardProblem(
        problem.shape, problem.scope, input_dtype=input_dtype, quotient="ratio"
    )
    copied = FAKE_QUANTIZE_BACKWARD.run(faked, **given)["grad_input"] != 0
    assert np.array_equal(passed, copied)
    assert not passed[codes == -128].any()
    assert passed[(codes > -128) & (codes < 127)].all()
    assert 0 < np.count_nonzero(passed[codes == 127]) < np.count_nonzero(codes == 127)


@pytest.mark.parametrize("rank", range(1, 9))
def test_every_rank_with_every_scope(rank: int) -> None:
    """Channels and groups along every axis, blocks of the last two."""
    shape = (2, 3, 1, 4, 2, 3, 2, 5)[-rank:]
    scopes: list[ScopeSpec] = [("tensor",), ("token",)]
    for axis in range(-rank, rank):
        scopes += [("channel", axis), ("group", 2, axis), ("group", 64, axis)]
    if rank > 1:
        scopes += [("block", 1, 2), ("block", 2, 3), ("block", 128, 128)]
    for scope in scopes:
        quantized = QuantizeBackwardProblem(
            shape, scope, mode="asymmetric", zero_point_dtype="int4", output_dtype="int4"
        )
        faked = FakeQuantizeBackwardProblem(shape, scope, mode="asymmetric")
        dequantized = DequantizeBackwardProblem(shape, scope)
        given = affine_inputs.make(quantized, "near", "ordinary", rank)
        QUANTIZE_BACKWARD.check(quantized, **given)
        given = affine_inputs.make(faked, "near", "ordinary", rank)
        FAKE_QUANTIZE_BACKWARD.check(faked, **given)
        given = affine_inputs.make(dequantized, "near", "ordinary", rank)
        DEQUANTIZE_BACKWARD.check(dequantized, **given)


@pytest.mark.parametrize("columns", [1, 2, 3, 15, 16, 17, 31, 63, 64, 65, 255, 1023, 4097])
@pytest.mark.parametrize("dtype", INPUT_DTYPES)
def test_every_tail_length(dtype: str, columns: int) -> None:
    """Kernels for vectors leave tails; the outputs' guards catch one that runs over."""
    quantized = QuantizeBackwardProblem((5, columns), input_dtype=dtype)
    faked = FakeQuantizeBackwardProblem((5, columns), input_dtype=dtype)
    dequantized = DequantizeBackwardProblem((5, columns), output_dtype=dtype)
    pairs: list[tuple[Any, Any]] = [
        (QUANTIZE_BACKWARD, quantized),
        (FAKE_QUANTIZE_BACKWARD, faked),
        (DEQUANTIZE_BACKWARD, dequantized),
    ]
    for tests, problem in pairs:
        for scope in (("token",), ("group", 16, -1), ("channel", -1), ("block", 2, 16)):
            changed = replace(problem, scope=scope)
            tests.check(changed, **affine_inputs.make(changed, "near", "special", columns))


def test_threads_share_one_long_row() -> None:
    """Any number of threads gives the bits of one."""
    problem = QuantizeBackwardProblem((1, 2**19 + 7), ("token",))
    given = affine_inputs.make(problem, "near", "ordinary", 1)
    for threads in (1, 2, 5):
        QUANTIZE_BACKWARD.check(problem, Host(threads), **given)
