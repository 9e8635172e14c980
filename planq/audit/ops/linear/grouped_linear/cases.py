"""The fixed problems of `grouped_linear`."""

from __future__ import annotations

import itertools
from functools import cache

from planq.audit.ops.linear.coded_places import (
    OPTIONAL,
    OUTPUTS,
    RUN_BLOCKS,
    RUN_GROUPS,
    RUN_TYPES,
    SCALES,
    ZERO_POINTS,
    Extents,
)
from planq.audit.ops.linear.grouped_linear.reference import FP8, GroupedProblem
from planq.audit.ops.linear.linear_fp8.reference import BLOCKS
from planq.audit.ops.linear.products import KINDS, Case
from planq.audit.reference.inputs import Chooser

CODES = ("uint4", "int4", "float4_e2m1fn", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
# (experts, m, n, k): experts without rows, one expert, spans with a rest, rows in several tiles.
PLACES: tuple[Extents, ...] = (
    (4, 7, 20, 128),
    (1, 5, 33, 256),
    (9, 6, 17, 96),
    (3, 40, 16, 130),
    (2, 70, 24, 1184),
    (16, 33, 8, 64),
    (3, 12, 64, 512),
    (5, 1, 9, 31),
)
# The same for blocks, which divide k: experts that begin within a nested block, and a rest of k.
BLOCK_PLACES: tuple[Extents, ...] = (
    (4, 7, 20, 128),
    (1, 5, 33, 256),
    (9, 6, 17, 96),
    (2, 70, 24, 1184),
    (3, 12, 64, 512),
    (5, 37, 9, 1088),
    (16, 3, 8, 64),
)
# The same for codes on both sides: whole slices and blocks of columns, and not.
BOTH_PLACES: tuple[Extents, ...] = (
    (4, 7, 20, 128),
    (1, 5, 33, 256),
    (9, 6, 17, 96),
    (3, 40, 16, 130),
    (2, 70, 140, 304),
    (16, 33, 8, 64),
    (3, 12, 64, 512),
    (5, 1, 9, 31),
    (3, 150, 272, 1184),
)
BOTH_TYPES = (("int8", "int8"), *itertools.product(FP8, FP8))
BOTH_SCOPES = ((None, ("token",)), BLOCKS)
CODEBOOKS = ("nf4", "fp4", "af4", "int4", "given")
NESTED = (None, 256, 3, 48)
EMPTY: tuple[Extents, ...] = ((3, 0, 5, 64), (3, 5, 0, 64), (2, 4, 6, 0))


def problem_of(place: Extents, types: tuple[str, str], chooser: Chooser) -> GroupedProblem:
    """The problem with the rest of its fields drawn."""
    experts, m, n, k = place
    code_dtype = chooser.pick(CODES)
    grouped = chooser.pick((True, True, False))
    shifted = not code_dtype.startswith("float") and grouped and chooser.pick((True, False))
    return GroupedProblem(
        (m, k),
        (experts, n, k),
        *types,
        code_dtype,
        weight_scope=("group", chooser.pick(RUN_GROUPS), 2) if grouped else ("token",),
        weight_mode="asymmetric" if shifted else "symmetric",
        scale_dtype=chooser.pick(SCALES if grouped else (*SCALES[:2], "float32")),
        zero_point_dtype=chooser.pick(ZERO_POINTS) if shifted else "int32",
        nibble_order=chooser.pick(("low_first", "high_first")),
        bias_dtype=chooser.pick(OPTIONAL),
    )


def block_problem(
    place: Extents, types: tuple[str, str], codebook: str, chooser: Chooser
) -> GroupedProblem:
    """A problem of blocks with the rest of its fields drawn."""
    experts, m, n, k = place
    return GroupedProblem(
        (m, k),
        (experts, n, k),
        *types,
        nibble_order=chooser.pick(("high_first", "low_first")),
        bias_dtype=chooser.pick(OPTIONAL),
        codebook=codebook,
        block_size=chooser.pick(tuple(size for size in RUN_BLOCKS if k % size == 0)),
        nested_block_size=chooser.pick(NESTED),
    )


def both_problem(
    place: Extents, types: tuple[str, str], output_dtype: str, chooser: Chooser
) -> GroupedProblem:
    """A problem of codes on both sides with the rest of its fields drawn."""
    experts, m, n, k = place
    input_dtype, code_dtype = types
    scopes = BOTH_SCOPES[0] if input_dtype == "int8" else chooser.pick(BOTH_SCOPES)
    return GroupedProblem(
        (m, k),
        (experts, n, k),
        input_dtype,
        output_dtype,
        code_dtype,
        weight_scope=scopes[1],
        bias_dtype=chooser.pick(OPTIONAL),
        input_scope=scopes[0],
    )


@cache
def cases() -> tuple[Case, ...]:
    """Every place several times, with codes, scales and groups in turn; then with blocks.

    Then codes on both sides, half of them int8.
    """
    types = itertools.cycle(itertools.product(RUN_TYPES, OUTPUTS))
    made: list[Case] = []
    for place in PLACES * 6:
        seed = len(made)
        chooser = Chooser(seed)
        made.append(Case(problem_of(place, next(types), chooser), chooser.pick(KINDS), seed))
    books = itertools.cycle(CODEBOOKS)
    for place in BLOCK_PLACES * 4:
        seed = len(made)
        chooser = Chooser(seed)
        problem = block_problem(place, next(types), next(books), chooser)
        made.append(Case(problem, chooser.pick(KINDS), seed))
    both = itertools.cycle(each for other in BOTH_TYPES[1:] for each in (BOTH_TYPES[0], other))
    for place, output_dtype in itertools.product(BOTH_PLACES, OUTPUTS * 2):
        seed = len(made)
        chooser = Chooser(seed)
        problem = both_problem(place, next(both), output_dtype, chooser)
        made.append(Case(problem, chooser.pick(KINDS), seed))
    return tuple(made)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without outputs, or without terms: what becomes of a sum of 0."""
    types = itertools.cycle(itertools.product(RUN_TYPES, OUTPUTS))
    made = [problem_of(place, next(types), Chooser(i)) for i, place in enumerate(EMPTY * 4)]
    books = itertools.cycle(CODEBOOKS)
    made += [block_problem(place, next(types), next(books), Chooser(9)) for place in EMPTY]
    both = itertools.product(EMPTY, BOTH_TYPES)
    made += [both_problem(place, types, "bfloat16", Chooser(9)) for place, types in both]
    return tuple(Case(problem, "any", number) for number, problem in enumerate(made))
