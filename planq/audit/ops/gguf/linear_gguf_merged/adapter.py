"""`linear_gguf_merged` for the tests that are generated from the registry."""

from __future__ import annotations

from typing import Any

import planq
from planq.audit.ops.gguf.linear_gguf_merged.cases import cases, empty_cases
from planq.audit.ops.gguf.linear_gguf_merged.reference import row_bytes
from planq.audit.ops.linear.products import ProductTests


class LinearGgufMergedTests(ProductTests):
    """Every kernel has weights of one type, and of several."""

    def variety(self, problem: Any) -> str:
        """Whether the weights have one type."""
        return "one type" if len(set(problem.types)) == 1 else "types"

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` codes in its input, of as many terms as blocks of all have."""
        ones = [1] * (len(fields["input_shape"]) - 2)
        weights = [[32, row_bytes(kind, 256)] for kind in fields["types"]]
        return {"input_shape": [*ones, count // 256, 256], "weight_shapes": weights}


TESTS = LinearGgufMergedTests(
    "linear_gguf_merged", cases(), empty_cases(), planq.Rounding.NEAREST_EVEN
)
