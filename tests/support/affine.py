"""From the references' plain values of the elementwise affine operators to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import planq
from reference.affine import Problem
from reference.affine_cases import Case, empty_cases, sampled_cases
from reference.formats import Array
from reference.scopes import ScopeSpec
from support.memory import Device, Host
from support.runner import Bench

HOST_DEVICE = Host()
VECTOR = 16  # elements; a multiple for every type, packed codes among them


def scope(spec: ScopeSpec) -> planq.Scope:
    """`("group", 128, -1)` and its like as a Scope."""
    kind, *parameters = spec
    made: planq.Scope = getattr(planq.Scope, kind)(*parameters)
    return made


@cache
def descriptor_class(operator: str) -> Any:
    """The class of the operator's descriptors."""
    return {info.name: info.descriptor for info in planq.operators()}[operator]


def make_descriptor(operator: str, **fields: Any) -> planq.Descriptor:
    """The operator's descriptor; a scope may be in plain values."""
    if isinstance(fields.get("scope"), tuple):
        fields["scope"] = scope(fields["scope"])
    made: planq.Descriptor = descriptor_class(operator)(**fields)
    return made


@cache
def descriptor_of(operator: str, problem: Problem) -> planq.Descriptor:
    """A problem as a descriptor: their fields have the same names."""
    return make_descriptor(operator, **asdict(problem))


@dataclass(frozen=True)
class AffineTests:
    """An elementwise affine operator against its NumPy reference."""

    operator: str

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases(self.operator)

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases(self.operator)

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor_of(self.operator, as_problem(problem))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """The compute type C."""
        wide = as_problem(problem).float_dtype == "float64"
        return planq.MathPrecision.F64 if wide else planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """How the results are rounded."""
        return planq.Rounding(getattr(as_problem(problem), "rounding", "nearest_even"))

    def variety(self, problem: Hashable) -> str:
        """Whether rows are whole vectors."""
        return "vectors" if as_problem(problem).shape[-1] % VECTOR == 0 else "edges"

    def run(
        self, problem: Problem, device: Device = HOST_DEVICE, /, **inputs: Array
    ) -> dict[str, Array]:
        """The outputs as stored, fp8 codes as bytes."""
        bench = Bench(device, self.descriptor(problem))
        bench.load(inputs)
        bench.run()
        results = bench.outputs()
        codes = results.get("output")
        if codes is not None and codes.dtype.name.startswith("float8"):
            results["output"] = codes.view("u1")
        return results

    def check(self, problem: Problem, device: Device = HOST_DEVICE, /, **inputs: Array) -> None:
        """Runs and compares every byte with the reference."""
        bench = Bench(device, self.descriptor(problem))
        bench.load(inputs)
        bench.run()
        bench.check(inputs, problem.expected(inputs), f"{bench.plan.sku} on {problem.id}")


def as_problem(problem: Hashable) -> Problem:
    """A problem of one of these operators."""
    assert isinstance(problem, Problem)
    return problem
