"""The fixed problems of `linear_mixed`."""

from __future__ import annotations

import itertools
from functools import cache

from planq.audit.ops.linear.coded_places import (
    EMPTY,
    EMPTY_RUNS,
    GROUPS,
    OPTIONAL,
    ORDERS,
    OUTPUTS,
    PLACES,
    RUN_GROUPS,
    RUN_TYPES,
    RUNS,
    SCALES,
    STREAMED,
    TYPED,
    TYPED_ORDERS,
    ZERO_POINTS,
    Extents,
)
from planq.audit.ops.linear.linear_mixed.reference import MixedProblem
from planq.audit.ops.linear.products import KINDS, Case
from planq.audit.reference.inputs import Chooser


def problem_of(
    place: tuple[Extents, Extents], names: tuple[tuple[str, str], str], chooser: Chooser
) -> MixedProblem:
    """The problem with the rest of its fields drawn."""
    outer, (m, n, k) = place
    (accumulation, input_dtype), output_dtype = names
    code_dtype = chooser.pick(("int8", "int4"))
    tiles = n % 64 == 0 and k % 64 == 0
    layouts = ("row_major",) + ("packed",) * (code_dtype == "int4") + ("reordered",) * 2 * tiles
    layout = chooser.pick(layouts)
    grouped = chooser.pick((True, False))
    orders = ("low_first", "high_first") if layout == "row_major" else ("low_first",)
    return MixedProblem(
        (*outer, m, k),
        (n, k),
        input_dtype,
        output_dtype,
        code_dtype,
        chooser.pick((None, *OUTPUTS)) if accumulation == "lanes" else None,
        ("group", chooser.pick(GROUPS), 1) if grouped else ("channel", 0),
        chooser.pick(("symmetric", "asymmetric")) if grouped else "symmetric",
        chooser.pick(orders),
        layout,
        accumulation,
        chooser.pick(OPTIONAL),
        chooser.pick(OPTIONAL),
    )


def run_problem(
    place: tuple[Extents, Extents], types: tuple[str, str], chooser: Chooser
) -> MixedProblem:
    """A problem whose sums meet their scales, those of channels, too."""
    outer, (m, n, k) = place
    code_dtype = chooser.pick(("int8", "int4"))
    tiles = n % 64 == 0 and k % 64 == 0
    layouts = ("row_major",) + ("packed",) * (code_dtype == "int4") + ("reordered",) * tiles
    layout = chooser.pick(layouts)
    grouped = chooser.pick((True, True, False))
    return MixedProblem(
        (*outer, m, k),
        (n, k),
        *types,
        code_dtype,
        weight_scope=("group", chooser.pick(RUN_GROUPS), 1) if grouped else ("channel", 0),
        weight_mode=chooser.pick(("symmetric", "asymmetric")) if grouped else "symmetric",
        nibble_order=chooser.pick(("low_first", "high_first"))
        if layout == "row_major"
        else "low_first",
        weight_layout=layout,
        accumulation="groups_sm90",
        bias_dtype=chooser.pick(OPTIONAL),
        residual_dtype=chooser.pick(OPTIONAL),
    )


def typed_problem(
    place: tuple[Extents, Extents], accumulation: str, chooser: Chooser
) -> MixedProblem:
    """A problem of other codes than signed integers, or of other scales than float32."""
    outer, (m, n, k) = place
    code_dtype = chooser.pick(("uint8", "float8_e4m3fn", "float8_e5m2", "int8", "int4"))
    grouped = chooser.pick((True, True, False))
    shifted = grouped and not code_dtype.startswith("float") and chooser.pick((True, False))
    size = chooser.pick(RUN_GROUPS if accumulation == "groups_sm90" else (32, 13, 128))
    return MixedProblem(
        (*outer, m, k),
        (n, k),
        *chooser.pick(tuple(itertools.product(RUN_TYPES, OUTPUTS))),
        code_dtype,
        weight_scope=("group", size, 1) if grouped else ("channel", 0),
        weight_mode="asymmetric" if shifted else "symmetric",
        accumulation=accumulation,
        bias_dtype=chooser.pick(OPTIONAL),
        scale_dtype=chooser.pick(SCALES if grouped else (*SCALES[:2], "float32")),
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
    # Codes of channels, which belong to no segment.
    for (outer, (m, n, k)), weight_dtype in itertools.product(STREAMED, OUTPUTS):
        seed = len(made)
        chooser = Chooser(seed)
        types = chooser.pick(OUTPUTS), chooser.pick(OUTPUTS)
        problem = MixedProblem(
            (*outer, m, k), (n, k), *types, "int4", weight_dtype, accumulation="lanes"
        )
        made.append(Case(problem, chooser.pick(KINDS), seed))
    types_of_runs = itertools.cycle(itertools.product(RUN_TYPES, OUTPUTS))
    for place_of_runs in RUNS * 3:
        seed = len(made)
        chooser = Chooser(seed)
        problem = run_problem(place_of_runs, next(types_of_runs), chooser)
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
