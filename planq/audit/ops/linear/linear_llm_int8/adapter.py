"""`linear_llm_int8` for the tests that are generated from the registry."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import planq
from planq.audit.from_reference import ReferenceTests, scope
from planq.audit.ops.linear.linear_llm_int8.cases import Case, empty_cases, sampled_cases
from planq.audit.ops.linear.linear_llm_int8.reference import Problem
from planq.audit.ops.linear.products import sized


@cache
def descriptor(problem: Problem) -> planq.Descriptor:
    """The problem as a descriptor."""
    fields: dict[str, Any] = asdict(problem)
    for name in ("input_scope", "weight_scope"):
        fields[name] = scope(fields[name])
    return planq.LinearLlmInt8Descriptor(**fields)


@dataclass(frozen=True)
class LinearLlmInt8Tests(ReferenceTests):
    """`linear_llm_int8` against its NumPy reference."""

    operator: str = "linear_llm_int8"

    def cases(self) -> tuple[Case, ...]:
        """Problems with outputs."""
        return sampled_cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without."""
        return empty_cases()

    def descriptor(self, problem: Problem) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(problem)

    def math(self, problem: Problem) -> planq.MathPrecision:
        """Integer products."""
        return planq.MathPrecision.INT32

    def variety(self, problem: Problem) -> str:
        """Whether rows of codes and of outputs are whole vectors."""
        whole = problem.input_shape[-1] % 16 == 0 and problem.weight_shape[0] % 4 == 0
        return "whole vectors" if whole else "edges"

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` codes in its input."""
        return sized(fields, count)


TESTS = LinearLlmInt8Tests()
