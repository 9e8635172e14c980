"""`linear_fp8` for the tests that are generated from the registry."""

from __future__ import annotations

from typing import Any

import planq
from planq.audit.ops.linear.float_layers import FloatLayerTests
from planq.audit.ops.linear.linear_fp8.cases import cases, empty_cases


class Fp8LayerTests(FloatLayerTests):
    """Kernels of whole vectors alone have both kinds of scales."""

    def variety(self, problem: Any) -> str:
        """Whether slices meet scales, or sums do."""
        return "blocks" if problem.input_scope[0] == "group" else "rows"


TESTS = Fp8LayerTests("linear_fp8", cases(), empty_cases(), planq.Rounding.NEAREST_EVEN)
