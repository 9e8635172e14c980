"""From the reference's plain values of `vectorwise_dequantize` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.outlier.vectorwise import Problem
from planq.audit.ops.outlier.vectorwise_dequantize import cases
from planq.audit.ops.outlier.vectorwise_quantize.adapter import variety
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.VectorwiseDequantizeDescriptor:
    """The problem as a descriptor."""
    return planq.VectorwiseDequantizeDescriptor(
        shape=problem.shape,
        output_dtype=problem.dtype,
        form=planq.VectorwiseForm(problem.form),
        axis=problem.axis,
    )


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class VectorwiseDequantizeTests:
    """`vectorwise_dequantize` against its NumPy reference."""

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
        """float64 is computed in float64, everything else in float32."""
        wide = as_problem(problem).dtype == "float64"
        return planq.MathPrecision.F64 if wide else planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Every operation rounds to nearest."""
        return planq.Rounding.NEAREST_EVEN

    def variety(self, problem: Hashable) -> str:
        """Of the ways to an element."""
        return variety(as_problem(problem))


TESTS = VectorwiseDequantizeTests()


def dequantize(problem: Problem, given: dict[str, Array], device: Device | None = None) -> Array:
    """The output of a run on these operands."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()["output"]
