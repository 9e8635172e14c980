"""The fixed problems of `matmul`."""

from __future__ import annotations

import itertools
from functools import cache

from planq.audit.ops.linear.matmul.reference import FloatMatmulProblem
from planq.audit.ops.linear.products import KINDS, Case
from planq.audit.reference.formats import INPUT_DTYPES
from planq.audit.reference.inputs import Chooser

Extents = tuple[int, ...]
# Leading axes of both sides, and (m, n, k).
PLACES: tuple[tuple[Extents, Extents, Extents], ...] = (
    ((), (), (1, 1, 1)),
    ((), (), (7, 48, 64)),
    ((3,), (3,), (4, 17, 32)),
    ((), (), (33, 65, 130)),
    ((2,), (), (5, 9, 67)),
    ((), (), (1, 130, 256)),
    ((), (2, 3), (6, 10, 50)),
    ((), (), (98, 31, 257)),
    ((2, 1), (1, 3), (3, 20, 33)),
    ((), (), (2, 64, 128)),
    ((), (), (16, 32, 512)),
    ((1,), (4,), (16, 24, 96)),
    ((), (), (17, 1, 1030)),
    ((2,), (2,), (1, 40, 80)),
    ((2, 2, 1, 1, 2), (3, 1, 2), (3, 2, 17)),
    ((), (), (5, 300, 1)),
    ((3,), (), (1, 33, 65)),
    ((), (), (9, 16, 15)),
    ((), (), (100, 70, 3)),
)
WIDE: tuple[Extents, ...] = ((1, 130, 2048), (130, 96, 160), (4, 200, 1026), (16, 48, 1152))
# As layers have them, with k innermost on both sides and in whole vectors.
LAYERS: tuple[tuple[Extents, Extents, Extents], ...] = (
    ((), (), (1, 130, 256)),
    ((), (), (7, 48, 64)),
    ((3,), (3,), (20, 136, 96)),
    ((2,), (), (16, 40, 1024)),
    ((), (), (130, 65, 520)),
)
EMPTY: tuple[tuple[Extents, Extents, Extents], ...] = (
    ((), (), (0, 5, 7)),
    ((), (), (5, 0, 7)),
    ((), (), (5, 7, 0)),
    ((), (), (0, 0, 0)),
    ((0,), (), (3, 4, 5)),
    ((2,), (2,), (3, 70, 0)),
    ((0,), (1,), (2, 2, 0)),
)
FACTORS = ("bfloat16", "float16")
OUTPUTS = ("float32", "bfloat16", "float16")
ORDERS = ("tensor_sm90", "lanes")
OPTIONAL = (None, None, *INPUT_DTYPES)


def problem_of(
    place: tuple[Extents, Extents, Extents], names: tuple[str, str, str], chooser: Chooser
) -> FloatMatmulProblem:
    """The problem, each side stored one way or the other, with addends or without."""
    of_input, of_weight, (m, n, k) = place
    turned, turned_weight = chooser.pick((False, True)), chooser.pick((False, True))
    accumulation, input_dtype, output_dtype = names
    return FloatMatmulProblem(
        (*of_input, k, m) if turned else (*of_input, m, k),
        (*of_weight, k, n) if turned_weight else (*of_weight, n, k),
        input_dtype,
        output_dtype,
        turned,
        turned_weight,
        accumulation,
        chooser.pick(OPTIONAL),
        chooser.pick(OPTIONAL),
    )


@cache
def cases() -> tuple[Case, ...]:
    """Every order of sums with every type in several places, and longer sums."""
    names = list(itertools.product(ORDERS, FACTORS, OUTPUTS))
    place = itertools.cycle(PLACES)
    made: list[Case] = []
    for each in names * 5:
        seed = len(made)
        chooser = Chooser(seed)
        made.append(Case(problem_of(next(place), each, chooser), chooser.pick(KINDS), seed))
    for number, (extents, each) in enumerate(itertools.product(WIDE, names[::2])):
        chooser = Chooser(900 + number)
        made.append(Case(problem_of(((), (), extents), each, chooser), "any", 900 + number))
    made += [
        layer(place, factor, 950 + number)
        for number, (place, factor) in enumerate(itertools.product(LAYERS, FACTORS))
    ]
    return tuple(made)


def layer(place: tuple[Extents, Extents, Extents], factor: str, seed: int) -> Case:
    """A product as a layer has it, in the order of the tensor cores."""
    of_input, of_weight, (m, n, k) = place
    chooser = Chooser(seed)
    shapes = (*of_input, m, k), (*of_weight, n, k)
    addends = chooser.pick(OPTIONAL), chooser.pick(OPTIONAL)
    output = OUTPUTS[seed % len(OUTPUTS)]
    problem = FloatMatmulProblem(*shapes, factor, output, False, False, "tensor_sm90", *addends)
    return Case(problem, KINDS[seed % len(KINDS)], seed)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without outputs, or without terms: what becomes of a sum of 0."""
    names = itertools.cycle(itertools.product(ORDERS, FACTORS, OUTPUTS))
    return tuple(
        Case(problem_of(place, next(names), Chooser(number)), "any", number)
        for number, place in enumerate(EMPTY * 4)
    )
