"""From the reference's plain values of `row_column_absmax` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.outlier.row_column_absmax import cases
from planq.audit.ops.outlier.row_column_absmax.reference import Problem
from planq.audit.reference.formats import VECTOR, Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.RowColumnAbsmaxDescriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.RowColumnAbsmaxDescriptor(**asdict(problem))


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class RowColumnAbsmaxTests:
    """`row_column_absmax` against its NumPy reference."""

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
        """Whether rows are whole vectors."""
        fields = as_problem(problem)
        whole = fields.shape[-1] % VECTOR[fields.input_dtype] == 0
        return "whole vectors" if whole else "edges"


TESTS = RowColumnAbsmaxTests()


def measure(problem: Problem, x: Array, device: Device | None = None) -> dict[str, Array]:
    """The outputs of a run on `x`."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load({"input": x})
    bench.run()
    return bench.outputs()
