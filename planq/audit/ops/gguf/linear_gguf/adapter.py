"""`linear_gguf` for the tests that are generated from the registry."""

from __future__ import annotations

from typing import Any

import planq
from planq.audit.ops.gguf.linear_gguf.cases import cases, empty_cases
from planq.audit.ops.linear.products import ProductTests


class LinearGgufTests(ProductTests):
    """Every kernel has blocks of all types."""

    def variety(self, problem: Any) -> str:
        """The type of the blocks."""
        return str(problem.type)

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` codes in its input, of as many terms as blocks of all have."""
        ones = [1] * (len(fields["input_shape"]) - 2)
        return {"input_shape": [*ones, count // 256, 256], "weight_shape": [64, 256]}


TESTS = LinearGgufTests("linear_gguf", cases(), empty_cases(), planq.Rounding.NEAREST_EVEN)
