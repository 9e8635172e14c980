"""From the reference's plain values of `square_sum` to the library."""

from __future__ import annotations

from functools import cache

import planq
from planq.audit.ops.statistics.square_sum.cases import empty_cases, sampled_cases
from planq.audit.ops.statistics.sums import Case, Problem
from planq.audit.ops.statistics.sums_tests import SumTests


@cache
def descriptor(problem: Problem) -> planq.Descriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.SquareSumDescriptor(**problem.fields)


class SquareSumTests(SumTests):
    """`square_sum` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases()

    def of(self, problem: Problem) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(problem)


TESTS = SquareSumTests()
