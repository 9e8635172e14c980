"""`pack_weight_4bit` for the tests that are generated from the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.from_reference import ReferenceTests
from planq.audit.ops.packing.pack_weight_4bit import cases

if TYPE_CHECKING:
    from planq.audit.operators import Case


@dataclass(frozen=True)
class PackWeight4BitTests(ReferenceTests):
    """`pack_weight_4bit` against its NumPy reference."""

    without_dims = "*"  # tiles lie on both axes of a matrix

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return cases.cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.empty_cases()

    def math(self, problem: Any) -> planq.MathPrecision:
        """Nothing is computed."""
        return planq.MathPrecision.NONE

    def rounding(self, problem: Any) -> planq.Rounding:
        """Nothing is rounded."""
        return planq.Rounding.NONE

    def variety(self, problem: Any) -> str:
        """Which way, and whether tiles are whole."""
        whole = all(extent % 64 == 0 for extent in problem.weight_shape)
        return f"{'back' if problem.inverse else 'there'}, {'whole tiles' if whole else 'edges'}"

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` codes."""
        return {"weight_shape": [count // 64, 64]}


TESTS = PackWeight4BitTests("pack_weight_4bit")
