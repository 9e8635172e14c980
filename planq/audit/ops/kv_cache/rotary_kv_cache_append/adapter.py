"""From the reference's plain values of `rotary_kv_cache_append` to the library."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import planq
from planq.audit.memory import Device, Host
from planq.audit.ops.kv_cache.rotary_kv_cache_append import cases
from planq.audit.ops.kv_cache.rotary_kv_cache_append.reference import Problem
from planq.audit.reference.formats import Arrays
from planq.audit.runner import Bench

if TYPE_CHECKING:
    from planq.audit.operators import Case


def as_problem(problem: Hashable) -> Problem:
    """A problem of this operator."""
    assert isinstance(problem, Problem)
    return problem


@dataclass(frozen=True)
class RotaryKvCacheAppendTests:
    """`rotary_kv_cache_append` against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return cases.cases(cases.SIZES)

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return cases.cases(cases.EMPTY)

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The problem as a descriptor: their fields have the same names."""
        return planq.RotaryKvCacheAppendDescriptor(**asdict(as_problem(problem)))

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """What everything is computed in."""
        return planq.MathPrecision.F32

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """To the type of the elements, and to codes."""
        return planq.Rounding.NEAREST_EVEN

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` elements in the query; a table and a cache that stay small."""
        del fields
        shape = [count // 64, 1, 64]
        return {"query_shape": shape, "key_heads": 1, "value_dim": None, "rotary_dim": 64} | {
            "max_position": 40,
            "pages": 3,
            "page_size": 4,
        }

    def variety(self, problem: Hashable) -> str:
        """Whether heads are normalised."""
        return "a norm" if as_problem(problem).norm_weight_dtype else "no norm"


TESTS = RotaryKvCacheAppendTests()


def turn_and_append(problem: Problem, given: Arrays, device: Device | None = None) -> Arrays:
    """The outputs of a run on these operands."""
    bench = Bench(device or Host(), TESTS.descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()
