"""From the reference's plain values of `fill` to the library."""

from __future__ import annotations

from functools import cache
from typing import Any

import planq
from planq.audit.ops.memory.elements import Case, ElementTests, Problem, number, poison
from planq.audit.ops.memory.fill.reference import fill
from planq.audit.reference.formats import Array

INTEGERS = (0, -1, 300, -(2**40) + 77)
REALS = (1 / 3, -0.0, 1e6, float("nan"), -1e-8, float("-inf"), 2**-130 * 1.3)


@cache
def descriptor(problem: Problem) -> planq.Descriptor:
    """The problem as a descriptor."""
    return planq.FillDescriptor(shape=problem.shape, output_dtype=problem.dtype)


def math(problem: Any) -> planq.MathPrecision:
    """Nothing is computed."""
    assert isinstance(problem, Problem)
    return planq.MathPrecision.NONE


def make(case: Case) -> dict[str, Array]:
    """The number, and what is written over."""
    value = number(case.problem, INTEGERS, REALS, case.seed)
    return {"output": poison(case.problem), "value": value}


TESTS = ElementTests(descriptor, math, make, fill)
