"""The fixed problems of `linear_gguf`."""

from __future__ import annotations

import itertools
from functools import cache

from planq.audit.ops.elementwise.elements import TYPES
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.grids import GRIDS
from planq.audit.ops.gguf.linear_gguf.reference import LinearGgufProblem
from planq.audit.ops.linear.coded_places import OPTIONAL
from planq.audit.ops.linear.products import KINDS, Case
from planq.audit.reference.inputs import Chooser

Extents = tuple[int, ...]
KNOWN = tuple(kind for kind in FORMATS if kind not in ("q8_1", "q8_k"))  # the others are no weights
PLAIN = tuple(kind for kind in KNOWN if kind not in GRIDS)
# Leading axes of the input, and (m, n): of few tokens, and of many.
FEW: tuple[tuple[Extents, Extents], ...] = (
    ((), (1, 37)),
    ((2,), (1, 16)),
    ((), (8, 33)),
    ((), (1, 70)),
    ((), (5, 64)),
    ((3,), (2, 17)),
    ((), (2, 130)),
)
MANY: tuple[tuple[Extents, Extents], ...] = (
    ((), (16, 48)),
    ((), (33, 17)),
    ((2,), (9, 64)),
    ((), (64, 32)),
    ((), (17, 130)),
    ((3, 2), (11, 5)),
    ((), (70, 65)),
)
# Terms, in blocks of up to 128 elements and of 256: spans that are whole, cut short, one block.
STEPS = (1, 8, 9, 7, 24, 3, 33)
RUNS = (1, 2, 4, 3, 1)
# Several spans, whose sums show every rounding.
LONG = (33, 24, 17), (3, 2, 4)
EMPTY: tuple[tuple[Extents, Extents], ...] = (
    ((), (0, 5, 1)),
    ((), (5, 0, 1)),
    ((), (5, 7, 0)),
    ((0,), (3, 4, 2)),
    ((2,), (3, 70, 0)),
)


def terms_of(kind: str, place: int, *, long: bool) -> int:
    """Whole blocks."""
    elements = FORMATS[kind].elements
    counts = (LONG if long else (STEPS, RUNS))[elements == 256]
    return counts[place % len(counts)] * elements


def problem_of(
    kind: str, place: tuple[Extents, Extents], k: int, dtypes: tuple[str, str], chooser: Chooser
) -> LinearGgufProblem:
    """The problem with the rest of its fields drawn."""
    outer, (m, n) = place
    own = (chooser.pick(OPTIONAL), chooser.pick(OPTIONAL))
    return LinearGgufProblem((*outer, m, k), (n, k), kind, *dtypes, *own)


def types_of(number: int) -> tuple[tuple[str, str], ...]:
    """From codes to every output, to float32 of all kinds too; then floats, all pairs in turn."""
    codes = ("float32", "float16", "bfloat16", "float32")
    floats = TYPES[number % 3], TYPES[number // 3 % 3]
    return (*(("int8", out) for out in codes), floats)


@cache
def cases() -> tuple[Case, ...]:
    """Every type of blocks with these, of few tokens and of many."""
    made: list[Case] = []
    for number, kind in enumerate(KNOWN):
        for turn, (dtypes, places) in enumerate(itertools.product(types_of(number), (FEW, MANY))):
            seed = len(made)
            telling = turn < 2
            k = terms_of(kind, seed // 3, long=telling)
            place = places[(seed // 2) % len(places)]
            data = "any" if telling else KINDS[(seed + number) % len(KINDS)]
            made.append(Case(problem_of(kind, place, k, dtypes, Chooser(seed)), data, seed))
    return tuple(made)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without outputs, or without terms: what becomes of a sum of 0."""
    made: list[Case] = []
    for (outer, (m, n, blocks)), dtype in itertools.product(EMPTY, ("int8", *TYPES)):
        seed = len(made)
        kind = PLAIN[seed % len(PLAIN)]
        k = blocks * FORMATS[kind].elements
        dtypes = (dtype, TYPES[seed % 3])
        problem = problem_of(kind, (outer, (m, n)), k, dtypes, Chooser(seed))
        made.append(Case(problem, "any", seed))
    return tuple(made)
