"""What the adapters of operators that sum all elements share."""

from __future__ import annotations

from collections.abc import Hashable

import planq
from planq.audit.memory import Device, Host, Layout
from planq.audit.ops.statistics.sums import Problem
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

HOST_DEVICE = Host()


def as_problem(problem: Hashable) -> Problem:
    """A problem of these operators."""
    assert isinstance(problem, Problem)
    return problem


class SumTests:
    """Everything but the cases and the descriptor of an operator."""

    def of(self, problem: Problem) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        raise NotImplementedError

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return self.of(as_problem(problem))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """The compute type's."""
        wide = as_problem(problem).input_dtype == "float64"
        return planq.MathPrecision.F64 if wide else planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Every operation to nearest."""
        assert isinstance(problem, Problem)
        return planq.Rounding.NEAREST_EVEN

    def variety(self, problem: Hashable) -> str:
        """Whether the elements are whole vectors."""
        return as_problem(problem).variety


def measure(
    desc: planq.Descriptor, x: Array, device: Device = HOST_DEVICE, layout: Layout | None = None
) -> Array:
    """The number that is measured of `x`, which lies as told."""
    bench = Bench(device, desc, layouts={"input": layout} if layout else None)
    bench.load({"input": x})
    bench.run()
    return bench.outputs()["output"]
