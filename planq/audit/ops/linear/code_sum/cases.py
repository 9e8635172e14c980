"""The fixed problems of `code_sum`."""

from __future__ import annotations

import itertools
from functools import cache

from planq.audit.ops.linear.code_sum.reference import SumProblem
from planq.audit.ops.linear.products import CODES, KINDS, Case
from planq.audit.reference.inputs import Chooser

SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((1,), -1),
    ((300,), -1),
    ((7, 48), -1),
    ((7, 48), -2),
    ((33, 65), -1),
    ((33, 65), -2),
    ((3, 5, 130), -1),
    ((3, 5, 130), 1),
    ((1, 1), -2),
    ((64, 512), -1),
    ((512, 64), 0),
    ((2, 3, 1, 4, 2, 3, 2, 5), 7),
    ((2, 3, 1, 4, 2, 3, 5, 3), 6),
    ((5, 1), -1),
    ((1, 17), -2),
    ((3, 4097), -1),
    ((1030, 20), -2),
    ((256, 1024), -1),
    ((1024, 256), -2),
    ((20, 20000), -1),
)
EMPTY: tuple[tuple[tuple[int, ...], int], ...] = (
    ((0,), -1),
    ((0, 5), -1),
    ((5, 0), -1),
    ((5, 0), -2),
    ((0, 5), -2),
    ((3, 0, 4), -2),
)


@cache
def cases() -> tuple[Case, ...]:
    """Every shape with every type."""
    return tuple(
        Case(SumProblem(shape, dtype, axis), Chooser(seed).pick(KINDS), seed)
        for seed, ((shape, axis), dtype) in enumerate(itertools.product(SHAPES, CODES))
    )


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without sums, or without terms."""
    pairs = itertools.product(EMPTY, CODES)
    return tuple(Case(SumProblem(shape, dtype, axis)) for (shape, axis), dtype in pairs)
