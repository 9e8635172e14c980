"""From the reference's plain values of `histogram_scatter_add` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict
from functools import cache

import planq
from planq.audit.ops.statistics.histogram_scatter_add.reference import (
    Case,
    Problem,
    empty_cases,
    sampled_cases,
)


@cache
def descriptor(problem: Hashable) -> planq.Descriptor:
    """The problem as a descriptor: their fields have the same names."""
    assert isinstance(problem, Problem)
    return planq.HistogramScatterAddDescriptor(**asdict(problem))


class HistogramScatterAddTests:
    """`histogram_scatter_add` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with sources."""
        return sampled_cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without sources, or without bins."""
        return empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(problem)

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """Sums of float32."""
        assert isinstance(problem, Problem)
        return planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Every sum to nearest."""
        assert isinstance(problem, Problem)
        return planq.Rounding.NEAREST_EVEN

    def variety(self, problem: Hashable) -> str:
        """There is one."""
        assert isinstance(problem, Problem)
        return "bins"


TESTS = HistogramScatterAddTests()
