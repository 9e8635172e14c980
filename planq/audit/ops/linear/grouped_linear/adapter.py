"""`grouped_linear` for the tests that are generated from the registry."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import planq
from planq.audit.from_reference import make_descriptor
from planq.audit.ops.linear.float_layers import FloatLayerTests
from planq.audit.ops.linear.grouped_linear.cases import cases, empty_cases


@cache
def descriptor_of(problem: Any) -> planq.Descriptor:
    """None is what a call leaves out."""
    given = {name: value for name, value in asdict(problem).items() if value is not None}
    return make_descriptor("grouped_linear", **given)


class GroupedTests(FloatLayerTests):
    """Rows of experts, which lie one after another."""

    def descriptor(self, problem: Any) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor_of(problem)

    def math(self, problem: Any) -> planq.MathPrecision:
        """That of the operator whose bits the rows have."""
        return planq.MathPrecision.INT32 if problem.input_dtype == "int8" else super().math(problem)

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` numbers in its input, of 64 terms, and two experts."""
        blocks = {"block_size": 64} if fields["block_size"] else {}
        return {"input_shape": [count // 64, 64], "weight_shape": [2, 64, 64], **blocks}


TESTS = GroupedTests("grouped_linear", cases(), empty_cases(), planq.Rounding.NEAREST_EVEN)
