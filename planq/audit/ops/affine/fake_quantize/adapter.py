"""`fake_quantize` for the tests that are generated from the registry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import planq
from planq.audit.ops.affine.adapter import AffineTests
from planq.audit.ops.affine.fake_quantize.cases import SAMPLE
from planq.audit.ops.affine.fake_quantize.deepspeed import (
    DeepSpeedProblem,
    deepspeed_cases,
    empty_deepspeed_cases,
)
from planq.audit.ops.group.adapter import whole_vectors


@dataclass(frozen=True)
class FakeQuantizeTests(AffineTests):
    """Both conventions."""

    @cached_property
    def _cases(self) -> tuple[Any, ...]:
        return (*self.sample.cases, *deepspeed_cases())

    def cases(self) -> tuple[Any, ...]:
        """Problems with elements."""
        return self._cases

    def empty_cases(self) -> tuple[Any, ...]:
        """Problems without elements."""
        return (*self.sample.empty_cases, *empty_deepspeed_cases())

    def rounding(self, problem: Any) -> planq.Rounding:
        """DeepSpeed's asymmetric codes have a rule of their own."""
        rounding = super().rounding(problem)
        away = isinstance(problem, DeepSpeedProblem) and problem.mode == "asymmetric"
        nearest = rounding == planq.Rounding.NEAREST_EVEN
        return planq.Rounding.NEAREST_AWAY if away and nearest else rounding

    def variety(self, problem: Any) -> str:
        """Whether rows, or groups, are whole vectors."""
        if isinstance(problem, DeepSpeedProblem):
            return "vectors" if whole_vectors(problem) else "edges"
        return super().variety(problem)


TESTS = FakeQuantizeTests("fake_quantize", SAMPLE)
