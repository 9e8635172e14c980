"""From the reference's plain values of `gguf_quantize` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.from_reference import descriptor_of
from planq.audit.ops.elementwise.elements import ElementTests
from planq.audit.ops.gguf.gguf_quantize import cases

if TYPE_CHECKING:
    from planq.audit.operators import Case


class GgufQuantizeTests(ElementTests):
    """`gguf_quantize` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return cases.cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The problem as a descriptor: their fields have the same names."""
        return descriptor_of("gguf_quantize", problem)

    def variety(self, problem: Any) -> str:
        """The type of the blocks."""
        return str(problem.type)


TESTS = GgufQuantizeTests()
