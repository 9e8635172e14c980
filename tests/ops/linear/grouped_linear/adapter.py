"""`grouped_linear` for the tests that are generated from the registry."""

from __future__ import annotations

from typing import Any

import planq
from ops.linear.float_layers import FloatLayerTests
from ops.linear.grouped_linear.cases import cases, empty_cases


class GroupedTests(FloatLayerTests):
    """Rows of experts, which lie one after another."""

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` numbers in its input, of 64 terms, and two experts."""
        return {"input_shape": [count // 64, 64], "weight_shape": [2, 64, 64]}


TESTS = GroupedTests("grouped_linear", cases(), empty_cases(), planq.Rounding.NEAREST_EVEN)
