"""What the adapters of norms share."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import planq
from planq.audit.from_reference import descriptor_of
from planq.audit.memory import Device, Host
from planq.audit.ops.norm import cases
from planq.audit.ops.norm.cases import Case, Formula
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench


@dataclass(frozen=True)
class NormTests:
    """An operator of the family, as the registry's tests see it."""

    make_descriptor: Any
    make_problem: Any
    formula: Formula
    others: tuple[dict[str, Any], ...]

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        own = (self.make_problem, self.formula, self.others)
        return (*cases.cases(*own), *cases.coded_cases(*own))

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.cases(self.make_problem, self.formula, self.others, cases.EMPTY)

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The problem as a descriptor: their fields have the same names."""
        return descriptor_of(self.make_descriptor.operator, problem)

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` elements: rows are not so long."""
        scope = fields["scope"]
        if scope["kind"] in ("group", "channel"):
            scope = {**scope, "axis": 1}
        return {"shape": [count // 64, 64], "scope": scope}

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """What everything is computed in."""
        return planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """Every operation, and to the output's type."""
        return planq.Rounding.NEAREST_EVEN

    def variety(self, problem: Hashable) -> str:
        """Whether rows are whole vectors."""
        return "whole vectors" if cases.is_whole(problem) else "edges"

    def run(
        self, problem: Any, given: dict[str, Array], device: Device | None = None
    ) -> dict[str, Array]:
        """The outputs of a run on these operands."""
        bench = Bench(device or Host(), self.descriptor(problem))
        bench.load(given)
        bench.run()
        return bench.outputs()
