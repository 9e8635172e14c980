"""From the reference's plain values of `attention` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.attention.attention import cases
from planq.audit.ops.attention.attention.reference import Problem
from planq.audit.reference.formats import Arrays
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class AttentionTests:
    """`attention` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return (*cases.cases(cases.SIZES), *cases.many_cases())

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.cases(cases.EMPTY)

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The problem as a descriptor: their fields have the same names."""
        return planq.AttentionDescriptor(**asdict(as_problem(problem)))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """Tensor cores of the queries' type."""
        half = as_problem(problem).input_dtype == "float16"
        return planq.MathPrecision.TENSOR_CORE_F16 if half else planq.MathPrecision.TENSOR_CORE_BF16

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """To the output's type."""
        return planq.Rounding.NEAREST_EVEN

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` elements in the query, and a cache that stays small."""
        own = {"key_heads": 1, "batch": 2, "max_query": 8, "max_key": 8, "value_dim": 64}
        pages = {"pages": 3, "page_size": 4} if fields["page_size"] else {}
        return {"query_shape": [count // 64, 1, 64], **own, **pages}

    def variety(self, problem: Hashable) -> str:
        """Where keys lie."""
        return "pages" if as_problem(problem).page_size else "one after another"


TESTS = AttentionTests()


def attend(problem: Problem, given: Arrays, device: Device | None = None) -> Arrays:
    """The outputs of a run on these operands."""
    bench = Bench(device or Host(), TESTS.descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()
