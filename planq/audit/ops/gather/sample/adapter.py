"""From the reference's plain values of `sample` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.ops.gather.sample import cases
from planq.audit.ops.gather.sample.reference import Problem
from planq.audit.reference.formats import VECTOR

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.SampleDescriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.SampleDescriptor(**asdict(problem))


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class SampleTests:
    """`sample` against its NumPy reference."""

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
        """What probabilities are computed in."""
        return planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Of probabilities; weights are integers."""
        return planq.Rounding.NEAREST_EVEN

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` elements in the input."""
        return {"shape": [count // 64, 64]}

    def variety(self, problem: Hashable) -> str:
        """Whether a row is whole vectors, and whether several blocks have room in it."""
        own = as_problem(problem)
        edges = own.shape[-1] % VECTOR[own.input_dtype] != 0
        spread = own.count <= 8 and own.shape[-1] >= 16384
        return f"{'edges' if edges else 'whole vectors'}{', long' if spread else ''}"


TESTS = SampleTests()
