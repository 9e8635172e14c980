"""The fixed problems of `linear_gguf_merged`."""

from __future__ import annotations

import itertools
import math
from functools import cache

from planq.audit.ops.elementwise.elements import TYPES
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.linear_gguf.cases import KNOWN
from planq.audit.ops.gguf.linear_gguf_merged.reference import LinearGgufMergedProblem, row_bytes
from planq.audit.ops.linear.coded_places import OPTIONAL
from planq.audit.ops.linear.products import KINDS, Case
from planq.audit.reference.inputs import Chooser

Extents = tuple[int, ...]
# Leading axes of the input with m, and the rows of each weight: of few tokens, and of many.
FEW: tuple[tuple[Extents, Extents], ...] = (
    ((1,), (64, 16, 16)),
    ((2, 1), (37, 5)),
    ((5,), (33, 1, 70, 16)),
    ((1,), (130,)),
    ((3, 2), (16, 48)),
    ((8,), (7, 9, 0, 2, 33)),
)
MANY: tuple[tuple[Extents, Extents], ...] = (
    ((16,), (48, 17)),
    ((33,), (17, 64, 5)),
    ((2, 11), (33,)),
    ((70,), (16, 32, 1, 8)),
    ((3, 2, 9), (19, 20)),
)
# Terms, in whole blocks of all types.
RUNS = (1, 3, 2, 1, 5)
# From codes to every output; then floats, a pair at a time.
CODES = tuple(("int8", out) for out in TYPES)
FLOATS = tuple(itertools.product(TYPES, TYPES))


def problem_of(
    place: tuple[Extents, Extents],
    types: tuple[str, ...],
    runs: int,
    dtypes: tuple[str, str],
    chooser: Chooser,
) -> LinearGgufMergedProblem:
    """The problem with the rest of its fields drawn."""
    outer, rows = place
    k = runs * math.lcm(*(FORMATS[kind].elements for kind in types))
    weights = tuple((n, row_bytes(kind, k)) for n, kind in zip(rows, types, strict=True))
    own = (chooser.pick(OPTIONAL), chooser.pick(OPTIONAL))
    return LinearGgufMergedProblem((*outer, k), weights, types, *dtypes, *own)


def types_of(count: int, seed: int) -> tuple[str, ...]:
    """Types of so many weights: every third time one, else neighbours in a changing distance."""
    step = seed % 3 * (1 + seed // len(KNOWN) % 5)
    return tuple(KNOWN[(seed + i * step) % len(KNOWN)] for i in range(count))


@cache
def cases() -> tuple[Case, ...]:
    """Of codes and of floats, of few tokens and of many, with every type first at some time."""
    made: list[Case] = []
    for dtypes, places in itertools.product((*CODES, *CODES, *FLOATS), (FEW, MANY)):
        for _ in range(3):
            seed = len(made)
            place = places[seed // 2 % len(places)]
            types = types_of(len(place[1]), seed)
            problem = problem_of(place, types, RUNS[seed % len(RUNS)], dtypes, Chooser(seed))
            made.append(Case(problem, KINDS[seed // 3 % len(KINDS)], seed))
    return tuple(made)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without rows, without columns, or without terms: what becomes of a sum of 0."""
    made: list[Case] = []
    empty = (((0,), (5, 3), 1), ((5,), (0, 0), 1), ((4,), (7, 3), 0), ((2, 0), (3,), 2))
    for (outer, rows, runs), dtype in itertools.product(empty, ("int8", *TYPES)):
        seed = len(made)
        types = types_of(len(rows), seed)
        dtypes = (dtype, TYPES[seed % 3])
        problem = problem_of((outer, rows), types, runs, dtypes, Chooser(seed))
        made.append(Case(problem, "any", seed))
    return tuple(made)
