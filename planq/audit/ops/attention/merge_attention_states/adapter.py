"""From the reference's plain values of `merge_attention_states` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.ops.attention.merge_attention_states import cases
from planq.audit.ops.attention.merge_attention_states.reference import Problem
from planq.audit.ops.elementwise.elements import ElementTests

if TYPE_CHECKING:
    from planq.audit.operators import Case


class MergeAttentionStatesTests(ElementTests):
    """`merge_attention_states` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return cases.cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        assert isinstance(problem, Problem)
        return planq.MergeAttentionStatesDescriptor(**asdict(problem))

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` elements in each output."""
        del fields
        return {"shape": [count // 64, 1, 64]}


TESTS = MergeAttentionStatesTests()
