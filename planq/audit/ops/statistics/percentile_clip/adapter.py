"""From the reference's plain values of `percentile_clip` to the library."""

from __future__ import annotations

from functools import cache

import planq
from planq.audit.ops.statistics.percentile_clip.reference import Case, empty_cases, sampled_cases
from planq.audit.ops.statistics.sums import Problem
from planq.audit.ops.statistics.sums_tests import SumTests


@cache
def descriptor(problem: Problem) -> planq.Descriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.PercentileClipDescriptor(**problem.fields)


class PercentileClipTests(SumTests):
    """`percentile_clip` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases()

    def of(self, problem: Problem) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(problem)


TESTS = PercentileClipTests()
