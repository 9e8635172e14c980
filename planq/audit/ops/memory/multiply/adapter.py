"""From the reference's plain values of `multiply` to the library."""

from __future__ import annotations

from functools import cache
from typing import Any

import planq
from planq.audit.ops.memory.elements import Case, ElementTests, Problem, elements
from planq.audit.ops.memory.multiply.reference import multiply
from planq.audit.reference.formats import Array


@cache
def descriptor(problem: Problem) -> planq.Descriptor:
    """The problem as a descriptor."""
    return planq.MultiplyDescriptor(shape=problem.shape, input_dtype=problem.dtype)


def math(problem: Any) -> planq.MathPrecision:
    """One operation in the compute type."""
    if problem.is_integer:
        return planq.MathPrecision.NONE
    wide = problem.dtype == "float64"
    return planq.MathPrecision.F64 if wide else planq.MathPrecision.F32


def make(case: Case) -> dict[str, Array]:
    """Values of every kind, times such."""
    p = case.problem
    x = elements("mixed", p.shape, p.dtype, case.seed)
    return {"input": x, "other": elements("mixed", p.shape, p.dtype, case.seed + 1000)}


TESTS = ElementTests(descriptor, math, make, multiply)
