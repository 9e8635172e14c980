"""From the reference's plain values of `kv_cache_append` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.kv_cache.kv_cache_append import cases
from planq.audit.ops.kv_cache.kv_cache_append.reference import Problem
from planq.audit.reference.formats import Arrays
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class KvCacheAppendTests:
    """`kv_cache_append` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return cases.cases(cases.SIZES)

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.cases(cases.EMPTY)

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The problem as a descriptor: their fields have the same names."""
        return planq.KvCacheAppendDescriptor(**asdict(as_problem(problem)))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """Of codes and of what is rounded; copies are not computed."""
        copies = as_problem(problem).has_copies
        return planq.MathPrecision.NONE if copies else planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """That of codes, and of numbers of another type."""
        copies = as_problem(problem).has_copies
        return planq.Rounding.NONE if copies else planq.Rounding.NEAREST_EVEN

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` elements in the key, and a cache that stays small."""
        del fields
        return {"key_shape": [count // 64, 1, 64], "value_dim": None, "pages": 3, "page_size": 4}

    def variety(self, problem: Hashable) -> str:
        """Whether a thread can take whole vectors."""
        return "whole vectors" if cases.is_whole(as_problem(problem)) else "edges"


TESTS = KvCacheAppendTests()


def append(problem: Problem, given: Arrays, device: Device | None = None) -> Arrays:
    """The outputs of a run on these operands."""
    bench = Bench(device or Host(), TESTS.descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()
