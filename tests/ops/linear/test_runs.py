"""GROUPS_SM90: sums of runs, which meet the scale that their terms share."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.from_reference import ReferenceTests
from planq.audit.memory import Host
from planq.audit.ops.codebook.reference import table
from planq.audit.ops.linear import float_sums
from planq.audit.ops.linear.float_layers import run
from planq.audit.ops.linear.linear_4bit.adapter import TESTS as FOUR_BIT
from planq.audit.ops.linear.linear_4bit.reference import FourBitProblem
from planq.audit.ops.linear.linear_mixed.adapter import TESTS as MIXED
from planq.audit.ops.linear.linear_mixed.reference import MixedProblem
from planq.audit.reference.formats import (
    FLOATS,
    Array,
    Arrays,
    bits,
    canonical,
    narrowed,
    unpack_nibbles,
)

GROUPS = "groups_sm90"
DTYPES = ("bfloat16", "float16")
# Beside the ends of steps, slices and spans, and where spans grow.
TERMS = (1, 15, 16, 17, 31, 33, 127, 128, 129, 255, 1000, 1023, 1024, 1025, 1030, 2048, 4097)


def adapter_of(problem: Any) -> ReferenceTests:
    """Those of the problem's operator."""
    return MIXED if isinstance(problem, MixedProblem) else FOUR_BIT


def output(problem: Any, given: Arrays, *device: Host) -> Array:
    """What the host computes."""
    return adapter_of(problem).run(problem, *device, **given)["output"]


def groups(k: int, size: int = 32, **fields: Any) -> FourBitProblem:
    """Integers of 4 bits in groups."""
    usual: dict[str, Any] = {"code_dtype": "int4", "weight_scope": ("group", size, 1)}
    shape = {"input_shape": (3, k), "weight_shape": (5, k)}
    return FourBitProblem(**{**usual, **shape, "accumulation": GROUPS, **fields})


def blocks(k: int, size: int = 64, **fields: Any) -> FourBitProblem:
    """Codes of a codebook in blocks."""
    shape = {"input_shape": (3, k), "weight_shape": (5, k), "block_size": size}
    return FourBitProblem(**{**shape, "accumulation": GROUPS, **fields})


def channels(k: int, **fields: Any) -> MixedProblem:
    """Integers of 8 bits with a scale a row."""
    shape = {"input_shape": (3, k), "weight_shape": (5, k)}
    return MixedProblem(**{**shape, "accumulation": GROUPS, **fields})


# --- The formula, in fractions -------------------------------------------------------------------


def rounded(value: Fraction) -> np.float32:
    """To float32, once."""
    near = float(value)  # rounded to 53 bits; to odd, the second rounding cannot tell
    if Fraction(near) != value and np.float64(near).view(np.int64) % 2 == 0:
        near = float(np.nextafter(near, np.inf if value > Fraction(near) else -np.inf))
    return np.float32(near)


def formula(x: Array, v: Array, scale: Array, size: int) -> np.float32:
    """One output of finite numbers, without an array's arithmetic."""
    core, lowest = float_sums.tensor_core(x.dtype.name), FLOATS[x.dtype.name].lowest
    k = len(x)
    length = 128 * -(-k // 1024)
    t = np.float32(0)
    for span in range(8):
        acc = Fraction(0)
        first, last = span * length, min((span + 1) * length, k)
        while first < last:
            end = min(first + min(size, 128), last)
            p = 0.0
            for step in range(first, end, 16):
                part = slice(step, min(step + 16, end))
                p = float_sums.exact_step(
                    core, p, x[part].tolist(), v[part].tolist(), (lowest, lowest)
                )
            acc = Fraction(
                float(rounded(Fraction(p) * Fraction(float(scale[first // size])) + acc))
            )
            first = end
        t = rounded(Fraction(float(t)) + acc)
    return t


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 17, 129, 1000, 1030])
def test_outputs_are_what_fractions_give(k: int, dtype: str) -> None:
    """Of groups that are shorter than a run, as long, and longer."""
    rng = np.random.default_rng(k)
    for size in (16, 64, 128, 384):
        problem = groups(k, size, input_dtype=dtype, input_shape=(1, k), weight_shape=(2, k))
        given = problem.inputs("any", k + size)
        given["input"] = rng.standard_normal((1, k)).astype(FLOATS[dtype].dtype)
        nibbles = unpack_nibbles(given["weight"], k, "high_first").astype(np.int64)
        v = np.where(nibbles > 7, nibbles - 16, nibbles)
        got = output(problem, given)
        for n in range(2):
            x, scale = given["input"][0].astype(FLOATS[dtype].dtype), given["weight_scale"][n]
            assert got[0, n] == formula(x, v[n].astype(np.float64), scale, size)


# --- Every k, hostile numbers --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["any", "ends", "sparse", "lowest"])
@pytest.mark.parametrize("k", TERMS)
def test_every_number_of_terms(k: int, kind: str) -> None:
    """NaNs, infinities, subnormal numbers and scales; zero points far from any code."""
    for number, (dtype, size) in enumerate(itertools.product(DTYPES, (16, 128, 512))):
        mode = ("symmetric", "asymmetric")[number % 2]
        fields: dict[str, Any] = {"input_dtype": dtype, "weight_mode": mode}
        scope = ("group", size, 1)
        every: list[Any] = [
            groups(k, size, **fields),
            channels(k, input_dtype=dtype, code_dtype=("int8", "int4")[number % 2]),
            channels(k, weight_scope=scope, **fields),
        ]
        if k % 128 == 0:
            every.append(blocks(k, (32, 128, k)[number % 3], input_dtype=dtype))
        for problem in every:
            adapter_of(problem).check(problem, **problem.inputs(kind, k + number))


@pytest.mark.parametrize("position", [0, 100, 127, 128, 299])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3.0e38, 1e-40, -0.0])
def test_one_odd_number_among_ordinary_ones(number: float, position: int) -> None:
    """It spoils its row, or its run, and nothing else."""
    for problem in (groups(300), channels(300), blocks(320)):
        plain = problem.inputs("any", 3)
        plain["input"] = np.where(np.isfinite(plain["input"]), plain["input"], 1)
        given = {**plain, "input": plain["input"].astype(FLOATS["bfloat16"].dtype)}
        given["input"][1, position] = number
        got, want = output(problem, given), problem.expected(given)["output"]
        assert (bits(canonical(got, "float32")) == bits(canonical(want, "float32"))).all()
        assert got[::2].tobytes() == output(problem, plain)[::2].tobytes()


@pytest.mark.parametrize("scale", [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149, 3e38, -2.5])
def test_one_odd_scale_among_ordinary_ones(scale: float) -> None:
    """It meets the sum of its run: infinity times a sum of 0 is a NaN, and of none is nothing."""
    for k, size in ((300, 64), (130, 128), (1100, 16)):
        problem = groups(k, size)
        given = problem.inputs("any", 5)
        given["weight_scale"][2, -1] = scale
        adapter_of(problem).check(problem, **given)
        given["input"][0, -1 - (k - 1) % size :] = 0
        adapter_of(problem).check(problem, **given)


def test_sums_overflow_before_they_meet_small_scales() -> None:
    """As the order says: a scale does not reach into its run."""
    problem = channels(256, weight_scope=("group", 128, 1))
    given = problem.inputs("any", 1)
    given["input"] = np.full((3, 256), 2.0**124, FLOATS["bfloat16"].dtype)
    given["weight"][:] = 127
    given["weight_scale"][:] = 2.0**-126
    assert np.isposinf(output(problem, given)).all()
    given["weight"][:, 1::2] = -127
    assert (output(problem, given) == 0).all()


# --- Zero points, values -------------------------------------------------------------------------

FAR = (-(2**31), -(2**24) - 1, -1000, -129, -128, -127, 0, 126, 127, 128, 255, 256, 2**31 - 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_points_count_up_to_the_range_of_codes(dtype: str) -> None:
    """Of 4 bits to [-128, 127], of 8 bits to [-128, 255]; far ones are those at the ends."""
    for make, code_dtype, most in (
        (groups, "int4", 127),
        (groups, "uint4", 127),
        (channels, "int8", 255),
    ):
        problem: Any = make(
            64,
            input_dtype=dtype,
            code_dtype=code_dtype,
            weight_shape=(len(FAR), 64),
            weight_scope=("group", 32, 1),
            weight_mode="asymmetric",
        )
        given = problem.inputs("any", 2)
        given["weight_zero_point"][:] = np.array(FAR)[:, None]
        near = np.clip(given["weight_zero_point"], -128, most)
        got = output(problem, given)
        assert got.tobytes() == problem.expected(given)["output"].tobytes()
        assert got.tobytes() == output(problem, {**given, "weight_zero_point": near}).tobytes()


def test_codes_less_zero_points_are_exact_where_zero_points_are_codes() -> None:
    """In both types: one term shows each difference."""
    for code_dtype, low, high in (("int4", -8, 7), ("uint4", 0, 15), ("int8", -128, 127)):
        codes = np.arange(low, high + 1)
        shifts = np.linspace(low, high, 16).astype(np.int32)
        for dtype, zero in itertools.product(DTYPES, shifts):
            make: Any = channels if code_dtype == "int8" else groups
            problem = make(
                1,
                input_dtype=dtype,
                code_dtype=code_dtype,
                input_shape=(1, 1),
                weight_shape=(len(codes), 1),
                weight_scope=("group", 16, 1),
                weight_mode="asymmetric",
            )
            given = problem.inputs("any", 0)
            given["input"][:] = 1
            given["weight"] = problem.plain(
                codes.astype(np.uint8)[:, None] & (255 >> 4 * (make is groups))
            )
            given["weight_scale"][:] = 1
            given["weight_zero_point"][:] = zero
            assert (output(problem, given)[0] == codes - zero).all()


@pytest.mark.parametrize("codebook", ["nf4", "fp4", "af4", "int4", "given"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_codebooks_are_rounded_before_they_are_scaled(codebook: str, dtype: str) -> None:
    """One term of each, and an absmax that no rounding follows."""
    problem = blocks(
        64,
        input_dtype=dtype,
        codebook=codebook,
        input_shape=(1, 64),
        weight_shape=(16, 64),
    )
    given = problem.inputs("any", 4)
    given["input"][:] = 0
    given["input"][0, 5] = 1
    given["weight"] = np.repeat(np.arange(16) * 17, 32).astype(np.uint8)
    given["absmax"] = np.linspace(0.1, 2, 16).astype(np.float32)
    values = given["codebook"] if codebook == "given" else table(codebook)
    rounded_values = narrowed(values, dtype).astype(np.float32)
    assert (output(problem, given)[0] == rounded_values * given["absmax"] + 0.0).all()


# --- What no bit depends on ----------------------------------------------------------------------

EVERY = (
    groups(300, 64, weight_mode="asymmetric", bias_dtype="float32", residual_dtype="float16"),
    groups(1030, 16, code_dtype="uint4"),
    blocks(1152, 128, nested_block_size=3),
    blocks(384, 384, output_dtype="bfloat16"),
    channels(1030, code_dtype="int4"),
    channels(200, output_dtype="float16", bias_dtype="bfloat16"),
)


@pytest.mark.parametrize("number", range(len(EVERY)))
def test_rows_threads_and_batches_change_no_bit(number: int) -> None:
    """More rows than a block has, one alone, and as a batch of matrices."""
    problem = EVERY[number].with_rows(130)
    problem = replace(problem, weight_shape=(70, problem.terms))
    given = problem.inputs("any", number)
    whole = output(problem, given)
    assert output(problem, given, Host(7)).tobytes() == whole.tobytes()
    for row in (0, 63, 64, 129):
        alone = problem.cut(given, slice(row, row + 1))
        assert output(problem.with_rows(1), alone).tobytes() == whole[row].tobytes()
    batch = replace(problem, input_shape=(2, 65, problem.terms))
    stacked = {
        name: value.reshape(2, 65, -1) if name in ("input", "residual") else value
        for name, value in given.items()
    }
    assert output(batch, stacked).tobytes() == whole.tobytes()


@pytest.mark.parametrize("number", range(len(EVERY)))
def test_one_plan_for_every_number_of_rows(number: int) -> None:
    """With the bits of a plan for each; none is a row, too."""
    problem = EVERY[number].with_rows(70)
    tests = adapter_of(problem)
    rows = planq.Dim("m", max=70)
    desc: Any = replace(
        tests.descriptor(problem),
        input_shape=(rows, problem.terms),
    )
    plan = planq.Plan.select(planq.HOST, desc)
    args = planq.LinearMixedArgs if isinstance(problem, MixedProblem) else planq.Linear4BitArgs
    for m in (0, 1, 7, 64, 65, 70):
        few = problem.with_rows(m)
        given = few.inputs("any", m)
        want = few.expected(given)["output"]
        made = np.empty_like(want)
        plan.run(planq.HOST, None, args(output=made, **given))
        assert made.tobytes() == want.tobytes()


def test_layouts_and_orders_of_nibbles_change_no_bit() -> None:
    """By the references of the operators that lay codes out."""
    whole = groups(192, 32, weight_shape=(64, 192), weight_mode="asymmetric")
    given = whole.inputs("any", 6)
    codes = whole.codes(given["weight"])
    want = output(whole, given)
    for layout, order in (
        ("row_major", "low_first"),
        ("packed", "high_first"),
        ("reordered", "high_first"),
    ):
        other = replace(whole, weight_layout=layout, nibble_order=order)
        weight = other.laid_out(other.plain(codes))
        assert output(other, {**given, "weight": weight}).tobytes() == want.tobytes()
    eight = channels(192, weight_shape=(64, 192))
    given = eight.inputs("any", 7)
    other = replace(eight, weight_layout="reordered")
    tiles = {**given, "weight": other.laid_out(given["weight"])}
    assert output(other, tiles).tobytes() == output(eight, given).tobytes()


# --- Beside the other orders ---------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 100, 128, 1000, 1024])
def test_up_to_1024_terms_under_scales_of_1_are_slices(k: int) -> None:
    """Then spans are slices, and each is one run: the bits of TENSOR_SM90, of the codes alone."""
    problem = channels(k)
    given = problem.inputs("any", 8)
    given["weight_scale"][:] = 1
    other = replace(problem, accumulation="tensor_sm90")
    assert output(problem, given).tobytes() == output(other, given).tobytes()


def test_a_group_of_all_terms_is_a_channel() -> None:
    """Whatever the group's size beyond k."""
    one = channels(1030, code_dtype="int4", nibble_order="high_first")
    given = one.inputs("any", 9)
    for size in (1152, 2048, 2**40):
        other = groups(1030, size)
        scales = {**given, "weight_scale": given["weight_scale"][:, None]}
        assert output(other, scales).tobytes() == output(one, given).tobytes()


def test_tensor_sm90_keeps_its_meaning() -> None:
    """One scale after the whole sum, for channels; more terms than one span show it."""
    problem = channels(2000, accumulation="tensor_sm90")
    given = problem.inputs("any", 10)
    sums = run(
        "matmul",
        {"input": given["input"], "weight": given["weight"].astype(FLOATS["bfloat16"].dtype)},
        input_shape=(3, 2000),
        weight_shape=(5, 2000),
        input_dtype="bfloat16",
        output_dtype="float32",
    )
    want = sums * given["weight_scale"]
    assert output(problem, given).tobytes() == want.tobytes()
    assert output(replace(problem, accumulation=GROUPS), given).tobytes() != want.tobytes()
