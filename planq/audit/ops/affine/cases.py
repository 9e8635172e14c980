"""The fixed problems and inputs of the elementwise affine operators.

Every input x output type in turn meets every scope; the other choices are drawn by an integer hash,
so that it is the same list everywhere. Any change makes the golden digests be recorded anew.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.ops.affine import inputs as affine_inputs
from planq.audit.ops.affine.reference import NIBBLES, Problem, Tensor
from planq.audit.ops.affine.scopes import ScopeSpec, divisors
from planq.audit.reference.formats import INPUT_DTYPES, Array, Arrays
from planq.audit.reference.inputs import Chooser

Shapes = tuple[tuple[int, ...], ...]
Place = tuple[ScopeSpec, tuple[int, ...]]
PARTS = 5
OUTPUTS = (
    ("int8", "low_first"),
    ("uint8", "low_first"),
    ("int4", "low_first"),
    ("int4", "high_first"),
    ("uint4", "low_first"),
    ("uint4", "high_first"),
    ("float8_e4m3fn", "low_first"),
    ("float8_e5m2", "low_first"),
)
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
BOUNDS: dict[tuple[str, str], tuple[tuple[float | None, float | None], ...]] = {
    ("int8", "symmetric"): ((-128, 127), (-100, 63), (-1, 1), (None, 7)),
    ("int4", "symmetric"): ((-8, 7), (-3, 5), (None, 1)),
    ("float8_e4m3fn", "symmetric"): ((-240.0, 240.0), (0.0, 448.0), (None, 0.015625)),
    ("float8_e5m2", "symmetric"): ((-448.0, 448.0), (-1.5, 3.5), (None, 2.0**-14)),
    ("int8", "asymmetric"): ((-127, 127), (-5, 90), (0, 1)),
    ("uint8", "asymmetric"): ((1, 255), (3, 200), (0, 127), (0, 1)),
    ("int4", "asymmetric"): ((-7, 7), (-2, 3)),
    ("uint4", "asymmetric"): ((1, 14), (0, 1)),
}
SCOPES: tuple[tuple[ScopeSpec, Shapes], ...] = (
    (("tensor",), ((1000,), (3, 50, 37), (1, 1), (5, 320), (2, 3, 4, 5, 6))),
    (("token",), ((7, 48), (3, 5, 130), (33, 64), (5, 1), (300,), (1, 1, 1, 1, 1, 2, 3, 17))),
    (("channel", 0), ((7, 300), (16, 4, 33), (5,), (2048, 3), (6, 64))),
    (("group", 128, -1), ((5, 384), (3, 7, 300), (130,), (2, 1024))),
    (("block", 128, 128), ((130, 257), (2, 128, 64), (256, 128))),
    (("channel", -1), ((300, 7), (37, 5, 64), (1, 1), (70, 130))),
    (("block", 2, 3), ((7, 10), (2, 5, 6), (1, 1), (3, 2, 32))),
    (("group", 32, -1), ((16, 64), (3, 1000), (9, 31), (2, 2, 96))),
    (("channel", 1), ((3, 17, 100), (5, 4, 3, 2, 33), (2, 3, 512))),
    (("token",), ((4, 1000), (2, 4096), (9, 1, 21))),
    (("group", 7, 0), ((20, 33), (7, 3, 65), (15,), (9, 64))),
    (("block", 1, 16), ((9, 48), (3, 4, 33), (5, 16))),
    (("group", 3, 1), ((2, 8, 50), (3, 3, 4, 5), (1, 10, 128))),
    (("group", 1, -1), ((4, 9), (2, 2, 64))),
    (("block", 1000, 1000), ((5, 33), (2, 3, 32))),
    (("group", 5000, -1), ((2, 6000), (3, 70))),
    (("group", 64, -2), ((200, 48), (2, 65, 33), (64, 1))),
)
WIDE: tuple[Place, ...] = (
    (("tensor",), (2**20,)),
    (("token",), (1, 2**20)),
    (("token",), (3, 33000)),
    (("channel", -1), (9000, 65)),
    (("channel", 0), (3, 100001)),
    (("group", 128, -1), (600, 640)),
    (("block", 128, 128), (512, 768)),
    (("channel", -1), (700, 512)),
    (("group", 64, 0), (1300, 257)),
)
EMPTY_SCOPES: tuple[ScopeSpec, ...] = (
    ("tensor",),
    ("token",),
    ("channel", 0),
    ("channel", -1),
    ("group", 4, -1),
    ("group", 2, 0),
    ("block", 2, 3),
)
EMPTY_SHAPES: Shapes = ((0,), (0, 5), (5, 0), (3, 0, 4), (0, 0), (2, 3, 0))
SCALE_DTYPES = (None, None, None, None, "float16", "bfloat16", "float32", "float64")
DATA = ("near", "near", "near", "mixed", "patterns", "huge", "nonfinite", "subnormal")
PARAMETERS = ("ordinary", "ordinary", "powers", "special", "far")
RANGES: dict[str, tuple[tuple[float | None, float | None], ...]] = {
    "symmetric": ((-128, 127), (-7, 7), (-1, 1), (0, 255), (-100, 63), (-2, 1)),
    "asymmetric": ((0, 255), (-8, 7), (0, 15), (-5, 90), (0, 1), (-128, -3), (100, 255)),
}
FLOATS_TO_CODES: list[Any] = list(itertools.product(INPUT_DTYPES, OUTPUTS))


@dataclass(frozen=True)
class Part:
    """Some of a problem's elements along an axis, with the parameters that they have."""

    whole: Problem
    problem: Problem
    axis: int
    elements: slice

    def along(self, tensor: Tensor) -> tuple[slice, ...]:
        """Where the part lies in an operand."""
        whole, axis = self.whole, self.axis
        everything = (slice(None),)
        if tensor.lies == "elements":
            return everything * axis + (self.elements,)
        if tensor.lies == "columns":
            return (self.elements,) if axis == len(whole.shape) - 1 else everything
        shared = divisors(whole.shape, whole.scope)
        if tensor.lies in ("scalar", "one") or axis not in shared:
            return ()
        step = shared[axis]
        cut = slice(self.elements.start // step, -(-self.elements.stop // step))
        return everything * list(shared).index(axis) + (cut,)

    def cut(self, tensors: dict[str, Tensor], values: Arrays) -> Arrays:
        """The operands' parts, as stored when they are alone."""
        made: Arrays = {}
        for name, tensor in tensors.items():
            piece = self.along(tensor)
            if tensor.dtype in NIBBLES:
                logical = self.whole.logical(tensor, values[name])[piece]
                made[name] = self.problem.stored(tensor, logical)
            else:
                made[name] = np.ascontiguousarray(values[name][piece])
                made[name] = made[name].reshape(self.problem.extents(tensor))
        return made

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's inputs out of the whole's."""
        return self.cut(self.whole.inputs, whole)

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's outputs out of the whole's."""
        return self.cut(self.whole.outputs, whole)


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Problem
    data: str = "near"
    parameters: str = "ordinary"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        return f"{self.problem.id},data={self.data},parameters={self.parameters},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the input."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values of all kinds."""
        return Case(self.problem, DATA[seed % len(DATA)], PARAMETERS[seed % len(PARAMETERS)], seed)

    def inputs(self) -> dict[str, Array]:
        """Input operands by name."""
        return affine_inputs.make(self.problem, self.data, self.parameters, self.seed)

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """Output operands by name, as stored."""
        return self.problem.expected(given)

    def parts(self) -> Iterator[Part]:
        """Runs along an axis that cut no group; none where draws or a range span the tensor."""
        problem = self.problem
        axis = cut_axis(problem)
        if axis is None:
            return
        extent = problem.shape[axis]
        unit = divisors(problem.shape, problem.scope).get(axis, 1)
        step = max(-(-extent // (unit * PARTS)), 1) * unit
        for start in range(0, extent, step):
            piece = slice(start, min(start + step, extent))
            shape = list(problem.shape)
            shape[axis] = piece.stop - piece.start
            yield Part(problem, replace(problem, shape=tuple(shape)), axis, piece)


def cut_axis(problem: Problem) -> int | None:
    """The axis along which parts are cut."""
    if getattr(problem, "rounding", "nearest_even") == "stochastic":
        return None
    if not getattr(problem, "dynamic", False):
        return 0
    shared = divisors(problem.shape, problem.scope)
    return min(shared) if shared else None


class Choices(Chooser):
    """Draws the fields that several operators have."""

    def scale_dtype(self) -> str | None:
        """Mostly the default."""
        return self.pick(SCALE_DTYPES)

    def quotient(self, mode: str) -> str:
        """Any that the mode has."""
        return self.pick(("divide", "reciprocal", "ratio" if mode == "symmetric" else "divide"))

    def code_mode(self, dtype: str) -> str:
        """Any that the codes have."""
        return "symmetric" if dtype in FLOAT8 else self.pick(("symmetric", "asymmetric"))

    def code_bounds(self, dtype: str, mode: str) -> dict[str, float | None]:
        """Half of the time the defaults."""
        listed = BOUNDS.get((dtype, mode), BOUNDS.get((dtype, "asymmetric"), ((None, None),)))
        low, high = self.pick((*((None, None),) * len(listed), *listed))
        return {"q_min": low, "q_max": high}

    def integer_bounds(self, mode: str) -> dict[str, float | None]:
        """Likewise, of codes that have no type."""
        listed = RANGES[mode]
        low, high = self.pick((*((None, None),) * len(listed), *listed))
        return {"q_min": low, "q_max": high}

    def zero_point_dtype(self, mode: str, *narrow: str) -> str | None:
        """int32 or a narrow type; none where there is no zero point."""
        return None if mode == "symmetric" else self.pick((None, "int32", *narrow))

    def draws(self, problem: Problem, seed: int) -> Case:
        """A case of the problem."""
        return Case(problem, self.pick(DATA), self.pick(PARAMETERS), seed)


Make = Callable[[Choices, Place, Any], Problem]


def places(scopes: tuple[tuple[ScopeSpec, Shapes], ...]) -> Iterator[Place]:
    """All scopes in turn, for ever; each round with the next of their shapes."""
    for number in itertools.count():
        for scope, shapes in scopes:
            yield scope, shapes[number % len(shapes)]


def listed(make: Make, kinds: list[Any], each: int, scopes: Any = SCOPES) -> list[Case]:
    """Each kind of problem in `each` places."""
    cases: list[Case] = []
    place = places(scopes)
    for kind in kinds:
        for _ in range(each):
            seed = len(cases)
            chooser = Choices(seed)
            cases.append(chooser.draws(make(chooser, next(place), kind), seed))
    return cases


def wide(make: Make, kinds: list[Any], places: tuple[Place, ...] = WIDE) -> list[Case]:
    """Large problems, with the kinds in turn."""
    cases: list[Case] = []
    for number, place in enumerate(places):
        seed = 5000 + number
        problem = make(Choices(seed), place, kinds[number * 5 % len(kinds)])
        cases.append(Case(problem, "near", "ordinary", seed))
    return cases


@dataclass(frozen=True, eq=False)
class Sample:
    """The cases of an operator.

    Attributes:
        make: Makes a problem of a kind in a place.
        kinds: The types that the operator goes from and to.
        each: How many places each of them meets.
    """

    make: Make
    kinds: list[Any]
    each: int

    def others(self) -> list[Case]:
        """Cases that only this operator has."""
        return []

    def other_empty_cases(self) -> list[Case]:
        """Those without elements."""
        return []

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        cases = listed(self.make, self.kinds, self.each)
        return (*cases, *self.others(), *wide(self.make, self.kinds))

    @cached_property
    def empty_cases(self) -> tuple[Case, ...]:
        """Tensors without elements, of every scope, some with segments and some without."""
        cases: list[Case] = []
        for kind in self.kinds:
            for scope in EMPTY_SCOPES:
                shape = EMPTY_SHAPES[(len(cases) * 5 + len(cases) // 7) % len(EMPTY_SHAPES)]
                if scope[0] == "block" and len(shape) < 2:
                    shape = (0, 5)
                seed = len(cases)
                problem = self.make(Choices(seed), (scope, shape), kind)
                cases.append(Case(problem, "mixed", "ordinary", seed))
        return (*cases, *self.other_empty_cases())
