"""From the reference's plain values of `arange` to the library."""

from __future__ import annotations

from functools import cache
from typing import Any

import planq
from planq.audit.ops.memory.arange.reference import arange
from planq.audit.ops.memory.elements import Case, ElementTests, Problem, number, poison
from planq.audit.reference.formats import Array

INTEGERS = (0, -5, 2**33 + 1, 77)
STEPS = (1, -3, 2**31 - 1, 0, 11)
REALS = (0.0, -1e3, 1 / 3, 2.0**-30)
REAL_STEPS = (1.0, 1 / 7, -0.1, 1e5, 2.0**-40)


@cache
def descriptor(problem: Problem) -> planq.Descriptor:
    """The problem as a descriptor."""
    return planq.ArangeDescriptor(shape=problem.shape, output_dtype=problem.dtype)


def math(problem: Any) -> planq.MathPrecision:
    """Two operations in float64."""
    return planq.MathPrecision.NONE if problem.is_integer else planq.MathPrecision.F64


def make(case: Case) -> dict[str, Array]:
    """Both numbers, and what is written over."""
    start = number(case.problem, INTEGERS, REALS, case.seed)
    step = number(case.problem, STEPS, REAL_STEPS, case.seed)
    return {"output": poison(case.problem), "start": start, "step": step}


TESTS = ElementTests(descriptor, math, make, arange, by_rows=False)
