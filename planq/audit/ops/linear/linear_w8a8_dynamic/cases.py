"""The fixed problems of `linear_w8a8_dynamic`."""

from __future__ import annotations

import itertools
from functools import cache

from planq.audit.ops.linear.linear_w8a8.cases import EMPTY, MODES, OPTIONAL, PLACES, Extents
from planq.audit.ops.linear.linear_w8a8_dynamic.reference import DynamicProblem
from planq.audit.ops.linear.products import CODES, KINDS, Case
from planq.audit.reference.formats import INPUT_DTYPES
from planq.audit.reference.inputs import Chooser

WIDE: tuple[Extents, ...] = ((1, 512, 2048), (300, 256, 640), (16, 520, 4096), (3, 8, 20000))


def problem_of(
    place: tuple[Extents, Extents], dtypes: tuple[str, str], code: str, chooser: Chooser
) -> DynamicProblem:
    """The problem with the rest of its fields drawn."""
    outer, (m, n, k) = place
    convention = chooser.pick(("planq", "planq", "planq", "baracuda"))
    plain = convention != "planq"
    mode = "symmetric" if plain else chooser.pick(MODES)
    unsigned = code.startswith("u")
    return DynamicProblem(
        (*outer, m, k),
        (n, k),
        dtypes[0],
        chooser.pick(("int8", "int8", *CODES)),
        dtypes[1],
        chooser.pick((("token",), ("token",), ("tensor",))),
        chooser.pick((("channel", 0), ("channel", 0), ("tensor",))),
        "asymmetric" if unsigned and not plain else mode,
        "symmetric" if plain else chooser.pick(MODES),
        chooser.pick((None, None, None, *INPUT_DTYPES)),
        chooser.pick(OPTIONAL),
        chooser.pick(OPTIONAL),
        convention,
        chooser.pick(("divide", "divide", "reciprocal")),
        chooser.pick(("propagate", "saturate")),
        "int8"
        if unsigned and plain
        else chooser.pick((code, code, None))
        if not unsigned
        else code,
    )


@cache
def cases() -> tuple[Case, ...]:
    """Every input with every output and kind of codes, and large products."""
    kinds = list(itertools.product(itertools.product(INPUT_DTYPES, INPUT_DTYPES), CODES))
    place = itertools.cycle(PLACES)
    made: list[Case] = []
    for dtypes, code in kinds * 2:
        seed = len(made)
        chooser = Chooser(seed)
        made.append(Case(problem_of(next(place), dtypes, code, chooser), chooser.pick(KINDS), seed))
    for number, extents in enumerate(WIDE * 2):
        chooser = Chooser(900 + number)
        dtypes = (INPUT_DTYPES[number % 4], INPUT_DTYPES[number % 3])
        problem = problem_of(((), extents), dtypes, "int8", chooser)
        made.append(Case(problem, "any", 900 + number))
    return tuple(made)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without outputs, or without terms."""
    return tuple(
        Case(problem_of(place, (dtype, dtype), "int8", Chooser(number)), "any", number)
        for number, (place, dtype) in enumerate(itertools.product(EMPTY, INPUT_DTYPES))
    )
