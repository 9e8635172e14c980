"""From the reference's plain values of `norm` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache

import planq
from planq.audit.ops.statistics.norm.cases import empty_cases, sampled_cases
from planq.audit.ops.statistics.sums import Case, Problem
from planq.audit.ops.statistics.sums_tests import SumTests, as_problem


@cache
def descriptor(problem: Problem) -> planq.Descriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.NormDescriptor(**problem.fields)


class NormTests(SumTests):
    """`norm` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases()

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """A maximum multiplies nothing."""
        largest = as_problem(problem).p == "infinity"
        return planq.MathPrecision.NONE if largest else super().math(problem)

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Nor does it round."""
        largest = as_problem(problem).p == "infinity"
        return planq.Rounding.NONE if largest else super().rounding(problem)

    def of(self, problem: Problem) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(problem)


TESTS = NormTests()
