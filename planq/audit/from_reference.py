"""What adapters share whose problems have the fields of their descriptors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import planq
from planq.audit.memory import Device, Host
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench

HOST_DEVICE = Host()


def scope(spec: tuple[Any, ...]) -> planq.Scope:
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
    for name, value in fields.items():
        if name.endswith("scope") and isinstance(value, tuple):
            fields[name] = scope(value)
    made: planq.Descriptor = descriptor_class(operator)(**fields)
    return made


@cache
def descriptor_of(operator: str, problem: Any) -> planq.Descriptor:
    """A problem as a descriptor: their fields have the same names."""
    return make_descriptor(operator, **asdict(problem))


@dataclass(frozen=True)
class ReferenceTests:
    """An operator against its NumPy reference, which has problems, cases and a compute type C."""

    operator: str

    def descriptor(self, problem: Any) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor_of(self.operator, problem)

    def math(self, problem: Any) -> planq.MathPrecision:
        """The compute type C."""
        wide = problem.float_dtype == "float64"
        return planq.MathPrecision.F64 if wide else planq.MathPrecision.F32

    def rounding(self, problem: Any) -> planq.Rounding:
        """How the results are rounded, or codes chosen."""
        return planq.Rounding(getattr(problem, "rounding", "nearest_even"))

    def run(
        self, problem: Any, device: Device = HOST_DEVICE, /, **inputs: Array
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

    def check(self, problem: Any, device: Device = HOST_DEVICE, /, **inputs: Array) -> None:
        """Runs and compares every byte with the reference."""
        bench = Bench(device, self.descriptor(problem))
        bench.load(inputs)
        bench.run()
        bench.check(inputs, problem.expected(inputs), f"{bench.plan.sku} on {problem.id}")
