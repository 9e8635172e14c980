"""From the reference's plain values to the library's descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import planq
from reference.cases import Case, empty_cases, quantize_cases
from reference.dynamic_range_quantize import Problem, ScopeSpec
from reference.formats import Array


def scope(spec: ScopeSpec) -> planq.Scope:
    """`("group", 128, -1)` and its like as a Scope."""
    kind, *parameters = spec
    factory: dict[str, Any] = {
        "tensor": planq.Scope.tensor,
        "channel": planq.Scope.channel,
        "token": planq.Scope.token,
        "group": planq.Scope.group,
    }
    made: planq.Scope = factory[kind](*parameters)
    return made


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
    )


class OperatorTests(Protocol):
    """What the registry-generated tests need to know about one operator."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""

    def descriptor(self, problem: Problem) -> planq.Descriptor:
        """The library's descriptor of a problem."""

    def arguments(self, operands: dict[str, Any]) -> Any:
        """The args object that names these operands."""


@dataclass(frozen=True)
class DynamicRangeQuantizeTests:
    """`dynamic_range_quantize` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return quantize_cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases()

    def descriptor(self, problem: Problem) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(problem)

    def arguments(self, operands: dict[str, Any]) -> Any:
        """The args object that names these operands."""
        return planq.DynamicRangeQuantizeArgs(**operands)


OPERATORS: dict[str, OperatorTests] = {"dynamic_range_quantize": DynamicRangeQuantizeTests()}


@cache
def expected(case: Case) -> dict[str, Array]:
    """The reference's outputs, kept for the other rows that run the same case."""
    return case.expected()


@cache
def inputs_of(case: Case) -> dict[str, Array]:
    """The case's inputs, kept likewise."""
    return case.inputs()
