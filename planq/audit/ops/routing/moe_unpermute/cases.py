"""The fixed problems and inputs of `moe_unpermute`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.routing.moe_unpermute.reference import Problem, moe_unpermute
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array
from planq.audit.reference.inputs import field, hashed

ELEMENTS = ("float16", "bfloat16", "float32")
# Where rows are: each pair's anywhere, all in place, some nowhere, by -1 or by any bits; one row
# for all pairs.
KINDS = ("permuted", "in_place", "marked", "any_bits", "one", "none")
DATA = ("finite", "normal", "nonfinite", "patterns", "subnormal", "huge", "mixed")
# Rows are whole vectors of every type and are not; ranks fill the batches of a GPU and do not.
SIZES = (
    (1, 1, 1),
    (1, 8, 4096),
    (2, 3, 17),
    (5, 2, 96),
    (3, 4, 7168),
    (33, 6, 100),
    (64, 8, 40),
    (300, 1, 8),
    (9, 33, 64),
    (3, 70, 24),
    (700, 2, 12),
    (20, 5, 513),
)
EMPTY = ((0, 2, 8), (3, 2, 0), (3, 0, 8), (0, 0, 0))


@dataclass(frozen=True)
class Token:
    """One token, with the rows that it names as its own, in the order of its ranks."""

    whole: Problem
    token: int

    @property
    def problem(self) -> Problem:
        """Of one token."""
        return replace(self.whole, input_shape=(1, *self.whole.input_shape[1:]))

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Rows in place; those that are named twice are there twice."""
        tokens, top_k, width = self.whole.input_shape
        destination = whole["destination"][self.token].astype(np.int64)
        named = (destination >= 0) & (destination < tokens * top_k)
        rows = whole["input"].reshape(tokens * top_k, width)
        return {
            "input": rows[np.where(named, destination, 0)][None],
            "destination": np.where(named, np.arange(top_k), -1).astype(np.int32)[None],
            "weight": whole["weight"][self.token][None],
        }

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Its sum."""
        return {"output": whole["output"][self.token][None]}


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Problem
    kind: str = "permuted"
    data: str = "finite"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        return f"{self.problem.id},{self.kind},data={self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of the rows."""
        return int(np.prod(self.problem.input_shape))

    def reseeded(self, seed: int) -> Case:
        """Other places and other values."""
        return replace(self, kind=KINDS[seed], seed=seed + 1000)

    def _destination(self) -> Array:
        tokens, top_k, _ = self.problem.input_shape
        count = tokens * top_k
        words = hashed(self.seed + 1, count)
        row = np.argsort(words, kind="stable")
        marked = field(words, 3, 2) == 0
        if self.kind == "in_place":
            row = np.arange(count)
        elif self.kind == "marked":
            row = np.where(marked, -1, row)
        elif self.kind == "any_bits":
            row = np.where(marked, field(words, 8, 32), row)
            row[::7] = count
        elif self.kind == "one":
            row = np.full(count, count // 2)
        elif self.kind == "none":
            row = np.full(count, -1)
        return row.astype(np.int64).astype(np.int32).reshape(tokens, top_k)

    def inputs(self) -> dict[str, Array]:
        """Rows, where they are, and weights."""
        problem, seed = self.problem, self.seed
        weights = "normal" if self.data == "huge" else self.data
        return {
            "input": inputs.make(self.data, problem.input_shape, problem.input_dtype, seed),
            "destination": self._destination(),
            "weight": inputs.make(weights, problem.input_shape[:2], "float32", seed + 2),
        }

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's output."""
        return moe_unpermute(self.problem, given)

    def parts(self) -> Iterator[Token]:
        """Tokens."""
        tokens, top_k, _ = self.problem.input_shape
        return (Token(self.problem, token) for token in range(tokens if top_k else 0))


def _cases(sizes: tuple[tuple[int, int, int], ...]) -> tuple[Case, ...]:
    found: list[Case] = []
    for size in sizes:
        for given in ELEMENTS:
            for wanted in ELEMENTS:
                seed = len(found)
                kind = KINDS[(seed + seed // 6) % len(KINDS)]
                data = DATA[(seed + seed // 7) % len(DATA)]
                found.append(Case(Problem(size, given, wanted), kind, data, seed))
    return tuple(found)


@cache
def cases() -> tuple[Case, ...]:
    """Every size with every pair of types."""
    return _cases(SIZES)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No tokens, no ranks, and rows without elements."""
    return _cases(EMPTY)
