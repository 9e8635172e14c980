"""Shapes that reach every instantiation of the GPU kernels.

An instantiation is what the compiler makes of a kernel template for one way to spread a segment
over threads: over some lanes of a warp, a warp, a block or a cluster of blocks, with so many
vectors of 16 bytes for each thread, and with segments that consist of whole vectors or have single
elements at their edges. The shapes are written in vectors, so that one table serves every input
dtype. Nothing depends on the thresholds being these: a kernel that the shapes miss is found by
tests/registry/test_coverage.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from planq.audit.ops.affine.cases import OUTPUTS
from planq.audit.ops.affine.dynamic_range_quantize.cases import KINDS, Case, modes_of, variant
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference.formats import INPUT_DTYPES, VECTOR
from planq.audit.reference.inputs import Chooser

TILE_FROM = 30000  # elements; values of their own would take long to make
SCOPES = ("token", "tensor", "channel", "group")
NIBBLES = ("int4", "uint4")
ONE_A_CLASS = (("int8", "low_first"), ("int4", "low_first"), ("float8_e4m3fn", "low_first"))


@dataclass(frozen=True)
class Segments:
    """`count` segments of `vectors` vectors and `extra` elements (-1: one less)."""

    count: int
    vectors: int
    extra: int = 0


# For each way to lay out segments four slots, an instantiation each; in a slot any choice will do.
WHOLE: dict[str, tuple[tuple[Segments, ...], ...]] = {
    "row_lanes": (
        (Segments(70, 1), Segments(1, 1), Segments(129, 1)),
        (Segments(33, 2), Segments(5, 2), Segments(70, 2)),
        (Segments(9, 4), Segments(20, 3), Segments(6, 8)),
        (Segments(3, 32), Segments(4, 20), Segments(7, 16)),
    ),
    "row_registers": (
        (Segments(5, 33), Segments(3, 64), Segments(9, 40)),
        (Segments(3, 100), Segments(5, 65), Segments(2, 128)),
        (Segments(2, 300), Segments(1, 1024), Segments(5, 129)),
        (Segments(2, 1100), Segments(1, 1535), Segments(1, 1280)),
    ),
    "row_cluster": (
        (Segments(2, 1536), Segments(1, 1600), Segments(3, 2000)),
        (Segments(1, 4000), Segments(2, 1792), Segments(1, 2500)),
        (Segments(1, 8200), Segments(1, 8704)),
        (Segments(1, 1537), Segments(5, 1540)),
    ),
}
EDGES: dict[str, tuple[tuple[Segments, ...], ...]] = {
    "row_lanes": (
        (Segments(40, 0, 1), Segments(17, 1, 1), Segments(9, 1, -1)),
        (Segments(19, 3, 1), Segments(7, 2, -1), Segments(130, 2, 1)),
        (Segments(9, 7, -1), Segments(5, 12, 1), Segments(20, 5, 1)),
        (Segments(3, 31, 1), Segments(4, 32, -1), Segments(5, 20, 1)),
    ),
    "row_registers": (
        (Segments(5, 33, 1), Segments(3, 64, -1), Segments(9, 40, 1)),
        (Segments(3, 100, 1), Segments(5, 65, 1), Segments(2, 128, -1)),
        (Segments(2, 300, 1), Segments(1, 1023, -1), Segments(5, 130, -1)),
        (Segments(2, 1100, 1), Segments(1, 1535, -1), Segments(1, 1280, 1)),
    ),
    "row_cluster": (
        (Segments(2, 1536, 1), Segments(1, 1600, -1), Segments(3, 2000, 1)),
        (Segments(1, 4000, 1), Segments(2, 1792, -1), Segments(1, 2500, 1)),
        (Segments(1, 8200, 1), Segments(1, 8704, -1)),
        (Segments(1, 1537, -1), Segments(5, 1540, 1)),
    ),
}
# Enough segments that more than one multiprocessor's worth waits, or that a cluster stays small.
LARGE: tuple[tuple[str, Segments], ...] = (
    ("row_lanes", Segments(17001, 2)),
    ("row_lanes", Segments(8501, 4)),
    ("row_lanes", Segments(4301, 8)),
    ("row_registers", Segments(140, 40)),
    ("row_registers", Segments(140, 100)),
    ("row_registers", Segments(17, 2100)),
    ("row_registers", Segments(18, 2050, -1)),
)
LARGEST: tuple[tuple[str, Segments], ...] = (
    ("row_cluster", Segments(1, 16400)),
    ("row_cluster", Segments(1, 17000, 1)),
    ("row_cluster", Segments(17, 4100)),
    ("row_cluster", Segments(17, 4100, 1)),
    ("row_cluster", Segments(17, 8200)),
    ("row_cluster", Segments(17, 8200, -1)),
)
# Shape in rows and vectors plus elements, and scope.
COLUMNS: dict[str, tuple[tuple[tuple[int, ...], int, ScopeSpec], ...]] = {
    "columns": (
        ((300, 8), 0, ("channel", -1)),
        ((6, 4, 4), 0, ("channel", 1)),
        ((70, 33), 1, ("channel", -1)),
        ((3, 5, 16), 1, ("channel", -1)),
        ((9, 7, 3), -1, ("channel", 1)),
        ((40, 64), 0, ("channel", -1)),
    ),
    "column_groups": (
        ((48, 8), 0, ("group", 16, 0)),
        ((2, 7, 40), 0, ("group", 3, 1)),
        ((50, 4), 1, ("group", 16, 0)),
        ((65, 33), -1, ("group", 64, -2)),
        ((2, 7, 3), 1, ("group", 2, -2)),
        ((130, 2), 0, ("group", 128, 0)),
    ),
}
# The same, and rows, vectors and elements of a block.
TILES: tuple[tuple[tuple[int, ...], int, tuple[int, int, int]], ...] = (
    ((256, 32), 0, (128, 16, 0)),
    ((300, 40), 0, (128, 16, 0)),
    ((2, 40, 6), 0, (16, 3, 0)),
    ((70, 9), 0, (64, 64, 0)),
    ((9, 5), 0, (4, 1, 0)),
    ((200, 48), 0, (128, 32, 0)),
    ((640, 72), 0, (16, 16, 0)),
    ((130, 33), 1, (128, 16, 0)),
    ((33, 5), -1, (8, 2, 0)),
    ((2, 19, 4), 1, (5, 16, 0)),
    ((40, 6), 0, (1, 2, 0)),
    ((5, 100), 0, (1, 40, 0)),
    ((40, 6), 1, (16, 0, 1)),
    ((17, 6), 1, (3, 2, 1)),
)


@dataclass(frozen=True)
class InstantiationCase:
    """A case with the kernel that it is meant for."""

    body: str
    case: Case

    @property
    def name(self) -> str:
        """The kernel's name in the tests."""
        problem = self.case.problem
        short = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
        codes = {"int8": "s8", "uint8": "u8", "int4": "s4", "uint4": "u4"}
        codes |= {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
        types = f"{short[problem.input_dtype]}_{codes[problem.output_dtype]}"
        return f"dynamic_range_quantize.{problem.scope[0]}/cuda/{types}:{self.body}"


def laid_out(
    segments: Segments, kind: str, vector: int, nibbles: bool, shorter: bool
) -> tuple[tuple[int, ...], ScopeSpec]:
    """A shape and a scope with these segments; a tensor is one. `shorter` also varies the shape."""
    length = segments.vectors * vector + segments.extra
    folded = shorter and length % 2 == 0
    if kind == "tensor":
        return ((2, length // 2) if folded else (length,)), ("tensor",)
    if kind == "channel":
        return (segments.count, *((2, length // 2) if folded else (length,))), ("channel", 0)
    if kind == "token":
        return ((1,) if shorter else ()) + (segments.count, length), ("token",)
    # Groups of 4-bit codes share no byte, so odd ones have a row each.
    if nibbles and length % 2:
        return (segments.count, length), ("group", length + shorter, -1)
    tail = min(vector if segments.extra == 0 else 1, length - 1) if shorter else 0
    tail = 0 if segments.extra == 0 and length == vector else tail
    return (-(-segments.count // 2), 2 * length - tail), ("group", length, -1)


def specialized(problem: Problem) -> Problem:
    """The same with fields at their defaults, for which there are specialized instantiations."""
    return replace(problem, q_min=None, q_max=None, scale_dtype=None, quotient="divide")


def make(
    segments: Segments, kind: str, dtype: str, output: tuple[str, str], mode: str, seed: int
) -> Case:
    """A case with these segments, other fields chosen by `seed`; every second is specialized."""
    chooser = Chooser(seed)
    shorter = chooser.pick((False, True))
    shape, scope = laid_out(segments, kind, VECTOR[dtype], output[0] in NIBBLES, shorter)
    problem = variant(chooser, shape, scope, dtype, output, mode)
    if seed % 2 == 0:
        problem = specialized(problem)
    data = chooser.pick(KINDS)
    return Case(problem, "tiled" if math.prod(shape) > TILE_FROM else data, seed)


def outputs_of(orders: int) -> tuple[tuple[str, str], ...]:
    """One entry for each output dtype; the nibble order alternates with `orders`."""
    listed: dict[str, list[str]] = {}
    for output_dtype, order in OUTPUTS:
        listed.setdefault(output_dtype, []).append(order)
    return tuple((name, order[orders % len(order)]) for name, order in listed.items())


def row_cases(
    method: str, dtype: str, output: tuple[str, str], first: int
) -> list[InstantiationCase]:
    """Every scope x mode x alignment, whose slots rotate so that each meets all."""
    cases: list[InstantiationCase] = []
    modes = modes_of(output[0])
    for place, kind in enumerate(SCOPES):
        for repeat in range(4):
            seed = first + len(cases)
            mode, edges = modes[repeat % len(modes)], repeat // 2
            slot = (EDGES if edges else WHOLE)[method][(place + repeat % 2) % 4]
            segments = slot[seed % len(slot)]
            cases.append(InstantiationCase(method, make(segments, kind, dtype, output, mode, seed)))
    return cases


def column_cases(
    method: str, dtype: str, output: tuple[str, str], first: int
) -> list[InstantiationCase]:
    """Aligned columns and others, each in every mode."""
    cases: list[InstantiationCase] = []
    modes = modes_of(output[0])
    for index, (extents, extra, scope) in enumerate(COLUMNS[method]):
        seed = first + len(cases)
        chooser = Chooser(seed)
        shape = (*extents[:-1], extents[-1] * VECTOR[dtype] + extra)
        problem = variant(chooser, shape, scope, dtype, output, modes[index % len(modes)])
        if index // 2 % 2 == 0:
            problem = specialized(problem)
        cases.append(InstantiationCase(method, Case(problem, chooser.pick(KINDS), seed)))
    return cases


def tile_cases(dtype: str, output: tuple[str, str], first: int) -> list[InstantiationCase]:
    """Tiles of whole vectors and others, in every mode."""
    cases: list[InstantiationCase] = []
    modes, vector = modes_of(output[0]), VECTOR[dtype]
    for index, (extents, extra, (rows, vectors, elements)) in enumerate(TILES):
        seed = first + len(cases)
        chooser = Chooser(seed)
        shape = (*extents[:-1], extents[-1] * vector + extra)
        scope: ScopeSpec = ("block", rows, vectors * vector + elements)
        problem = variant(chooser, shape, scope, dtype, output, modes[index % len(modes)])
        if index // 2 % 2 == 0:
            problem = specialized(problem)
        data = chooser.pick(KINDS)
        case = Case(problem, "tiled" if math.prod(shape) > TILE_FROM else data, seed)
        cases.append(InstantiationCase("tiles", case))
    return cases


def large_cases(dtype: str, first: int) -> list[InstantiationCase]:
    """Large shapes, each once for every class of codes and mode; the largest in turns."""
    cases: list[InstantiationCase] = []
    combinations = [(output, mode) for output in ONE_A_CLASS for mode in modes_of(output[0])]
    for method, segments in LARGE:
        for output, mode in combinations:
            seed = first + len(cases)
            kind = ("token", "group", "channel")[seed % 3]
            case = make(segments, kind, dtype, output, mode, seed)
            cases.append(
                InstantiationCase(method, replace(case, problem=specialized(case.problem)))
            )
    turn = INPUT_DTYPES.index(dtype)
    for index, (method, segments) in enumerate(LARGEST):
        seed = first + len(cases)
        output, mode = combinations[(index + turn) % len(combinations)]
        kind = ("token", "group", "channel")[seed % 3]
        cases.append(InstantiationCase(method, make(segments, kind, dtype, output, mode, seed)))
    return cases


@cache
def instantiation_cases() -> tuple[InstantiationCase, ...]:
    """All of them, each with a seed of its own."""
    cases: list[InstantiationCase] = []
    for dtype in INPUT_DTYPES:
        for number, output in enumerate(outputs_of(INPUT_DTYPES.index(dtype))):
            for method in WHOLE:
                cases += row_cases(method, dtype, output, 10000 + len(cases) + number)
            for method in COLUMNS:
                cases += column_cases(method, dtype, output, 10000 + len(cases) + number)
        cases += large_cases(dtype, 10000 + len(cases))
    for dtype in INPUT_DTYPES:
        for output in outputs_of(INPUT_DTYPES.index(dtype)):
            cases += tile_cases(dtype, output, 10000 + len(cases))
    return tuple(cases)
