"""From the reference's plain values of `double_quantize` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.outlier.double_quantize import cases
from planq.audit.ops.outlier.double_quantize.reference import Problem
from planq.audit.reference.formats import VECTOR, Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.DoubleQuantizeDescriptor:
    """The problem as a descriptor: their fields have the same names."""
    return planq.DoubleQuantizeDescriptor(**asdict(problem))


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class DoubleQuantizeTests:
    """`double_quantize` against its NumPy reference."""

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
        """To codes."""
        return planq.Rounding.NEAREST_EVEN

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem on `count` elements, which int32 indices reach."""
        return {"shape": [2**30, count >> 30]}

    def variety(self, problem: Hashable) -> str:
        """Whether rows are whole vectors."""
        fields = as_problem(problem)
        whole = fields.shape[-1] % VECTOR[fields.input_dtype] == 0
        return "whole vectors" if whole else "edges"


TESTS = DoubleQuantizeTests()


def quantize(problem: Problem, x: Array, device: Device | None = None) -> dict[str, Array]:
    """The outputs of a run on `x`."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load({"input": x})
    bench.run()
    return bench.outputs()
