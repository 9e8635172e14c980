"""The fixed problems and inputs of `rotary_embedding`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from planq.audit.ops.position.rotary_embedding.reference import Problem, rotary_embedding
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array, Arrays
from planq.audit.reference.inputs import Chooser, field, hashed

DTYPES = ("float16", "bfloat16", "float32")
DATA = ("normal", "finite", "mixed", "nonfinite", "patterns", "subnormal", "huge", "zeros")
# Angles: cosines and sines as they are, and any numbers.
TABLES = ("angles", "angles", "mixed", "huge")
# Where positions are: all over, in turn, some outside by little, by any bits, by what is lost in 32
# bits, and all outside.
KINDS = ("spread", "in_turn", "outside", "any_bits", "wrapped", "none")
EPS = (1e-6, 1e-5, 0.0, 1e-45, 1.0)
# Tokens, heads and columns; heads of the key; columns that are turned. Whole vectors and not; one
# token, and more than one block counts; less than a warp's lanes, and more than a block's pairs.
SIZES: tuple[tuple[tuple[int, int, int], int | None, int | None], ...] = (
    ((1, 8, 128), 2, None),
    ((5, 3, 64), None, None),
    ((3, 4, 96), 1, 64),
    ((7, 2, 80), 2, 32),
    ((2, 3, 22), 1, 18),
    ((33, 32, 128), 8, None),
    ((4, 1, 576), None, 64),
    ((2, 2, 1024), 1, None),
    ((9, 1, 2), 3, None),
    ((3, 2, 1021), 2, 1020),
    ((600, 5, 64), 2, 48),
    ((9001, 1, 16), None, 8),
    ((17, 16, 256), 16, 64),
    ((5, 3, 128), 1, 64),
    ((3, 2, 256), 1, 64),
)
EMPTY: tuple[tuple[tuple[int, int, int], int | None, int | None], ...] = (
    ((0, 4, 64), 2, None),
    ((3, 0, 64), None, None),
    ((3, 0, 8), 2, 4),
)


@dataclass(frozen=True)
class Token:
    """One token, with all of the table."""

    whole: Problem
    place: int
    is_outside: bool

    @property
    def problem(self) -> Problem:
        """Of one token."""
        return replace(self.whole, query_shape=(1, *self.whole.query_shape[1:]))

    def _own(self, tensors: Arrays) -> Arrays:
        cut = {name: tensors[name] for name in ("query", "key", "position") if name in tensors}
        return {name: held[self.place : self.place + 1] for name, held in cut.items()}

    def inputs(self, whole: Arrays) -> Arrays:
        """Its heads and its position."""
        return whole | self._own(whole)

    def outputs(self, whole: Arrays) -> Arrays:
        """Its heads. Whether its position is outside is counted alone."""
        return self._own(whole) | {"invalid": np.array([self.is_outside], np.int64)}


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Problem
    kind: str = "spread"
    data: str = "normal"
    table: str = "angles"
    eps: float = 1e-6
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        own = f"{self.kind},data={self.data},table={self.table},eps={self.eps},seed={self.seed}"
        return f"{self.problem.id},{own}"

    @property
    def size(self) -> int:
        """Elements of all heads, and of the table."""
        problem = self.problem
        heads = math.prod(problem.query_shape) + math.prod(problem.key_shape)
        return heads + problem.max_position * problem.rotary

    def reseeded(self, seed: int) -> Case:
        """Other positions and other values."""
        kind, data = KINDS[seed % len(KINDS)], DATA[seed % len(DATA)]
        return replace(self, kind=kind, data=data, seed=seed + 1000)

    def position(self) -> Array:
        """Of each token."""
        problem, rows = self.problem, self.problem.max_position
        words = hashed(self.seed + 1, problem.tokens)
        spread = (words % np.uint64(max(rows, 1))).astype(np.int64)
        chosen = field(words, 40, 2)
        if self.kind == "in_turn":
            spread = np.arange(problem.tokens) % max(rows, 1)
        elif self.kind == "outside":
            spread = np.choose(chosen, (spread, -1 - spread, rows + spread, spread))
        elif self.kind == "any_bits":
            spread = np.where(chosen == 0, words.view(np.int64), spread)
        elif self.kind == "wrapped":
            spread = np.where(chosen == 0, spread + 2**32, spread)
        elif self.kind == "none":
            spread = np.where(chosen == 0, rows, -1 - spread)
        return spread.astype(problem.position_dtype)

    def cos_sin(self) -> Array:
        """Of angles, or any numbers."""
        shape = (self.problem.max_position, self.problem.rotary)
        if self.table != "angles":
            return inputs.make(self.table, shape, "float32", self.seed + 2)
        units = field(hashed(self.seed + 2, math.prod(shape)), 7, 24).astype(np.float32)
        return (units * np.float32(2.0**-23) - 1).reshape(shape)

    def inputs(self) -> Arrays:
        """Heads, positions, the table, and what a norm needs."""
        problem, seed = self.problem, self.seed
        made = {
            "query": inputs.make(self.data, problem.query_shape, problem.dtype, seed),
            "cos_sin": self.cos_sin(),
            "position": self.position(),
        }
        if problem.key_heads:
            made["key"] = inputs.make(self.data, problem.key_shape, problem.dtype, seed + 3)
        weights, columns = problem.norm_weight_dtype, (problem.columns,)
        if weights:
            made["eps"] = np.array(self.eps)
            made["query_weight"] = inputs.make("finite", columns, weights, seed + 4)
            if problem.key_heads:
                made["key_weight"] = inputs.make("mixed", columns, weights, seed + 5)
        return made

    def expected(self, given: Arrays) -> Arrays:
        """The reference's outputs."""
        with np.errstate(all="ignore"):
            return rotary_embedding(self.problem, given)

    def parts(self) -> Iterator[Token]:
        """Tokens."""
        position, rows = self.position().astype(np.int64), self.problem.max_position
        return (Token(self.problem, i, not 0 <= own < rows) for i, own in enumerate(position))


def is_whole(problem: Problem) -> bool:
    """Whether the halves of what is turned are whole vectors."""
    vector = 4 if problem.dtype == "float32" else 8
    return problem.rotary // 2 % vector == 0 and problem.columns % vector == 0


def cases(
    sizes: tuple[tuple[tuple[int, int, int], int | None, int | None], ...],
) -> tuple[Case, ...]:
    """Every size, type and kind of pairs, with a norm and without; the rest is drawn."""
    found: list[Case] = []
    norms = (None, "any")
    for (shape, key, rotary), dtype, pairs, norm in product(
        sizes, DTYPES, ("neox", "interleaved"), norms
    ):
        seed = len(found)
        chooser = Chooser(seed)
        problem = Problem(
            shape,
            chooser.pick((40, 7, 1, 300, 40)),
            dtype,
            key,
            rotary,
            pairs,
            chooser.pick(("int64", "int32")),
            norm and chooser.pick(DTYPES),
        )
        turn = seed + seed // 12
        kind, data = KINDS[turn % len(KINDS)], DATA[turn % len(DATA)]
        table, eps = TABLES[turn // 3 % len(TABLES)], EPS[(turn + seed // 5) % len(EPS)]
        found.append(Case(problem, kind, data, table, eps, seed))
    nothing = Problem((3, 2, 16), 0, "bfloat16", 1)
    return (*found, Case(nothing, "none", seed=len(found)))
