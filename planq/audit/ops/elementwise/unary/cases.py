"""The fixed problems and inputs of `unary`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from planq.audit.ops.elementwise.elements import (
    DATA,
    EMPTY,
    LARGE,
    PAIRS,
    SHAPES,
    ElementCase,
    values,
)
from planq.audit.ops.elementwise.unary.reference import Problem, unary
from planq.audit.reference.formats import Arrays

FUNCTIONS = ("exp", "exp2", "log", "log2", "rsqrt", "sigmoid", "tanh", "erf")


@dataclass(frozen=True)
class Case(ElementCase):
    """A problem with its input."""

    def inputs(self) -> Arrays:
        """Numbers."""
        problem = self.problem
        return {"input": values(self.data, problem.shape, problem.input_dtype, self.seed)}

    def expected(self, given: Arrays) -> Arrays:
        """The reference's output."""
        return unary(self.problem, given["input"])


@cache
def cases() -> tuple[Case, ...]:
    """Every function with every pair of types, and many elements."""
    found: list[Case] = []
    for given, wanted in PAIRS:
        for function in FUNCTIONS:
            for data in ("special", None):
                seed = len(found)
                shape = SHAPES[(seed + seed // 16) % len(SHAPES)]
                kind = data or DATA[1 + (seed // 2 + seed // 16) % (len(DATA) - 1)]
                found.append(Case(Problem(shape, function, given, wanted), kind, seed))
    for place, (dtype, shape) in enumerate(LARGE.items()):
        problem = Problem(shape, FUNCTIONS[place * 2], dtype, dtype)
        found.append(Case(problem, "tiled", len(found)))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No elements."""
    pairs = enumerate(PAIRS)
    return tuple(
        Case(Problem(EMPTY[place % len(EMPTY)], FUNCTIONS[place % len(FUNCTIONS)], *pair))
        for place, pair in pairs
    )
