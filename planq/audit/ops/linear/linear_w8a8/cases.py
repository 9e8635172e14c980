"""The fixed problems of `linear_w8a8`."""

from __future__ import annotations

import itertools
from functools import cache

from planq.audit.ops.linear.linear_w8a8.reference import LinearProblem
from planq.audit.ops.linear.products import CODES, KINDS, Case
from planq.audit.reference.formats import INPUT_DTYPES
from planq.audit.reference.inputs import Chooser

Extents = tuple[int, ...]
# Leading axes of the input, and (m, n, k).
PLACES: tuple[tuple[Extents, Extents], ...] = (
    ((), (7, 48, 64)),
    ((), (1, 1, 1)),
    ((3,), (4, 17, 32)),
    ((), (33, 65, 130)),
    ((), (1, 130, 256)),
    ((2, 3), (5, 9, 67)),
    ((), (100, 131, 257)),
    ((), (2, 64, 128)),
    ((4,), (1, 40, 96)),
    ((), (64, 64, 512)),
    ((), (17, 1, 1030)),
    ((), (128, 192, 320)),
    ((1, 2, 1, 3), (3, 20, 33)),
    ((), (16, 24, 48)),
)
WIDE: tuple[Extents, ...] = (
    (1, 512, 2048),
    (300, 512, 640),
    (4, 1000, 1026),
    (16, 520, 4096),
    (256, 256, 1024),
)
EMPTY: tuple[tuple[Extents, Extents], ...] = (
    ((), (0, 5, 7)),
    ((), (5, 0, 7)),
    ((), (5, 7, 0)),
    ((), (0, 0, 0)),
    ((0,), (3, 4, 5)),
    ((2,), (3, 70, 0)),
)
MODES = ("symmetric", "symmetric", "asymmetric")
CONVENTIONS = ("planq", "planq", "planq", "bitsandbytes", "baracuda")
OPTIONAL = (None, None, *INPUT_DTYPES)


def problem_of(
    place: tuple[Extents, Extents], dtypes: tuple[str, str, str], chooser: Chooser
) -> LinearProblem:
    """The problem with the rest of its fields drawn."""
    outer, (m, n, k) = place
    input_dtype, weight_dtype, output_dtype = dtypes
    convention = chooser.pick(CONVENTIONS)
    if convention == "bitsandbytes" and output_dtype == "float64":
        convention = "baracuda"
    plain = convention != "planq"
    return LinearProblem(
        (*outer, m, k),
        (n, k),
        output_dtype,
        input_dtype,
        weight_dtype,
        chooser.pick((("token",), ("token",), ("tensor",))),
        chooser.pick((("channel", 0), ("channel", 0), ("tensor",))),
        "symmetric" if plain else chooser.pick(MODES),
        "symmetric" if plain else chooser.pick(MODES),
        chooser.pick((None, None, None, *INPUT_DTYPES)),
        chooser.pick(OPTIONAL),
        chooser.pick(OPTIONAL),
        convention,
    )


@cache
def cases() -> tuple[Case, ...]:
    """Every pair of types with every output in several places, and large products."""
    kinds = list(itertools.product(CODES, CODES, INPUT_DTYPES))
    # int8 by int8 is what layers have, so it has more.
    kinds += [("int8", "int8", output) for output in INPUT_DTYPES] * 12
    place = itertools.cycle(PLACES)
    made: list[Case] = []
    for dtypes in kinds * 2:
        seed = len(made)
        chooser = Chooser(seed)
        made.append(Case(problem_of(next(place), dtypes, chooser), chooser.pick(KINDS), seed))
    for number, extents in enumerate(WIDE * 3):
        chooser = Chooser(900 + number)
        dtypes = ("int8", "int8", INPUT_DTYPES[number % 4])
        made.append(Case(problem_of(((), extents), dtypes, chooser), "any", 900 + number))
    return tuple(made)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without outputs, or without terms: what becomes of a sum of 0."""
    return tuple(
        Case(problem_of(place, ("int8", "int8", dtype), Chooser(number)), "any", number)
        for number, (place, dtype) in enumerate(itertools.product(EMPTY, INPUT_DTYPES))
    )
