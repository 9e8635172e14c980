"""From the reference's plain values of `optimizer_step` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any

import planq
from planq.audit.ops.optimizer.optimizer_step.cases import (
    Case,
    empty_cases,
    is_whole,
    sampled_cases,
)
from planq.audit.ops.optimizer.optimizer_step.reference import Problem


@cache
def descriptor(problem: Hashable) -> planq.Descriptor:
    """The problem as a descriptor: their fields have the same names."""
    assert isinstance(problem, Problem)
    return planq.OptimizerStepDescriptor(**problem.fields)


@dataclass(frozen=True)
class OptimizerStepTests:
    """`optimizer_step` against its NumPy reference."""

    without_dims = "*"  # lists of shapes have none

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(problem)

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """Elements in float32."""
        return planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Of what becomes of parameters."""
        assert isinstance(problem, Problem)
        return planq.Rounding(problem.rounding)

    def variety(self, problem: Hashable) -> str:
        """Whether tensors are whole vectors."""
        assert isinstance(problem, Problem)
        return "whole vectors" if is_whole(problem) else "edges"

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """One tensor of so many elements, in the smallest blocks."""
        blocks = 64 if fields["state_format"] == "blockwise8" else 256
        return {"shapes": [[count]], "tensor_ids": [], "block_size": blocks}


TESTS = OptimizerStepTests()
