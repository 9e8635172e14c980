"""From the reference's plain values of `embedding` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.gather.embedding import cases
from planq.audit.ops.gather.embedding.reference import Problem
from planq.audit.reference.formats import FLOATS, Arrays
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


@cache
def descriptor(problem: Problem) -> planq.EmbeddingDescriptor:
    """The problem as a descriptor; a floating table has no scales."""
    fields: dict[str, Any] = {}
    if problem.has_codes:
        groups = problem.scope[0] == "group"
        fields["scope"] = planq.Scope.group(problem.group) if groups else planq.Scope.token()
        fields["scale_dtype"] = problem.scale_dtype
    return planq.EmbeddingDescriptor(
        shape=problem.shape,
        table_rows=problem.table_rows,
        table_dtype=problem.table_dtype,
        output_dtype=problem.output_dtype,
        index_dtype=problem.index_dtype,
        nibble_order=planq.NibbleOrder(problem.nibble_order),
        **fields,
    )


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class EmbeddingTests:
    """`embedding` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return cases.cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.empty_cases()

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(as_problem(problem))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """What products are computed in."""
        return planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """To the output's type."""
        return planq.Rounding.NEAREST_EVEN

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` elements in the output; a floating table keeps no scope."""
        plain = {"scope": {"kind": "token"}} if fields["table_dtype"] in FLOATS else {}
        return {"shape": [count // 64, 64], **plain}

    def variety(self, problem: Hashable) -> str:
        """Whether a row is whole vectors."""
        return "whole vectors" if as_problem(problem).width % 8 == 0 else "edges"


TESTS = EmbeddingTests()


def embed(problem: Problem, given: Arrays, device: Device | None = None) -> Arrays:
    """The outputs of a run on these operands."""
    bench = Bench(device or Host(), descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()
