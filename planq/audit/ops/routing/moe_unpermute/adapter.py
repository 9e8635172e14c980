"""From the reference's plain values of `moe_unpermute` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.routing.moe_unpermute import cases
from planq.audit.ops.routing.moe_unpermute.reference import Problem
from planq.audit.reference.formats import VECTOR, Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.MoeUnpermuteDescriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.MoeUnpermuteDescriptor(**asdict(problem))


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class MoeUnpermuteTests:
    """`moe_unpermute` against its NumPy reference."""

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
        """The problem with `count` elements in the input."""
        return {"input_shape": [64, 1, count // 64]}

    def variety(self, problem: Hashable) -> str:
        """Whether a row is whole vectors."""
        width = as_problem(problem).input_shape[2]
        return "whole vectors" if width % VECTOR[as_problem(problem).input_dtype] == 0 else "edges"


TESTS = MoeUnpermuteTests()


def unpermute(problem: Problem, given: dict[str, Array], device: Device | None = None) -> Array:
    """The output of a run on these operands."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()["output"]
