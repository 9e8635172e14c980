"""From the reference's plain values of `dynamic_range_quantize` to the library."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any

import planq
from planq.audit.from_reference import scope
from planq.audit.memory import Device, Host
from planq.audit.ops.affine.dynamic_range_quantize.cases import (
    Case,
    convention_cases,
    empty_cases,
    format_cases,
    outputs,
    sampled_cases,
    vllm_cases,
)
from planq.audit.ops.affine.dynamic_range_quantize.instantiations import instantiation_cases
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.reference.formats import VECTOR, Array
from planq.audit.runner import Bench

HOST_DEVICE = Host()


@cache
def descriptor(problem: Problem) -> planq.DynamicRangeQuantizeDescriptor:
    """The problem as a descriptor."""
    return planq.DynamicRangeQuantizeDescriptor(
        shape=problem.shape,
        input_dtype=problem.input_dtype,
        output_dtype=problem.output_dtype,
        scope=scope(problem.scope),
        mode=planq.Mode(problem.mode),
        q_min=problem.q_min,
        q_max=problem.q_max,
        scale_dtype=problem.scale_dtype,
        quotient=planq.Quotient(problem.quotient),
        nonfinite=planq.NonFinite(problem.nonfinite),
        include_zero=problem.include_zero,
        nibble_order=planq.NibbleOrder(problem.nibble_order),
        convention=planq.Convention(problem.convention),
        scale_ub=problem.scale_ub,
    )


@cache
def all_cases() -> tuple[Case, ...]:
    """The sample of the table, the shapes for the kernels' bodies, then other conventions."""
    shapes = (item.case for item in instantiation_cases())
    return (*sampled_cases(), *shapes, *convention_cases(), *format_cases(), *vllm_cases())


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class DynamicRangeQuantizeTests:
    """`dynamic_range_quantize` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return all_cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(as_problem(problem))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """The compute type C."""
        wide = as_problem(problem).input_dtype == "float64"
        return planq.MathPrecision.F64 if wide else planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """To nearest, ties to even unless GGML says otherwise."""
        fields = as_problem(problem)
        if fields.convention != "ggml":
            return planq.Rounding.NEAREST_EVEN
        eight = fields.output_dtype == "int8"
        return planq.Rounding.NEAREST_AWAY if eight else planq.Rounding.NEAREST_UP

    def variety(self, problem: Hashable) -> str:
        """The mode, and whether what a kernel reads in one go is whole vectors."""
        fields = as_problem(problem)
        whole = run_length(fields) % VECTOR[fields.input_dtype] == 0
        return f"{fields.mode}, {'whole vectors' if whole else 'edges'}"


def run_length(problem: Problem) -> int:
    """Consecutive elements of a segment, or of a row where segments are columns."""
    kind, shape, last = problem.scope[0], problem.shape, len(problem.shape) - 1
    if kind == "tensor":
        return math.prod(shape)
    if kind == "channel" and problem.scope[1] == 0 and last > 0:
        return math.prod(shape[1:])
    if last in problem.cuts:
        return math.gcd(min(problem.cuts[last], shape[-1]), shape[-1])
    return shape[-1]


TESTS = DynamicRangeQuantizeTests()


def quantize(
    problem: Problem, x: Array, device: Device = HOST_DEVICE, pref: Any = None
) -> dict[str, Array]:
    """Quantizes `x` and returns the outputs as stored, fp8 codes as bytes."""
    bench = Bench(device, descriptor(problem), pref=pref)
    bench.load({"input": x})
    bench.run()
    results = bench.outputs()
    if problem.output_dtype.startswith("float8"):
        results["output"] = results["output"].view("u1")
    return results


def check_problem(problem: Problem, x: Array, device: Device = HOST_DEVICE) -> None:
    """Quantizes `x` and compares every byte with the reference."""
    bench = Bench(device, descriptor(problem))
    bench.load({"input": x})
    bench.run()
    bench.check({"input": x}, outputs(problem, x), f"{bench.plan.sku} on {problem.id}")
