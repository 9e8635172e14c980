"""The fixed problems of `linear_4bit`."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

from planq.audit.ops.linear.coded_places import (
    EMPTY,
    EMPTY_RUNS,
    GROUPS,
    OPTIONAL,
    ORDERS,
    OUTPUTS,
    PLACES,
    RUN_BLOCKS,
    RUN_GROUPS,
    RUN_TYPES,
    RUNS,
    SCALES,
    SEGMENTS,
    STREAMED,
    TYPED,
    TYPED_ORDERS,
    ZERO_POINTS,
    Extents,
)
from planq.audit.ops.linear.linear_4bit.reference import FourBitProblem
from planq.audit.ops.linear.products import KINDS, Case
from planq.audit.reference.inputs import Chooser

CODEBOOKS = ("nf4", "fp4", "af4", "int4", "given")
BLOCKS = (64, 32, 128, 1, 7, 4096)
NESTED = (None, None, 256, 3)


def problem_of(
    place: tuple[Extents, Extents], names: tuple[tuple[str, str], str], chooser: Chooser
) -> FourBitProblem:
    """The problem with the rest of its fields drawn."""
    outer, (m, n, k) = place
    (accumulation, input_dtype), output_dtype = names
    fields: dict[str, Any] = {
        "weight_dtype": chooser.pick((None, *OUTPUTS)) if accumulation == "lanes" else None,
        "bias_dtype": chooser.pick(OPTIONAL),
        "residual_dtype": chooser.pick(OPTIONAL),
    }
    tiles = n % 64 == 0 and k % 64 == 0
    layout = chooser.pick(("row_major", "row_major", "packed") + ("reordered",) * 3 * tiles)
    if layout != "reordered" and chooser.pick((True, True, False)):
        fields["codebook"] = chooser.pick(CODEBOOKS)
        fields["block_size"] = chooser.pick(BLOCKS)
        fields["nested_block_size"] = chooser.pick(NESTED)
    else:
        fields["weight_scope"] = ("group", chooser.pick(GROUPS), 1)
        fields["code_dtype"] = chooser.pick(("int4", "uint4")) if layout != "reordered" else "int4"
        fields["weight_mode"] = chooser.pick(("symmetric", "asymmetric"))
    if layout == "row_major":
        fields["nibble_order"] = chooser.pick(("high_first", "low_first"))
    fields["weight_layout"] = layout
    return FourBitProblem(
        (*outer, m, k), (n, k), input_dtype, output_dtype, accumulation=accumulation, **fields
    )


def streamed_problem(
    place: tuple[Extents, Extents], weight_dtype: str, chooser: Chooser
) -> FourBitProblem:
    """A problem of few rows in the order LANES, whose codes are read by vectors."""
    outer, (m, n, k) = place
    fields: dict[str, Any] = {
        "weight_dtype": weight_dtype,
        "nibble_order": chooser.pick(("high_first", "low_first")),
        "bias_dtype": chooser.pick(OPTIONAL),
    }
    if chooser.pick((True, False)):
        fields["codebook"] = chooser.pick(CODEBOOKS)
        fields["block_size"] = chooser.pick(SEGMENTS)
        fields["nested_block_size"] = chooser.pick(NESTED)
    else:
        fields["weight_scope"] = ("group", chooser.pick(SEGMENTS), 1)
        fields["code_dtype"] = chooser.pick(("int4", "uint4"))
        fields["weight_mode"] = chooser.pick(("symmetric", "asymmetric"))
    types = chooser.pick(OUTPUTS), chooser.pick(OUTPUTS)
    return FourBitProblem((*outer, m, k), (n, k), *types, accumulation="lanes", **fields)


def run_problem(
    place: tuple[Extents, Extents], types: tuple[str, str], chooser: Chooser
) -> FourBitProblem:
    """A problem whose sums meet their scales."""
    outer, (m, n, k) = place
    fields: dict[str, Any] = {
        "bias_dtype": chooser.pick(OPTIONAL),
        "residual_dtype": chooser.pick(OPTIONAL),
        "accumulation": "groups_sm90",
    }
    tiles = n % 64 == 0 and k % 64 == 0
    layout = chooser.pick(("row_major", "packed") + ("reordered",) * tiles)
    blocks = tuple(size for size in RUN_BLOCKS if k % size == 0)
    if blocks and layout != "reordered" and chooser.pick((True, True, False)):
        fields["codebook"] = chooser.pick(CODEBOOKS)
        fields["block_size"] = chooser.pick(blocks)
        fields["nested_block_size"] = chooser.pick(NESTED)
    else:
        fields["weight_scope"] = ("group", chooser.pick(RUN_GROUPS), 1)
        fields["code_dtype"] = chooser.pick(("int4", "uint4")) if layout != "reordered" else "int4"
        fields["weight_mode"] = chooser.pick(("symmetric", "asymmetric"))
    if layout == "row_major":
        fields["nibble_order"] = chooser.pick(("high_first", "low_first"))
    fields["weight_layout"] = layout
    return FourBitProblem((*outer, m, k), (n, k), *types, **fields)


def typed_problem(
    place: tuple[Extents, Extents], accumulation: str, chooser: Chooser
) -> FourBitProblem:
    """A problem of floats of 4 bits, or of other scales than float32."""
    outer, (m, n, k) = place
    code_dtype = chooser.pick(("float4_e2m1fn", "float4_e2m1fn", "int4", "uint4"))
    shifted = code_dtype != "float4_e2m1fn" and chooser.pick((True, False))
    size = chooser.pick(RUN_GROUPS if accumulation == "groups_sm90" else (32, 13, 128))
    return FourBitProblem(
        (*outer, m, k),
        (n, k),
        *chooser.pick(tuple(itertools.product(RUN_TYPES, OUTPUTS))),
        code_dtype,
        weight_scope=("group", chooser.pick((16, 32, size)), 1),
        weight_mode="asymmetric" if shifted else "symmetric",
        nibble_order=chooser.pick(("high_first", "low_first")),
        accumulation=accumulation,
        bias_dtype=chooser.pick(OPTIONAL),
        scale_dtype=chooser.pick(SCALES),
        zero_point_dtype=chooser.pick(ZERO_POINTS) if shifted else "int32",
    )


@cache
def cases() -> tuple[Case, ...]:
    """Every order of sums with every type in several places, then those read by vectors.

    Then those whose sums meet their scales, and those of other codes and scales.
    """
    place = itertools.cycle(PLACES)
    made: list[Case] = []
    for names in list(itertools.product(ORDERS, OUTPUTS)) * 4:
        seed = len(made)
        chooser = Chooser(seed)
        made.append(Case(problem_of(next(place), names, chooser), chooser.pick(KINDS), seed))
    for streamed, weight_dtype in itertools.product(STREAMED, OUTPUTS):
        seed = len(made)
        chooser = Chooser(seed)
        problem = streamed_problem(streamed, weight_dtype, chooser)
        made.append(Case(problem, chooser.pick(KINDS), seed))
    types = itertools.cycle(itertools.product(RUN_TYPES, OUTPUTS))
    for place_of_runs in RUNS * 3:
        seed = len(made)
        chooser = Chooser(seed)
        problem = run_problem(place_of_runs, next(types), chooser)
        made.append(Case(problem, chooser.pick(KINDS), seed))
    for typed, accumulation in itertools.product(TYPED * 2, TYPED_ORDERS):
        seed = len(made)
        chooser = Chooser(seed)
        problem = typed_problem(typed, accumulation, chooser)
        made.append(Case(problem, chooser.pick(KINDS), seed))
    return tuple(made)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Without outputs, or without terms: what becomes of a sum of 0."""
    names = itertools.cycle(itertools.product(ORDERS, OUTPUTS))
    types = itertools.cycle(itertools.product(RUN_TYPES, OUTPUTS))
    made = [problem_of(place, next(names), Chooser(i)) for i, place in enumerate(EMPTY * 3)]
    made += [run_problem(place, next(types), Chooser(i)) for i, place in enumerate(EMPTY_RUNS * 2)]
    return tuple(Case(problem, "any", number) for number, problem in enumerate(made))
