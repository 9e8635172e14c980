"""`matmul` for the tests that are generated from the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import planq
from ops.linear.matmul.cases import cases, empty_cases
from ops.linear.products import ProductTests


@dataclass(frozen=True)
class FloatProductTests(ProductTests):
    """A product of floating numbers against its NumPy reference."""

    def math(self, problem: Any) -> planq.MathPrecision:
        """What the order of sums is named after."""
        if problem.accumulation == "lanes":
            return planq.MathPrecision.F32
        half = problem.input_dtype == "float16"
        return planq.MathPrecision.TENSOR_CORE_F16 if half else planq.MathPrecision.TENSOR_CORE_BF16


TESTS = FloatProductTests("matmul", cases(), empty_cases(), planq.Rounding.NEAREST_EVEN)
