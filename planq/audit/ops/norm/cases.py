"""What the cases of norms have in common: rows, their values, and rows alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from planq.audit.ops.affine.quantized_output import (
    NAMES,
    OF_GGUF,
    chosen_fields,
    parameters,
    shared_by_rows,
    text_of,
)
from planq.audit.reference import inputs
from planq.audit.reference.formats import VECTOR, Array

DTYPES = ("float16", "bfloat16", "float32")
KINDS = ("normal", "finite", "mixed", "nonfinite", "patterns", "subnormal", "huge", "zeros")
EPS = (1e-6, 1e-5, 0.0, 1e-45, 1.0, 1e-12)
# Rows of a warp, of a block and of several passes; many of them and few; whole vectors and not.
SHAPES = (
    (5, 64),
    (3, 4, 7),
    (1, 4096),
    (2, 3, 24),
    (700, 8),
    (600, 512),
    (3, 1),
    (2, 5120),
    (300, 1536),
    (2, 16384),
    (4, 1025),
    (1, 33),
    (1, 65536),
    (64,),
    (2, 2, 9001),
    (1030, 128),
)
EMPTY = ((0, 8), (3, 0, 64), (0, 7))

Formula = Callable[[Any, dict[str, Array]], dict[str, Array]]


def id_of(problem: Any) -> str:
    """A stable name: the shape and every other field that is given."""
    shape, *others = ((n, v) for n, v in asdict(problem).items() if n not in NAMES)
    told = [f"{name}={value}" for name, value in others if value not in (None, False, 0.0)]
    return ",".join(["x".join(map(str, shape[1])), *told]) + text_of(problem)


def is_whole(problem: Any) -> bool:
    """Whether rows are whole vectors."""
    return bool(problem.shape[-1] % VECTOR[problem.input_dtype] == 0)


@dataclass(frozen=True)
class Row:
    """One of the first axis's parts, which shares weights with the others, and no result."""

    whole: Any
    row: int

    @property
    def problem(self) -> Any:
        """The row alone."""
        return replace(self.whole, shape=(1, *self.whole.shape[1:]))

    def _own(self, tensors: dict[str, Array]) -> dict[str, Array]:
        shared = ("weight", "bias", "eps", *shared_by_rows(self.whole))
        own = slice(self.row, self.row + 1)
        return {name: held if name in shared else held[own] for name, held in tensors.items()}

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Its elements, and all weights."""
        return self._own(whole)

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Its results."""
        return self._own(whole)


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Any
    formula: Formula = field(repr=False)
    data: str = "normal"
    eps: float = 1e-6
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        return f"{id_of(self.problem)},data={self.data},eps={self.eps},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the rows."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """Other values."""
        return replace(self, data=KINDS[seed % len(KINDS)], seed=seed + 1000)

    def inputs(self) -> dict[str, Array]:
        """Rows, weights and eps."""
        p, seed = self.problem, self.seed
        columns = (p.shape[-1],)
        made = {
            "input": inputs.make(self.data, p.shape, p.input_dtype, seed),
            "weight": inputs.make("finite", columns, p.weight_dtype, seed + 1),
            "eps": np.array(self.eps),
        }
        if p.residual_dtype is not None:
            made["residual"] = inputs.make(self.data, p.shape, p.residual_dtype, seed + 2)
        if getattr(p, "bias_dtype", None) is not None:
            made["bias"] = inputs.make("mixed", columns, p.bias_dtype, seed + 3)
        return {**made, **parameters(p, seed)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's outputs."""
        with np.errstate(all="ignore"):
            return self.formula(self.problem, given)

    def parts(self) -> Iterator[Row]:
        """Rows, or what the first axis has of them."""
        problem = self.problem
        count = problem.shape[0] if len(problem.shape) > 1 else 0
        return (Row(problem, row) for row in range(count))


def cases(
    make: Callable[..., Any],
    formula: Formula,
    others: tuple[dict[str, Any], ...],
    shapes: tuple[tuple[int, ...], ...] = SHAPES,
) -> tuple[Case, ...]:
    """Every shape with every pair of types; other types and fields change from case to case."""
    found: list[Case] = []
    for shape, given, wanted in product(shapes, DTYPES, DTYPES):
        seed = len(found)
        turn = seed + seed // 9
        fields = {
            "weight_dtype": DTYPES[(turn + seed // 3) % 3],
            "residual_dtype": (None, *DTYPES)[turn % 4],
            **others[(turn + seed // 27) % len(others)],
        }
        problem = make(shape=shape, input_dtype=given, output_dtype=wanted, **fields)
        kind, eps = KINDS[(turn + seed // 8) % len(KINDS)], EPS[(seed + seed // 6) % len(EPS)]
        found.append(Case(problem, formula, kind, eps, seed))
    return tuple(found)


# Of codes: rows of a warp and of a block, whole vectors and not, whole groups and not.
CODED_SHAPES = (
    (5, 64),
    (3, 4, 7),
    (2, 4096),
    (700, 8),
    (3, 520),
    (2, 5120),
    (300, 512),
    (2, 2, 96),
    (3, 1025),
    (2, 9216),
    (64,),
    (1, 17000),
    (2, 16384),
    (40, 256),
)
# Of float32 with the codes that GGUF's products take.
WIDE_SHAPES = ((1, 640), (2, 2048), (40, 96), (300, 640), (2, 5120))


def coded_cases(
    make: Callable[..., Any], formula: Formula, others: tuple[dict[str, Any], ...]
) -> tuple[Case, ...]:
    """Codes of every kind from every type of input."""
    found: list[Case] = []
    for place, fields in enumerate(chosen_fields()):
        turn = place + place // len(CODED_SHAPES)
        problem = make(
            shape=CODED_SHAPES[turn % len(CODED_SHAPES)],
            weight_dtype=DTYPES[(turn + place // 3) % 3],
            residual_dtype=(None, *DTYPES)[(turn + 1) % 4],
            **others[turn % len(others)],
            **fields,
        )
        kind, eps = KINDS[(turn + place // 8) % len(KINDS)], EPS[place % len(EPS)]
        found.append(Case(problem, formula, kind, eps, 5000 + place))
    for place, shape in enumerate(WIDE_SHAPES):
        residual = (None, "float32", "float16")[place % 3]
        types = {"input_dtype": "float32", "weight_dtype": "float32", "residual_dtype": residual}
        problem = make(shape=shape, **types, **others[place % len(others)], **OF_GGUF)
        found.append(Case(problem, formula, KINDS[place], EPS[place], 6000 + place))
    return tuple(found)
