"""The fixed problems and inputs of `pack_int4`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from planq.audit.ops.packing import int4
from planq.audit.ops.packing.int4 import EMPTY, cases_of, random_bytes
from planq.audit.ops.packing.pack_int4.reference import pack
from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Case(int4.Case):
    """A problem with its input."""

    def inputs(self) -> dict[str, Array]:
        """Codes that need not be 4 bits."""
        return {"input": random_bytes(self.problem.shape, self.seed).view(self.problem.storage)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's output."""
        return {"output": pack(self.problem, given["input"])}


@cache
def cases() -> tuple[Case, ...]:
    """Every shape with every dtype and order."""
    return cases_of(Case)


@cache
def empty_cases() -> tuple[Case, ...]:
    """The same without elements."""
    return cases_of(Case, EMPTY)
