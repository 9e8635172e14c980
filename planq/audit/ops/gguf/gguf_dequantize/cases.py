"""The fixed problems of `gguf_dequantize`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache

from planq.audit.ops.elementwise.elements import TYPES, ElementCase
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.gguf_dequantize.reference import Problem, gguf_dequantize
from planq.audit.ops.gguf.inputs import made
from planq.audit.ops.gguf.shapes import EMPTY, shape_of
from planq.audit.reference.formats import Arrays

DATA = ("finite", "extreme", "bytes", "nonfinite", "zeros", "ones")


@dataclass(frozen=True)
class Case(ElementCase):
    """A problem with its blocks."""

    data: str = "finite"

    def reseeded(self, seed: int) -> Case:
        """Other blocks, of another kind."""
        return replace(self, data=DATA[seed % len(DATA)], seed=seed + 1000)

    def inputs(self) -> Arrays:
        """Bytes."""
        problem = self.problem
        return {"input": made(problem.format, problem.input_shape, self.data, self.seed)}

    def expected(self, given: Arrays) -> Arrays:
        """The reference's output."""
        return gguf_dequantize(self.problem, given)


@cache
def cases() -> tuple[Case, ...]:
    """Every type with every output, finite and of two other kinds; so each type has all kinds."""
    found: list[Case] = []
    others = DATA[1:]
    for turn, (kind, out) in enumerate(itertools.product(FORMATS, TYPES)):
        for data in ("finite", others[turn % 5], others[(turn + 3) % 5]):
            shape = shape_of(len(found), FORMATS[kind].elements)
            found.append(Case(Problem(shape, kind, out), data, len(found)))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No rows, and rows without blocks."""
    return tuple(
        Case(Problem(EMPTY[place % len(EMPTY)], kind, TYPES[place % len(TYPES)]))
        for place, kind in enumerate(FORMATS)
    )
