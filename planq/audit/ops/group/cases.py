"""The fixed problems and inputs of the group operators.

Every type of elements and codes meets places in turn. Any change makes the golden digests be
recorded anew.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.ops.group.reference import BITS, GroupProblem
from planq.audit.reference.formats import Array, Arrays

ELEMENTS = ("float16", "bfloat16", "float32")
FORMS = (
    ("symmetric", "deepspeed", "int8"),
    ("symmetric", "deepspeed", "int4"),
    ("asymmetric", "deepspeed", "int8"),
    ("asymmetric", "deepspeed", "int4"),
    ("asymmetric", "deepspeed_intx", "uint8"),
    ("asymmetric", "deepspeed_intx", "uint4"),
)
KINDS = ("finite", "mixed", "patterns", "offset", "ties", "huge", "subnormal", "constant", "zeros")
# Groups in a few lanes, in a warp and in a block; whole vectors, and none.
PLACES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((6, 64), 16),
    ((3, 1000), 1000),
    ((4, 256), 256),
    ((2, 3, 35), 7),
    ((3, 2048), 2048),
    ((33,), 8),
    ((2, 5000), 5000),
    ((5, 3, 96), 24),
    ((2, 5, 41), 33),
    ((3000,), 1001),
    ((7,), 100),
    ((2, 8192), 8192),
)
EMPTY: tuple[tuple[tuple[int, ...], int], ...] = (((0,), 64), ((3, 0, 4), 5))
PARTS = 3


@dataclass(frozen=True)
class Part:
    """Consecutive groups, as a problem of their own."""

    whole: GroupProblem
    first: int
    last: int

    @property
    def problem(self) -> GroupProblem:
        """The part alone, as a flat tensor."""
        return replace(self.whole, shape=(self.last - self.first,))

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Elements, bytes and groups of the part."""
        per: dict[str, Any] = dict.fromkeys(("input", "output"), 1)
        if BITS[self.whole.code_dtype] == 4:
            per["output" if self.whole.float_dtype == self.whole.input_dtype else "input"] = 2
        made = {}
        for name, values in whole.items():
            size = per.get(name, self.whole.group_size)
            flat = values if name == "parameters" else values.reshape(-1)
            made[name] = np.ascontiguousarray(flat[self.first // size : -(-self.last // size)])
        return made

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The part's outputs out of the whole's."""
        return self.inputs(whole)


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Any
    kind: str = "finite"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        return f"{self.problem.id},{self.kind},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return int(self.problem.count)

    def reseeded(self, seed: int) -> Case:
        """The problem on other values of all kinds."""
        return Case(self.problem, KINDS[seed % len(KINDS)], seed)

    def inputs(self) -> Arrays:
        """Input operands by name."""
        made: Arrays = self.problem.inputs(self.kind, self.seed)
        return made

    def expected(self, given: Arrays) -> Arrays:
        """Output operands by name, as stored."""
        made: Arrays = self.problem.expected(given)
        return made

    def parts(self) -> Iterator[Part]:
        """Runs of whole groups that share no byte."""
        unit = math.lcm(2, self.problem.group_size)
        step = max(-(-self.size // (unit * PARTS)), 1) * unit
        for first in range(0, self.size, step):
            yield Part(self.problem, first, min(first + step, self.size))


def cases_of(make: Any, places: tuple[tuple[tuple[int, ...], int], ...]) -> tuple[Case, ...]:
    """Every form and type of elements in turn at every place, twice with other choices."""
    found = []
    for seed, ((shape, size), elements, form) in enumerate(
        itertools.product(places, ELEMENTS, FORMS)
    ):
        if len(places) == len(PLACES) and seed % 2 != seed // len(FORMS) % 2:
            continue
        mode, convention, codes = form
        problem = make(
            shape=shape,
            elements=elements,
            codes=codes,
            group_size=size,
            mode=mode,
            convention=convention,
            given=seed // 3 % 3 == 2,
        )
        found.append(Case(problem, KINDS[seed % len(KINDS)], seed))
    return tuple(found)
