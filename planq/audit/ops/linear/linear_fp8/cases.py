"""The fixed problems of `linear_fp8`."""

from __future__ import annotations

import itertools
from functools import cache

from planq.audit.ops.linear.linear_fp8.reference import BLOCKS, Fp8Problem
from planq.audit.ops.linear.products import KINDS, Case
from planq.audit.reference.formats import INPUT_DTYPES
from planq.audit.reference.inputs import Chooser

Extents = tuple[int, ...]
# Leading axes of the input, and (m, n, k).
PLACES: tuple[tuple[Extents, Extents], ...] = (
    ((), (7, 48, 64)),
    ((), (1, 1, 1)),
    ((3,), (4, 17, 256)),
    ((), (33, 65, 130)),
    ((), (2, 300, 384)),
    ((2, 3), (5, 9, 67)),
    ((), (100, 33, 260)),
    ((4,), (1, 140, 129)),
    ((), (17, 1, 1030)),
    ((1, 2, 1, 3), (3, 20, 200)),
    ((), (16, 24, 48)),
)
EMPTY: tuple[tuple[Extents, Extents], ...] = (
    ((), (0, 5, 7)),
    ((), (5, 0, 7)),
    ((), (5, 7, 0)),
    ((0,), (3, 4, 130)),
    ((2,), (3, 170, 0)),
)
CODES = ("float8_e4m3fn", "float8_e5m2")
OUTPUTS = ("float32", "bfloat16", "float16")
SCOPES = (
    (("token",), ("channel", 0)),
    BLOCKS,
    (("tensor",), ("tensor",)),
    BLOCKS,
    (("token",), ("tensor",)),
)
OPTIONAL = (None, None, *INPUT_DTYPES)


def problem_of(
    place: tuple[Extents, Extents], dtypes: tuple[str, str, str], chooser: Chooser
) -> Fp8Problem:
    """The problem with the rest of its fields drawn."""
    outer, (m, n, k) = place
    input_dtype, weight_dtype, output_dtype = dtypes
    input_scope, weight_scope = chooser.pick(SCOPES)
    return Fp8Problem(
        (*outer, m, k),
        (n, k),
        output_dtype,
        input_dtype,
        weight_dtype,
        input_scope,
        weight_scope,
        bias_dtype=chooser.pick(OPTIONAL),
        residual_dtype=chooser.pick(OPTIONAL),
    )


@cache
def cases() -> tuple[Case, ...]:
    """Every pair of types with every output in several places."""
    place = itertools.cycle(PLACES)
    made: list[Case] = []
    for dtypes in list(itertools.product(CODES, CODES, OUTPUTS)) * 4:
        seed = len(made)
        chooser = Chooser(seed)
        made.append(Case(problem_of(next(place), dtypes, chooser), chooser.pick(KINDS), seed))
    return tuple(made)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without outputs, or without terms: what becomes of a sum of 0."""
    dtypes = itertools.cycle(itertools.product(CODES, CODES, OUTPUTS))
    return tuple(
        Case(problem_of(place, next(dtypes), Chooser(number)), "any", number)
        for number, place in enumerate(EMPTY * 3)
    )
