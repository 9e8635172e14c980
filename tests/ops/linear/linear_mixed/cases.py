"""The fixed problems of `linear_mixed`."""

from __future__ import annotations

import itertools
from functools import cache

from ops.linear.linear_mixed.reference import MixedProblem
from ops.linear.products import KINDS, Case
from reference.formats import INPUT_DTYPES
from reference.inputs import Chooser

Extents = tuple[int, ...]
# Leading axes of the input, and (m, n, k).
PLACES: tuple[tuple[Extents, Extents], ...] = (
    ((), (7, 48, 64)),
    ((), (1, 1, 1)),
    ((3,), (4, 17, 256)),
    ((), (33, 65, 130)),
    ((), (2, 70, 384)),
    ((2, 3), (5, 9, 67)),
    ((), (98, 33, 260)),
    ((4,), (1, 40, 129)),
    ((), (17, 1, 1030)),
    ((1, 2, 1, 3), (3, 20, 200)),
    ((), (16, 24, 48)),
)
EMPTY: tuple[tuple[Extents, Extents], ...] = (
    ((), (0, 5, 7)),
    ((), (5, 0, 7)),
    ((), (5, 7, 0)),
    ((0,), (3, 4, 130)),
    ((2,), (3, 70, 0)),
)
OUTPUTS = ("float32", "bfloat16", "float16")
# Order of sums and type of the input.
ORDERS = (
    ("tensor_sm90", "bfloat16"),
    ("tensor_sm90", "float16"),
    ("lanes", "bfloat16"),
    ("lanes", "float16"),
    ("lanes", "float32"),
)
GROUPS = (128, 64, 32, 13, 1)
OPTIONAL = (None, None, *INPUT_DTYPES)


def problem_of(
    place: tuple[Extents, Extents], names: tuple[tuple[str, str], str], chooser: Chooser
) -> MixedProblem:
    """The problem with the rest of its fields drawn."""
    outer, (m, n, k) = place
    (accumulation, input_dtype), output_dtype = names
    grouped = chooser.pick((True, False))
    return MixedProblem(
        (*outer, m, k),
        (n, k),
        input_dtype,
        output_dtype,
        chooser.pick(("int8", "int4")),
        chooser.pick((None, *OUTPUTS)) if accumulation == "lanes" else None,
        ("group", chooser.pick(GROUPS), 1) if grouped else ("channel", 0),
        chooser.pick(("symmetric", "asymmetric")) if grouped else "symmetric",
        chooser.pick(("low_first", "high_first")),
        accumulation,
        chooser.pick(OPTIONAL),
        chooser.pick(OPTIONAL),
    )


@cache
def cases() -> tuple[Case, ...]:
    """Every order of sums with every type in several places."""
    place = itertools.cycle(PLACES)
    made = []
    for names in list(itertools.product(ORDERS, OUTPUTS)) * 4:
        seed = len(made)
        chooser = Chooser(seed)
        made.append(Case(problem_of(next(place), names, chooser), chooser.pick(KINDS), seed))
    return tuple(made)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without outputs, or without terms: what becomes of a sum of 0."""
    names = itertools.cycle(itertools.product(ORDERS, OUTPUTS))
    return tuple(
        Case(problem_of(place, next(names), Chooser(number)), "any", number)
        for number, place in enumerate(EMPTY * 3)
    )
