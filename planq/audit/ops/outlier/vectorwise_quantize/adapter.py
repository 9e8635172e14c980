"""From the reference's plain values of `vectorwise_quantize` to the library."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.outlier.vectorwise import Problem
from planq.audit.ops.outlier.vectorwise_quantize import cases
from planq.audit.reference.formats import VECTOR, Array
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.VectorwiseQuantizeDescriptor:
    """The problem as a descriptor."""
    return planq.VectorwiseQuantizeDescriptor(
        shape=problem.shape,
        input_dtype=problem.dtype,
        form=planq.VectorwiseForm(problem.form),
        axis=problem.axis,
    )


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


def variety(problem: Problem) -> str:
    """How codes are made, and whether vectors of elements share a statistic or have their own."""
    if problem.shifted:
        way = "range"
    else:
        way = "quotient" if problem.form in ("linear", "truncated") else "product"
    last = problem.along is None or problem.axis % len(problem.shape) == len(problem.shape) - 1
    run = math.prod(problem.shape) if problem.along is None else problem.shape[-1]
    whole = "whole vectors" if run % VECTOR[problem.dtype] == 0 else "edges"
    return f"{way}, {'rows' if last else 'columns'}, {whole}"


@dataclass(frozen=True)
class VectorwiseQuantizeTests:
    """`vectorwise_quantize` against its NumPy reference."""

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
        """Of the ways to a code."""
        return variety(as_problem(problem))


TESTS = VectorwiseQuantizeTests()


def quantize(problem: Problem, values: Array, device: Device | None = None) -> dict[str, Array]:
    """The outputs of a run on `values`."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load({"input": values})
    bench.run()
    return bench.outputs()
