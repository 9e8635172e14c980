"""From the reference's plain values of `moe_permute` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.routing.moe_permute import cases
from planq.audit.ops.routing.moe_permute.reference import Problem
from planq.audit.reference.formats import STORAGE, Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.MoePermuteDescriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.MoePermuteDescriptor(**asdict(problem))


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class MoePermuteTests:
    """`moe_permute` against its NumPy reference."""

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

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` elements in the input."""
        return {"input_shape": [64, count // 64]}

    def variety(self, problem: Hashable) -> str:
        """Whether a row is whole vectors, and whether a scale goes with it."""
        fields = as_problem(problem)
        size = fields.input_shape[1] * STORAGE[fields.input_dtype].itemsize
        scales = ", scales" if fields.scale_dtype else ""
        return f"{'whole vectors' if size % 16 == 0 else 'edges'}{scales}"


TESTS = MoePermuteTests()


def permute(
    problem: Problem, given: dict[str, Array], device: Device | None = None
) -> dict[str, Array]:
    """The outputs of a run on these operands."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()
