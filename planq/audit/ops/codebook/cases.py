"""The fixed problems and inputs of the codebook operators.

Every type and codebook in turn meets every shape and block size; the other choices are drawn by an
integer hash, so that it is the same list everywhere. Any change makes the golden digests be
recorded anew.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.ops.codebook import inputs as codebook_inputs
from planq.audit.ops.codebook.reference import Problem, QuantizeProblem
from planq.audit.reference.formats import INPUT_DTYPES, Array, Arrays
from planq.audit.reference.inputs import Chooser

# A shape and a block size.
Place = tuple[tuple[int, ...], int]
PARTS = 5
PLACES: tuple[Place, ...] = (
    ((1000,), 64),
    ((7, 48), 16),
    ((3, 50, 37), 256),
    ((33, 64), 64),
    ((1, 1), 5),
    ((2, 3, 4, 5, 6), 7),
    ((4099,), 4096),
    ((5, 1), 1),
    ((5, 320), 33),
    ((2, 4096), 4096),
    ((300,), 1000),
    ((3, 1000), 128),
    ((2, 2049), 2048),
    ((9, 1, 21), 3),
    ((16, 4, 32), 32),
    ((2, 5001), 4097),
    ((3, 1024), 1024),
    ((1, 1, 1, 1, 1, 2, 3, 17), 8),
    ((6, 700), 512),
    ((31,), 2),
)
WIDE: tuple[Place, ...] = (
    ((2**18,), 64),
    ((3, 33001), 256),
    ((700, 130), 4096),
    ((2**17 + 3,), 70001),
    ((600, 160), 64),
    ((80000,), 33),
    ((2**18,), 2**17),
    ((130, 1030), 100),
)
EMPTY_PLACES: tuple[Place, ...] = (((0,), 64), ((0, 5), 1), ((5, 0), 7), ((3, 0, 4), 4096))
# Whole vectors of elements, and blocks that cut vectors with an odd number of elements in all.
THRESHOLD_PLACES: tuple[Place, ...] = (((2, 4096), 64), ((3, 333), 33))
# A type of codes with a codebook for it.
BOOKS = (
    ("uint8", "given"),
    ("uint8", "dynamic"),
    ("uint4", "given"),
    ("uint4", "nf4"),
    ("uint4", "fp4"),
    ("uint4", "int4"),
    ("uint4", "af4"),
)
ENTRIES = {"uint8": (None, None, 256, 100, 3, 2), "uint4": (None, None, 16, 5, 2)}
NESTED = (None, None, 256, 3, 1, 5000)
ROUNDINGS = ("nearest_even", "stochastic")
TO_CODES: list[Any] = list(itertools.product(INPUT_DTYPES, BOOKS, ROUNDINGS))
TO_ELEMENTS: list[Any] = list(itertools.product(INPUT_DTYPES, BOOKS, ROUNDINGS[:1]))
DATA = (
    "near",
    "near",
    "normal",
    "mixed",
    "patterns",
    "nonfinite",
    "all_nonfinite",
    "subnormal",
    "zeros",
    "huge",
)
PARAMETERS = ("powers", "ordinary", "special")


@dataclass(frozen=True)
class Part:
    """Consecutive elements of a problem that share no block with the others."""

    whole: Problem
    first: int
    last: int

    @property
    def problem(self) -> Problem:
        """The part alone, as a flat tensor."""
        return replace(self.whole, shape=(self.last - self.first,))

    def cut(self, values: Array, per: int) -> Array:
        """The part of an operand that has an element for `per` elements of the tensor."""
        flat = values.reshape(-1)[self.first // per : -(-self.last // per)]
        return np.ascontiguousarray(flat)

    def pick(self, operands: Arrays, codes: str) -> Arrays:
        """The part of each operand, `codes` being the codes."""
        problem = self.whole
        per = dict.fromkeys(("input", "output"), 1)
        if problem.code_dtype == "uint4":
            per[codes] = 2
        size = getattr(problem, "block_size", None)
        if size is not None:
            per["absmax"] = size
            per["nested_absmax"] = size * (getattr(problem, "nested_block_size", None) or 1)
        return {
            name: self.cut(values, per[name]) if name in per else values
            for name, values in operands.items()
        }

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's inputs out of the whole's."""
        return self.pick(whole, "output" if isinstance(self.whole, QuantizeProblem) else "input")

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's outputs out of the whole's."""
        return self.inputs(whole)


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
        """Elements of the tensor."""
        return self.problem.count

    def reseeded(self, seed: int) -> Case:
        """The problem on other values of all kinds."""
        return Case(self.problem, DATA[seed % len(DATA)], PARAMETERS[seed % len(PARAMETERS)], seed)

    def inputs(self) -> dict[str, Array]:
        """Input operands by name."""
        return codebook_inputs.make(self.problem, self.data, self.parameters, self.seed)

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """Output operands by name, as stored."""
        return self.problem.expected(given)

    def parts(self) -> Iterator[Part]:
        """Runs of whole blocks; none where draws, a mean or one absmax span the tensor."""
        unit = part_unit(self.problem)
        if unit is None:
            return
        step = max(-(-self.problem.count // (unit * PARTS)), 1) * unit
        for first in range(0, self.problem.count, step):
            yield Part(self.problem, first, min(first + step, self.problem.count))


def part_unit(problem: Problem) -> int | None:
    """Elements that must stay together; whole bytes of codes in any case."""
    size = getattr(problem, "block_size", None)
    nested = getattr(problem, "nested_block_size", None)
    if isinstance(problem, QuantizeProblem):
        measured = not problem.absmax_given and not getattr(problem, "normalized", False)
        if problem.rounding == "stochastic" or nested is not None or (measured and size is None):
            return None
    return math.lcm(2, (size or 1) * (nested or 1))


class Choices(Chooser):
    """Draws the fields that several operators have."""

    def coded(self, codes: str, book: str) -> dict[str, Any]:
        """What concerns the codes."""
        return {
            "codebook": book,
            "entries": self.pick(ENTRIES[codes]) if book == "given" else None,
            "nibble_order": self.pick(("high_first", "low_first")),
        }

    def quantized(self) -> dict[str, Any]:
        """What concerns elements on their way to codes."""
        return {
            "quotient": self.pick(("reciprocal", "divide")),
            "nonfinite": self.pick(("propagate", "saturate")),
        }

    def absmax_dtype(self, output_dtype: str) -> str | None:
        """Any that goes with the output."""
        return self.pick((None, "float32", "float64" if output_dtype == "float64" else None))

    def draws(self, problem: Problem, seed: int) -> Case:
        """A case of the problem."""
        return Case(problem, self.pick(DATA), self.pick(PARAMETERS), seed)


Make = Callable[[Choices, Place, Any], Problem]


@dataclass(frozen=True, eq=False)
class Sample:
    """The cases of an operator.

    Attributes:
        make: Makes a problem of a kind in a place.
        kinds: The type of the elements, the codebook and the rounding.
        each: How many places each of them meets.
    """

    make: Make
    kinds: list[Any]
    each: int

    def threshold_cases(self) -> Iterator[Case]:
        """Each threshold and the numbers beside it; callers' tables with both zeros."""
        if self.kinds is not TO_CODES:
            return
        seeds = itertools.count(6000)
        for kind, place in itertools.product(self.kinds, THRESHOLD_PLACES):
            seed = next(seeds)
            problem = self.make(Choices(seed), place, kind)
            yield Case(problem, "thresholds", "zeros", seed)

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        cases: list[Case] = []
        for kind in self.kinds:
            for _ in range(self.each):
                seed = len(cases)
                chooser = Choices(seed)
                place = PLACES[(seed + seed // len(PLACES)) % len(PLACES)]
                cases.append(chooser.draws(self.make(chooser, place, kind), seed))
        for number, place in enumerate(WIDE):
            seed = 5000 + number
            problem = self.make(Choices(seed), place, self.kinds[number * 5 % len(self.kinds)])
            cases.append(Case(problem, "near", "ordinary", seed))
        return (*cases, *self.threshold_cases())

    @cached_property
    def empty_cases(self) -> tuple[Case, ...]:
        """Tensors without elements, and so without blocks."""
        cases: list[Case] = []
        for kind in self.kinds:
            seed = len(cases)
            place = EMPTY_PLACES[seed % len(EMPTY_PLACES)]
            problem = self.make(Choices(seed), place, kind)
            cases.append(Case(problem, "mixed", "ordinary", seed))
        return tuple(cases)
