"""`group_dequantize` for the tests that are generated from the registry."""

from __future__ import annotations

from typing import Any

from planq.audit.ops.group.adapter import GroupTests
from planq.audit.ops.group.reference import GroupDequantizeProblem


def problem(elements: str, codes: str, given: bool, **fields: Any) -> GroupDequantizeProblem:
    """A problem from codes to elements."""
    del given
    return GroupDequantizeProblem(input_dtype=codes, output_dtype=elements, **fields)


TESTS = GroupTests("group_dequantize", problem)
