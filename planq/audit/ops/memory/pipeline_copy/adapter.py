"""From the reference's plain values of `pipeline_copy` to the library; the copy is its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import planq
from planq.audit.ops.memory.elements import Case, ElementTests, Problem, elements
from planq.audit.reference.formats import Array


@cache
def descriptor(problem: Problem) -> planq.Descriptor:
    """The problem as a descriptor."""
    return planq.PipelineCopyDescriptor(shape=problem.shape, input_dtype=problem.dtype)


class CopyTests(ElementTests):
    """Nothing is computed."""

    def rounding(self, problem: Any) -> planq.Rounding:
        """Nothing is rounded."""
        assert isinstance(problem, Problem)
        return planq.Rounding.NONE


def math(problem: Any) -> planq.MathPrecision:
    """Nothing is computed."""
    assert isinstance(problem, Problem)
    return planq.MathPrecision.NONE


def make(case: Case) -> dict[str, Array]:
    """Values of every kind, NaN among them."""
    p = case.problem
    return {"input": elements("mixed", p.shape, p.dtype, case.seed)}


def copy(problem: Problem, given: dict[str, Array]) -> Array:
    """The same bytes."""
    assert given["input"].shape == problem.shape
    return given["input"].copy()


TESTS = CopyTests(descriptor, math, make, copy)
