"""From the reference's plain values of `reorder_mixed_dtype_weight` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.packing.reorder_mixed_dtype_weight import cases
from planq.audit.ops.packing.reorder_mixed_dtype_weight.reference import Problem
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.ReorderMixedDtypeWeightDescriptor:
    """The problem as a descriptor."""
    return planq.ReorderMixedDtypeWeightDescriptor(
        shape=problem.shape,
        input_dtype=problem.dtype,
        transpose=problem.transpose,
        inverse=problem.inverse,
    )


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class ReorderMixedDtypeWeightTests:
    """`reorder_mixed_dtype_weight` against its NumPy reference."""

    without_dims = "*"  # tiles lie on both axes of a matrix

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
        """Which way, and whether through a transposition."""
        fields = as_problem(problem)
        return f"{'back' if fields.inverse else 'there'}{', transposed' * fields.transpose}"


TESTS = ReorderMixedDtypeWeightTests()


def reorder(problem: Problem, values: Array, device: Device | None = None) -> Array:
    """The output of a run on `values`."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load({"input": values})
    bench.run()
    return bench.outputs()["output"]
