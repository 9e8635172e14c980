"""The fixed problems of `matmul_int8`."""

from __future__ import annotations

import itertools
from functools import cache

from planq.audit.ops.linear.matmul_int8.reference import MatmulProblem
from planq.audit.ops.linear.products import CODES, KINDS, Case
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
    ((), (), (100, 131, 257)),
    ((2, 1), (1, 3), (3, 20, 33)),
    ((), (), (2, 64, 128)),
    ((), (), (64, 64, 512)),
    ((1,), (4,), (16, 24, 96)),
    ((), (), (17, 1, 1030)),
    ((2,), (2,), (1, 40, 80)),
    ((), (), (128, 192, 320)),
    ((2, 2, 1, 1, 2), (3, 1, 2), (3, 2, 17)),
    ((), (), (5, 300, 1)),
    ((3,), (), (1, 33, 65)),
    ((), (), (9, 16, 15)),
    ((), (), (98, 70, 3)),
)
WIDE: tuple[Extents, ...] = (
    (1, 512, 2048),
    (300, 512, 640),
    (4, 1000, 1026),
    (1030, 96, 258),
    (16, 520, 4096),
    (256, 256, 1024),
)
# As layers have them: both sides with k innermost, in whole vectors.
LAYERS: tuple[tuple[Extents, Extents, Extents], ...] = (
    ((), (), (1, 130, 256)),
    ((), (), (7, 48, 64)),
    ((3,), (3,), (40, 136, 96)),
    ((2,), (), (33, 260, 1024)),
    ((), (), (64, 64, 512)),
    ((), (), (128, 192, 320)),
    ((), (), (300, 512, 640)),
)
# As many terms as a sum in int32 admits: of ends, the largest there is.
LONG = (("int8", "int8", 131071), ("uint8", "uint8", 33025), ("uint8", "int8", 65793))
EMPTY: tuple[tuple[Extents, Extents, Extents], ...] = (
    ((), (), (0, 5, 7)),
    ((), (), (5, 0, 7)),
    ((), (), (5, 7, 0)),
    ((), (), (0, 0, 0)),
    ((0,), (), (3, 4, 5)),
    ((2,), (2,), (3, 70, 0)),
    ((0,), (1,), (2, 2, 0)),
)


def problem_of(
    place: tuple[Extents, Extents, Extents], dtypes: tuple[str, str, str], chooser: Chooser
) -> MatmulProblem:
    """The problem, each side stored one way or the other."""
    of_input, of_weight, (m, n, k) = place
    turned, turned_weight = chooser.pick((False, True)), chooser.pick((False, True))
    return MatmulProblem(
        (*of_input, k, m) if turned else (*of_input, m, k),
        (*of_weight, k, n) if turned_weight else (*of_weight, n, k),
        *dtypes,
        turned,
        turned_weight,
    )


@cache
def cases() -> tuple[Case, ...]:
    """Every pair of types in several places, and large products."""
    kinds = list(itertools.product(CODES, CODES, ("int32", "int32", "int8")))
    place = itertools.cycle(PLACES)
    made: list[Case] = []
    for dtypes in kinds * 3:
        seed = len(made)
        chooser = Chooser(seed)
        made.append(Case(problem_of(next(place), dtypes, chooser), chooser.pick(KINDS), seed))
    for number, extents in enumerate(WIDE * 2):
        chooser = Chooser(900 + number)
        dtypes = (
            kinds[number * 7 % len(kinds)] if number >= len(WIDE) else ("int8",) * 2 + ("int32",)
        )
        problem = problem_of(((), (), extents), dtypes, chooser)
        made.append(Case(problem, "any", 900 + number))
    for first, second, k in LONG:
        problem = MatmulProblem((2, k), (3, k), first, second)
        made += [Case(problem, "lowest"), Case(problem, "ends", 5)]
    for number, ((of_input, of_weight, (m, n, k)), pair) in enumerate(
        itertools.product(LAYERS, (("int8", "int8"), ("uint8", "int8")))
    ):
        problem = MatmulProblem((*of_input, m, k), (*of_weight, n, k), *pair, "int32")
        made.append(Case(problem, KINDS[number % len(KINDS)], 950 + number))
    return tuple(made)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without outputs, or without terms."""
    return tuple(
        Case(problem_of(place, (dtype, dtype, "int32"), Chooser(number)), "any", number)
        for number, (place, dtype) in enumerate(itertools.product(EMPTY, CODES))
    )
