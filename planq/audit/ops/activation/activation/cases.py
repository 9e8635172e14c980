"""The fixed problems and inputs of `activation`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from planq.audit.ops.activation.activation.reference import Problem, activation
from planq.audit.ops.affine.quantized_output import (
    OF_GGUF,
    chosen_fields,
    parameters,
    shared_by_rows,
)
from planq.audit.ops.elementwise.elements import (
    DATA,
    EMPTY,
    LARGE,
    PAIRS,
    SHAPES,
    ElementCase,
    Row,
    rows_of,
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
        return {**given, **parameters(problem, self.seed)}

    def expected(self, given: Arrays) -> Arrays:
        """The reference's output."""
        return activation(self.problem, given)

    def parts(self) -> Iterator[Row]:
        """Rows, with what is one for all of them."""
        return rows_of(self.problem, shared_by_rows(self.problem))


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


# Of codes: rows of a warp and of a block, whole vectors and not, whole groups and not.
CODED_SHAPES = (
    *((5, 64), (3, 4, 7), (2, 4096), (70, 8), (3, 520), (2, 14336), (30, 512), (2, 2, 96)),
    *((3, 1025), (64,), (1, 28672), (1, 40000), (40, 256), (2, 4104)),
)
# Of float32: what GGUF's products take, and pairs that are no whole vectors.
TOKENS = {"output_dtype": "float8_e4m3fn"}
WIDE = (
    ("gelu_tanh", GATES[4], (1, 2048), OF_GGUF),
    ("silu", GATES[4], (40, 96), OF_GGUF),
    ("gelu_erf", GATES[3], (3, 640), OF_GGUF),
    ("silu", GATES[0], (2, 2, 96), OF_GGUF),
    ("gelu_tanh", GATES[3], (3, 1025), TOKENS),
    ("silu", GATES[3], (3, 4, 7), TOKENS),
)


@cache
def coded_cases() -> tuple[Case, ...]:
    """Codes of every kind from every type of input, with every function and layout."""
    found: list[Case] = []
    for place, fields in enumerate(chosen_fields()):
        turn = place + place // len(CODED_SHAPES)
        function = FUNCTIONS[(place + place // 6) % len(FUNCTIONS)]
        gated, layout = GATES[(place + place // 5) % len(GATES)]
        shape = CODED_SHAPES[turn % len(CODED_SHAPES)]
        problem = Problem(shape, function, gated, layout, **fields)
        found.append(Case(problem, DATA[(turn + place // 8) % len(DATA)], 5000 + place))
    for function, gate, shape, codes in WIDE:
        problem = Problem(shape, function, *gate, "float32", **codes)
        found.append(Case(problem, DATA[len(found) % len(DATA)], 5000 + len(found)))
    return tuple(found)
