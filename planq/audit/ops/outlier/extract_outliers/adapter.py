"""From the reference's plain values of `extract_outliers` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import planq
from planq.audit.ops.outlier.extract_outliers import cases
from planq.audit.ops.outlier.extract_outliers.reference import Problem

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.ExtractOutliersDescriptor:
    """The problem as a descriptor."""
    return planq.ExtractOutliersDescriptor(
        shape=problem.shape,
        dtype=problem.dtype,
        layout=planq.Layout(problem.layout),
        capacity=problem.capacity,
    )


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class ExtractOutliersTests:
    """`extract_outliers` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return cases.cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(as_problem(problem))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """Nothing is computed."""
        return planq.MathPrecision.NONE

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Nothing is rounded."""
        return planq.Rounding.NONE

    def variety(self, problem: Hashable) -> str:
        """What lies side by side: rows, columns, or panels."""
        layout = as_problem(problem).layout
        return layout if layout in ("row", "col") else "panels"


TESTS = ExtractOutliersTests()
