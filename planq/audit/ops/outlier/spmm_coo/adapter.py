"""From the reference's plain values of `spmm_coo` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.outlier.spmm_coo import cases
from planq.audit.ops.outlier.spmm_coo.reference import Problem
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.SpmmCooDescriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.SpmmCooDescriptor(**asdict(problem))


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class SpmmCooTests:
    """`spmm_coo` against its NumPy reference."""

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
        """What everything is computed in."""
        return planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """To the output's type."""
        return planq.Rounding.NEAREST_EVEN

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` elements in the output, and fewer in the weight."""
        columns, k = count // 64, 8
        weight = [k, columns] if fields["transpose_weight"] else [columns, k]
        return {"shape": [64, k], "weight_shape": weight}

    def variety(self, problem: Hashable) -> str:
        """Which axis of the weight is that of the output, and whether that is whole vectors."""
        fields = as_problem(problem)
        along = "columns" if fields.transpose_weight else "rows"
        return f"{along}, {'whole vectors' if fields.columns % 8 == 0 else 'edges'}"


TESTS = SpmmCooTests()


def multiply(
    problem: Problem, given: dict[str, Array], device: Device | None = None
) -> dict[str, Array]:
    """The outputs of a run on these operands."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()
