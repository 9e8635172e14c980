"""The fixed problems and inputs of `gguf_quantize`."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cache

from planq.audit.ops.elementwise.elements import TYPES, ElementCase
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.gguf_quantize.hostile import hostile
from planq.audit.ops.gguf.gguf_quantize.reference import QUANTIZERS, Problem, gguf_quantize
from planq.audit.ops.gguf.shapes import EMPTY, shape_of
from planq.audit.reference import inputs
from planq.audit.reference.formats import Arrays

DATA = ("hostile", "normal", "patterns", "nonfinite", "zeros", "huge", "finite", "subnormal")


@dataclass(frozen=True)
class Case(ElementCase):
    """A problem with its elements."""

    data: str = "hostile"

    def reseeded(self, seed: int) -> Case:
        """Other elements, of another kind."""
        return replace(self, data=DATA[seed % len(DATA)], seed=seed + 1000)

    def inputs(self) -> Arrays:
        """Elements."""
        shape, dtype = self.problem.shape, self.problem.input_dtype
        if self.data != "hostile":
            return {"input": inputs.make(self.data, shape, dtype, self.seed)}
        elements = self.problem.format.elements
        made = hostile(math.prod(shape) // elements, elements, dtype, self.seed)
        return {"input": made.reshape(shape)}

    def expected(self, given: Arrays) -> Arrays:
        """The reference's output."""
        return gguf_quantize(self.problem, given)


@cache
def cases() -> tuple[Case, ...]:
    """Every type of every input, hostile and of two other kinds."""
    found: list[Case] = []
    others = DATA[1:]
    for turn, (kind, given) in enumerate(itertools.product(QUANTIZERS, TYPES)):
        for data in ("hostile", others[turn % 7], others[(turn + 3) % 7]):
            shape = shape_of(len(found), FORMATS[kind].elements)
            found.append(Case(Problem(shape, given, kind), data, len(found)))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No rows, and rows without blocks."""
    return tuple(
        Case(Problem(EMPTY[place % len(EMPTY)], TYPES[place % len(TYPES)], kind))
        for place, kind in enumerate(QUANTIZERS)
    )
