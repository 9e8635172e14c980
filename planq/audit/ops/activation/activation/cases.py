"""The fixed problems and inputs of `activation`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from planq.audit.ops.activation.activation.reference import Problem, activation
from planq.audit.ops.elementwise.elements import (
    DATA,
    EMPTY,
    LARGE,
    PAIRS,
    SHAPES,
    ElementCase,
    values,
)
from planq.audit.reference.formats import Arrays

FUNCTIONS = ("silu", "gelu_tanh", "gelu_erf", "sigmoid", "relu", "relu_squared")
# Whether there is a gate, and where it is.
GATES = (
    (False, "halves"),
    (True, "halves"),
    (True, "halves_up_first"),
    (True, "interleaved"),
    (True, "separate"),
)


@dataclass(frozen=True)
class Case(ElementCase):
    """A problem with its operands."""

    def inputs(self) -> Arrays:
        """The input, and the up side where it is apart."""
        problem, dtype = self.problem, self.problem.input_dtype
        given = {"input": values(self.data, problem.input_shape, dtype, self.seed)}
        if problem.gated and not problem.is_packed:
            given["up"] = values(self.data, problem.shape, dtype, self.seed + 500)
        return given

    def expected(self, given: Arrays) -> Arrays:
        """The reference's output."""
        return activation(self.problem, given)


@cache
def cases() -> tuple[Case, ...]:
    """Every function and layout with every pair of types, and many elements."""
    found: list[Case] = []
    for given, wanted in PAIRS:
        for gate in GATES:
            for function in FUNCTIONS:
                seed = len(found)
                shape = SHAPES[(seed + seed // 6) % len(SHAPES)]
                kind = DATA[(seed + seed // 8) % len(DATA)]
                found.append(Case(Problem(shape, function, *gate, given, wanted), kind, seed))
    for dtype, shape in LARGE.items():
        for gate in (GATES[0], GATES[1], GATES[3]):
            function = FUNCTIONS[len(found) % len(FUNCTIONS)]
            problem = Problem(shape, function, *gate, dtype, dtype)
            found.append(Case(problem, "tiled", len(found)))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No elements."""
    found: list[Case] = []
    for place, (given, wanted) in enumerate(PAIRS):
        for gate in GATES[place % 2 :: 2]:
            shape = EMPTY[len(found) % len(EMPTY)]
            function = FUNCTIONS[len(found) % len(FUNCTIONS)]
            found.append(Case(Problem(shape, function, *gate, given, wanted)))
    return tuple(found)
