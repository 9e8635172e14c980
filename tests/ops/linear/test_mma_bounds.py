"""The bound of products on other GPUs' tensor cores, held by every kind that it was derived for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import planq
from planq.audit.operators import OPERATORS, Case, inputs_of
from planq.audit.ops.linear import float_sums
from planq.audit.ops.linear.float_sums import TensorCore
from planq.audit.ops.linear.linear_4bit.reference import FourBitProblem
from planq.audit.ops.linear.linear_fp8.reference import BLOCKS, Fp8Problem
from planq.audit.ops.linear.matmul.reference import FloatMatmulProblem
from planq.audit.promises import within_bound
from planq.audit.reference.formats import Array, Arrays

# Products that are added at once, and the fraction bits of addends and results: the least that the
# bound assumes, then what was published of an A100, and the model of an H200.
CORES = {
    "least": TensorCore(4, 23, 23),
    "a100": TensorCore(8, 24, 23),
    "h200": TensorCore(16, 25, 23),
}
LARGEST = 1_000_000  # multiplications
# Of the bounds, by the order of sums.
CONSTANTS = {"tensor_sm90": 200.0, "groups_sm90": 208.0}


UNCODED = ("matmul", "linear_fp8")  # whose weights are numbers, and meet no scales of groups


def bound_of(problem: Any) -> planq.ErrorBound:
    """As the documentation has it."""
    return planq.ErrorBound(
        constant=CONSTANTS[problem.accumulation],
        per_term=1 / 256,
        terms=problem.terms,
        epsilon=2.0**-23,
        least_factor=2.0**-63 if problem.input_dtype == "bfloat16" else 2.0**-14,
        output_rounding=True,
    )


def multiplied(given: Arrays) -> Arrays:
    """The operands as a kernel multiplies them: 8-bit floating codes as numbers of float16."""
    return {
        name: value.astype(np.float32).astype(np.float16)
        if value.dtype.name.startswith("float8")
        else value
        for name, value in given.items()
    }


def cases(operator: str) -> Iterator[Case]:
    """Those in the orders of tensor cores that do not take long."""
    for case in OPERATORS[operator].cases():
        problem: Any = case.problem
        if problem.accumulation in CONSTANTS and case.size <= LARGEST:
            yield case


def within(case: Any, given: Arrays, output: Array) -> None:
    """Fails where an output is further from the exact sum than the bound says."""
    bound = bound_of(case.problem)
    judge = within_bound(bound, case.sums(given, bound.least_factor))
    judge(f"{case.id}: output", output, output)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("operator", ["matmul", "linear_4bit", "linear_mixed", "linear_fp8"])
def test_every_assumed_tensor_core_is_within_the_bound(
    operator: str, core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hostile numbers of all kinds, addends and scales."""
    monkeypatch.setattr(float_sums, "tensor_core", lambda _: CORES[core])
    tried: Counter[str] = Counter()
    for case in cases(operator):
        problem: Any = case.problem
        given = inputs_of(case)
        as_multiplied = multiplied(given) if operator in UNCODED else given
        within(case, given, case.expected(as_multiplied)["output"])
        tried[problem.accumulation] += 1
    assert min(tried.values()) > 20
    assert set(tried) == ({"tensor_sm90"} if operator in UNCODED else set(CONSTANTS))


def cancelling(number: int) -> tuple[Case, Arrays]:
    """Sums of numbers that nearly cancel: what is truncated is large beside them."""
    case = OPERATORS["matmul"].cases()[0]
    problem = FloatMatmulProblem((8, 1000), (8, 1000), "float16")
    given = problem.inputs("any", number)
    given["weight"][:, 1::2] = given["weight"][:, ::2]
    given["input"][:, 1::2] = -given["input"][:, ::2] * np.float16(1 + 2.0**-9)
    changed: Any = case
    return replace(changed, problem=problem), given


def opposing(size: int, number: int) -> tuple[Case, Arrays]:
    """The same under scales of groups, each much larger than the one before, or smaller."""
    problem = FourBitProblem(
        (4, 2048),
        (4, 2048),
        "float16",
        code_dtype="int4",
        weight_scope=("group", size, 1),
        accumulation="groups_sm90",
    )
    given = problem.inputs("any", number)
    steps = np.arange(2048 // size, dtype=np.float32) % 23 - 11
    given["weight_scale"] = np.ldexp(given["weight_scale"], steps.astype(np.int32))
    given["input"][:, 1::2] = -given["input"][:, ::2] * np.float16(1 + 2.0**-9)
    changed: Any = OPERATORS["linear_4bit"].cases()[0]
    return replace(changed, problem=problem), given


@pytest.mark.parametrize("core", CORES)
def test_runs_that_cancel(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In themselves, and each beside the other under scales that differ by thousands."""
    monkeypatch.setattr(float_sums, "tensor_core", lambda _: CORES[core])
    for number, size in enumerate((16, 32, 64, 128, 512)):
        case, given = opposing(size, number)
        within(case, given, case.expected(given)["output"])


@pytest.mark.parametrize("core", CORES)
def test_sums_that_cancel(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their errors are no multiple of the sum, but of its terms."""
    monkeypatch.setattr(float_sums, "tensor_core", lambda _: CORES[core])
    for number in range(4):
        case, given = cancelling(number)
        within(case, given, case.expected(given)["output"])


def test_a_tensor_core_with_fewer_bits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that keeps as many of a result as float16 has."""
    monkeypatch.setattr(float_sums, "tensor_core", lambda _: TensorCore(4, 11, 10))
    for case, given in (cancelling(0), opposing(128, 0)):
        output = case.expected(given)["output"]
        with pytest.raises(AssertionError, match="beyond the bound"):
            within(case, given, output)


def test_what_is_not_finite_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has to be; a finite number in its place is one."""
    case, given = cancelling(1)
    given["input"][0, 0] = np.inf
    output = case.expected(given)["output"]
    assert not np.isfinite(output[0]).any()
    within(case, given, output)
    output[0, 0] = 1
    with pytest.raises(AssertionError, match="beyond the bound"):
        within(case, given, output)


def test_nothing_is_promised_of_infinity_under_scales_whose_product_is_0() -> None:
    """The contract's own sum is a NaN there, and the exact one infinite."""
    problem = Fp8Problem(
        (1, 2), (1, 2), input_dtype="float8_e5m2", input_scope=BLOCKS[0], weight_scope=BLOCKS[1]
    )
    given: Arrays = {
        "input": np.array([[np.inf, 1]]).astype(ml_dtypes.float8_e5m2),
        "weight": np.ones((1, 2)).astype(ml_dtypes.float8_e4m3fn),
        "input_scale": np.full((1, 1), 1e-38, np.float32),
        "weight_scale": np.full((1, 1), 1e-38, np.float32),
    }
    output = problem.expected(given)["output"]
    assert np.isnan(output).all()
    sums = problem.exact_sums(given, 2.0**-14)
    assert np.isposinf(sums["output"].exact).all()
    within_bound(bound_of(problem), sums)("output", output, output)
