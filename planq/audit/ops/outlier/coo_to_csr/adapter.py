"""From the reference's plain values of `coo_to_csr` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.outlier.coo_to_csr import cases
from planq.audit.ops.outlier.coo_to_csr.reference import Problem
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.CooToCsrDescriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.CooToCsrDescriptor(**asdict(problem))


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class CooToCsrTests:
    """`coo_to_csr` against its NumPy reference."""

    without_dims = "*"  # pointers into a list are one more than the rows

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
        """There is one."""
        return "list"


TESTS = CooToCsrTests()


def to_csr(
    problem: Problem, given: dict[str, Array], device: Device | None = None
) -> dict[str, Array]:
    """The outputs of a run on these operands."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()
