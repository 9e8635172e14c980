"""`group_quantize` for the tests that are generated from the registry."""

from __future__ import annotations

from typing import Any

from planq.audit.ops.group.adapter import GroupTests
from planq.audit.ops.group.reference import GroupQuantizeProblem


def problem(elements: str, codes: str, given: bool, **fields: Any) -> GroupQuantizeProblem:
    """A problem from elements to codes."""
    return GroupQuantizeProblem(
        input_dtype=elements, output_dtype=codes, parameters_given=given, **fields
    )


TESTS = GroupTests("group_quantize", problem)
