"""The fixed problems and inputs of `min_max`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.affine.min_max.reference import ENDS, Problem, ScopeSpec, min_max
from planq.audit.reference import inputs
from planq.audit.reference.formats import INPUT_DTYPES, Array
from planq.audit.reference.inputs import Chooser

KINDS = ("mixed", "finite", "nonfinite", "offset", "zeros", "huge", "all_nonfinite", "subnormal")
SHAPES: tuple[tuple[ScopeSpec, tuple[tuple[int, ...], ...]], ...] = (
    (("token",), ((7, 40), (2, 4096), (5, 1), (1, 1, 1, 1, 1, 2, 3, 17), (2, 70000), (300,))),
    (("token",), ((3, 5, 130), (33, 64), (1, 20011), (4, 1000), (700, 96), (40, 4096))),
    (("tensor",), ((1000,), (3, 50, 37), (1, 1), (5, 30000), (2, 3, 4, 5, 6), (3, 7))),
    (("channel", 0), ((7, 300), (16, 4, 33), (3, 20000), (2048, 3), (5,), (2, 70000))),
    (("channel", -1), ((300, 7), (37, 5, 64), (3, 4096), (1, 1), (70, 130), (2000, 16))),
    (("channel", 1), ((3, 17, 100), (5, 4, 3, 2, 33), (2, 3, 5000), (9, 6, 7, 7), (4, 8, 64))),
    (("group", 128, -1), ((5, 384), (3, 7, 300), (2, 4096), (130,), (1, 70001), (64, 256))),
    (("group", 32, -1), ((16, 64), (3, 1000), (9, 31), (2, 2, 96), (40, 320))),
    (("group", 5000, -1), ((2, 12000), (3, 70), (4, 20000))),
    (("group", 1, -1), ((4, 9), (2, 2, 64))),
    (("group", 7, 0), ((20, 33), (7, 3, 65), (15,), (1, 64), (70, 48))),
    (("group", 3, 1), ((2, 8, 50), (3, 3, 4, 5), (1, 10, 128), (5, 9, 4))),
    (("group", 64, -2), ((200, 48), (2, 65, 33), (64, 1), (3, 128, 256))),
    (("block", 16, 32), ((64, 96), (33, 70), (2, 17, 31), (3, 4), (2, 3, 32, 64))),
    (("block", 128, 128), ((256, 384), (130, 200), (2, 128, 128), (300, 64))),
    (("block", 1, 8), ((5, 40), (3, 9), (2, 4, 16))),
    (("block", 5, 1), ((11, 24), (4, 6), (2, 5, 33))),
    (("block", 2, 4096), ((6, 8192), (3, 5000))),
)
WIDE: tuple[tuple[ScopeSpec, tuple[int, ...]], ...] = (
    (("tensor",), (1, 2**20)),
    (("tensor",), (3, 5, 70001)),
    (("token",), (5, 65536)),
    (("token",), (3000, 130)),
    (("token",), (2200, 520)),
    (("token",), (2150, 523)),
    (("channel", 0), (3, 300001)),
    (("channel", -1), (9000, 65)),
    (("channel", -1), (2, 100000)),
    (("group", 128, -1), (600, 640)),
    (("group", 128, 0), (1300, 257)),
    (("group", 70000, -1), (2, 150001)),
    (("block", 128, 128), (640, 1100)),
    (("block", 2, 100000), (4, 250000)),
    (("block", 2, 60001), (4, 120003)),
    (("channel", 1), (4, 2, 60001)),
)


@dataclass(frozen=True)
class Part:
    """Some of a problem's segments, as a problem of their own."""

    problem: Problem
    piece: tuple[slice, ...]
    along: tuple[slice, ...]

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's inputs out of the whole's."""
        return {
            name: np.ascontiguousarray(values[self.piece if name == "input" else self.along])
            for name, values in whole.items()
        }

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's outputs out of the whole's."""
        return {name: values[self.along] for name, values in whole.items()}


@dataclass(frozen=True)
class Case:
    """A problem with its inputs."""

    problem: Problem
    data: str = "mixed"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the input, as one word."""
        return f"{self.problem.id},data={self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the input."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values of all kinds."""
        return Case(self.problem, "mixed", seed)

    def inputs(self) -> dict[str, Array]:
        """Input operands by name; previous results are values of every kind, NaN among them."""
        problem = self.problem
        found = {"input": inputs.make(self.data, problem.shape, problem.input_dtype, self.seed)}
        if problem.update:
            dtype = np.dtype(problem.result).name
            for turn, name in enumerate(problem.ends):
                kind = ("mixed", "nonfinite", "zeros")[(self.seed + turn) % 3]
                shape = problem.parameter_shape
                found[f"previous_{name}"] = inputs.make(kind, shape, dtype, self.seed + turn)
        return found

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """Output operands by name."""
        return min_max(self.problem, given)

    def parts(self) -> Iterator[Part]:
        """Parts along the first axis that has segments of its own."""
        problem = self.problem
        axes = [i for i, size in enumerate(problem.sizes) if size is not None]
        if not axes:
            return
        axis, size = axes[0], problem.sizes[axes[0]] or 1
        before = (slice(None),) * axis
        for start in range(0, problem.shape[axis], size):
            piece = slice(start, min(start + size, problem.shape[axis]))
            shape = list(problem.shape)
            shape[axis] = piece.stop - piece.start
            cut = slice(start // size, start // size + 1)
            along = (cut,) if problem.scope[0] == "channel" else (*before, cut)
            yield Part(replace(problem, shape=tuple(shape)), (*before, piece), along)


def drawn(seed: int, shape: tuple[int, ...], dtype: str, scope: ScopeSpec, mode: str) -> Problem:
    """A problem whose remaining fields are drawn at random."""
    chooser = Chooser(seed)
    nonfinite = chooser.pick(("propagate", "saturate"))
    return Problem(shape, dtype, scope, mode, nonfinite, chooser.pick((True, False)))


@cache
def sampled_cases() -> tuple[Case, ...]:
    """Every input dtype, scope, shape and mode; the other choices are drawn."""
    cases: list[Case] = []
    for dtype in INPUT_DTYPES:
        for scope, shapes in SHAPES:
            for shape in shapes:
                for mode in ENDS:
                    seed = len(cases)
                    kind = KINDS[(seed + seed // 7) % len(KINDS)]
                    cases.append(Case(drawn(seed, shape, dtype, scope, mode), kind, seed))
        for scope, shape in WIDE:
            for mode in ENDS:
                seed = len(cases)
                cases.append(Case(drawn(seed, shape, dtype, scope, mode), "tiled", seed))
    return tuple(cases)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Tensors without elements, of every scope, some with segments and some without."""
    scopes: tuple[ScopeSpec, ...] = (
        ("tensor",),
        ("token",),
        ("channel", 0),
        ("channel", -1),
        ("group", 4, -1),
        ("group", 2, 0),
        ("block", 2, 3),
    )
    cases: list[Case] = []
    for shape in ((0,), (0, 5), (5, 0), (3, 0, 4), (0, 0), (2, 3, 0)):
        for scope in scopes:
            if scope[0] == "block" and len(shape) < 2:
                continue
            for mode in ENDS:
                seed = len(cases)
                dtype = INPUT_DTYPES[(seed + seed // 4) % 4]
                cases.append(Case(drawn(seed, shape, dtype, scope, mode), "finite", seed))
    # Segments of several lines, all of them without elements.
    for dtype, mode in itertools.product(INPUT_DTYPES, ENDS):
        seed = len(cases)
        problem = drawn(seed, (3, 4, 2, 0), dtype, ("channel", 2), mode)
        cases.append(Case(problem, "finite", seed))
    return tuple(cases)
