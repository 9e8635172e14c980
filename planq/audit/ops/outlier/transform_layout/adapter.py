"""From the reference's plain values of `transform_layout` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.outlier.transform_layout import cases
from planq.audit.ops.outlier.transform_layout.reference import Problem
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.TransformLayoutDescriptor:
    """The problem as a descriptor."""
    return planq.TransformLayoutDescriptor(
        shape=problem.shape,
        dtype=problem.dtype,
        from_layout=planq.Layout(problem.from_layout),
        to_layout=planq.Layout(problem.to_layout),
        transpose=problem.transpose,
    )


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class TransformLayoutTests:
    """`transform_layout` against its NumPy reference."""

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
        """Whether the two sides agree about what a row is, and whether rows are whole words."""
        fields = as_problem(problem)
        flips = [fields.from_layout == "col", fields.to_layout == "col", fields.transpose]
        whole = all(extent % 4 == 0 for extent in fields.matrix)
        return f"{'turned' if sum(flips) % 2 else 'straight'}, {'words' if whole else 'edges'}"


TESTS = TransformLayoutTests()


def transform(problem: Problem, values: Array, device: Device | None = None) -> Array:
    """The output of a run on `values`."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load({"input": values})
    bench.run()
    return bench.outputs()["output"]
