"""The fixed problems and inputs of `merge_attention_states`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from planq.audit.ops.attention.merge_attention_states.reference import (
    Problem,
    merge_attention_states,
)
from planq.audit.ops.elementwise.elements import DATA, TYPES, ElementCase, values
from planq.audit.reference.formats import Array, Arrays
from planq.audit.reference.inputs import field, hashed

# Whole vectors and not, of 16-bit types and of 32-bit ones; a row to a thread block and many.
SHAPES = ((1, 1, 1), (3, 5, 7), (2, 3, 64), (7, 2, 128), (65, 4, 80), (5, 1, 516), (300, 1, 8))
EMPTY = ((0, 2, 16), (3, 0, 16), (3, 2, 0))


def logarithms(shape: tuple[int, ...], seed: int) -> Array:
    """Near one another, far apart, of no keys, and what is none."""
    words = hashed(seed, int(np.prod(shape)))
    near = field(words, 0, 20).astype(np.float32) * np.float32(2.0**-17) - np.float32(4)
    far = near * np.float32(2.0**30)
    odd = np.array([-np.inf, -np.inf, -np.inf, np.nan, np.inf, 3e38, -3e38, 0.0], np.float32)
    chosen = field(words, 30, 3)
    made = np.where(chosen == 0, odd[field(words, 40, 3)], np.where(chosen == 1, far, near))
    return made.astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class Case(ElementCase):
    """A problem with its operands."""

    def inputs(self) -> Arrays:
        """Both outputs and their logarithms."""
        problem, seed = self.problem, self.seed
        rows = problem.shape[:-1]
        return {
            "output_a": values(self.data, problem.shape, problem.dtype, seed),
            "lse_a": logarithms(rows, seed + 500),
            "output_b": values(self.data, problem.shape, problem.dtype, seed + 1000),
            "lse_b": logarithms(rows, seed + 1500),
        }

    def expected(self, given: Arrays) -> Arrays:
        """The reference's outputs."""
        return merge_attention_states(self.problem, given)


@cache
def cases() -> tuple[Case, ...]:
    """Every shape and type; kinds of values take turns."""
    found: list[Case] = []
    for shape in SHAPES:
        for dtype in TYPES:
            for _ in range(2):
                seed = len(found)
                kind = DATA[(seed + seed // 8) % len(DATA)]
                found.append(Case(Problem(shape, dtype), kind, seed))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No elements."""
    return tuple(Case(Problem(shape, dtype)) for shape in EMPTY for dtype in TYPES)
