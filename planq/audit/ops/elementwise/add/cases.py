"""The fixed problems and inputs of `add`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from planq.audit.ops.elementwise.add.reference import Problem, add
from planq.audit.ops.elementwise.elements import (
    DATA,
    EMPTY,
    LARGE,
    PAIRS,
    SHAPES,
    TYPES,
    ElementCase,
    values,
)
from planq.audit.reference.formats import Arrays

# One that float32 does not hold among them, and one beyond all that it holds.
ALPHAS = (1.0, -1.0, 0.1, 1 / 3, 0.0, -0.0, 2.0**-130, 1e30, 1e300, math.nan, -math.inf)


@dataclass(frozen=True)
class Case(ElementCase):
    """A problem with its operands."""

    def inputs(self) -> Arrays:
        """Both tensors and the number."""
        problem, seed = self.problem, self.seed
        return {
            "input": values(self.data, problem.shape, problem.input_dtype, seed),
            "other": values(self.data, problem.shape, problem.other_dtype, seed + 500),
            "alpha": np.array(ALPHAS[seed % len(ALPHAS)], np.float64),
        }

    def expected(self, given: Arrays) -> Arrays:
        """The reference's output."""
        return add(self.problem, given)


@cache
def cases() -> tuple[Case, ...]:
    """Every combination of types, and many elements."""
    found: list[Case] = []
    for given, wanted in PAIRS:
        for other in TYPES:
            for turn in range(4):
                seed = len(found)
                shape = SHAPES[(seed + seed // 12) % len(SHAPES)]
                kind = DATA[(seed + seed // 8 + turn) % len(DATA)]
                found.append(Case(Problem(shape, given, other, wanted), kind, seed))
    for dtype, shape in LARGE.items():
        found.append(Case(Problem(shape, dtype, dtype, dtype), "tiled", len(found)))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No elements."""
    return tuple(
        Case(Problem(EMPTY[place % len(EMPTY)], given, TYPES[place % 3], wanted))
        for place, (given, wanted) in enumerate(PAIRS)
    )
