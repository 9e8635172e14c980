"""The fixed problems and inputs of `rotary_kv_cache_append`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from planq.audit.ops.kv_cache.kv_cache_append import cases as cache
from planq.audit.ops.kv_cache.kv_cache_append.reference import CODES
from planq.audit.ops.kv_cache.rotary_kv_cache_append.reference import (
    Problem,
    rotary_kv_cache_append,
)
from planq.audit.ops.position.rotary_embedding import cases as position
from planq.audit.reference.formats import Arrays
from planq.audit.reference.inputs import Chooser

DTYPES = ("float16", "bfloat16", "float32")
# Types of elements, of the cache and of an output for queries, if there is one.
Types = tuple[str, str | None, str | None]
IN_PLACE: tuple[Types, ...] = tuple((*pair, None) for pair in product(DTYPES, cache.CACHES))
ROUNDED: tuple[Types, ...] = tuple(("float32", stored, None) for stored in cache.ROUNDED)
OUTPUTS: tuple[Types, ...] = (
    *((dtype, stored, dtype) for dtype in cache.ROUNDED for stored in cache.CACHES),
    ("float32", "float16", "float16"),
    ("float32", "bfloat16", "bfloat16"),
    ("float32", "int8", "float16"),
    ("float32", "float8_e4m3fn", "bfloat16"),
    ("float32", "float8_e5m2", "float32"),
    ("float32", None, "float16"),
    ("float32", "float16", "float32"),
)
# Tokens, heads and columns; heads of the key; columns that are turned, and those of a value; pages
# and their size. Whole vectors and not; a token to a block, several, and more than a table has
# places for; a part of a head, and half of it; values of other columns, and none.
Size = tuple[tuple[int, int, int], int, int | None, int | None, int, int]
SIZES: tuple[Size, ...] = (
    ((1, 8, 128), 2, None, 128, 3, 16),
    ((5, 3, 64), 1, None, None, 4, 1),
    ((33, 4, 128), 2, 64, 128, 5, 7),
    ((7, 2, 80), 2, 32, 40, 2, 8),
    ((4, 2, 22), 1, 18, 3, 3, 4),
    ((70, 1, 64), 3, None, 64, 9, 16),
    ((700, 1, 16), 1, 8, 24, 40, 32),
    ((3, 2, 256), 1, 256, 256, 6, 16),
    ((2, 3, 128), 1, None, 128, 3, 8),
)
EMPTY: tuple[Size, ...] = (
    ((0, 4, 64), 2, None, 64, 3, 4),
    ((3, 0, 64), 2, None, None, 3, 4),
    ((5, 2, 16), 1, 8, 16, 0, 4),
)


@dataclass(frozen=True)
class Token:
    """One token whose slot no later one has, with the cache as it was before."""

    case: Case
    place: int

    @property
    def problem(self) -> Problem:
        """Of one token."""
        whole = self.case.problem
        return replace(whole, query_shape=(1, *whole.query_shape[1:]))

    def _own(self, tensors: Arrays) -> Arrays:
        names = ("query", "key", "value", "position", "slot", "query_output")
        cut = {name: tensors[name] for name in names if name in tensors}
        return {name: held[self.place : self.place + 1] for name, held in cut.items()}

    def inputs(self, whole: Arrays) -> Arrays:
        """The token alone."""
        return whole | self._own(whole)

    def outputs(self, whole: Arrays) -> Arrays:
        """Its heads, and the cache but for what other tokens have written."""
        made = cache.Token(self.case.append, self.place).outputs(whole)
        position = int(self.case.turn.position()[self.place])
        is_outside = not 0 <= position < self.case.problem.max_position
        invalid = np.array([is_outside, made["invalid"][0]], np.int64)
        turned = ("query_output",) if self.case.problem.output_dtype else ("query", "key")
        heads = self._own(whole)
        return made | {name: heads[name] for name in turned} | {"invalid": invalid}


@dataclass(frozen=True)
class Case:
    """A problem with the operands of its two operators."""

    problem: Problem
    kind: str = "spread"
    slots: str = "spread"
    data: str = "normal"
    table: str = "angles"
    scales: str = "fitting"
    eps: float = 1e-6
    seed: int = 0

    @property
    def turn(self) -> position.Case:
        """Of the first operator."""
        own = (self.kind, self.data, self.table, self.eps, self.seed)
        return position.Case(self.problem.turn, *own)

    @property
    def append(self) -> cache.Case:
        """Of the second one, but for its keys."""
        own = (self.slots, self.data, self.scales, self.seed + 50)
        return cache.Case(self.problem.append, *own)

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        own = f"{self.kind},slots={self.slots},data={self.data},table={self.table}"
        return f"{self.problem.id},{own},scales={self.scales},eps={self.eps},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of tokens, of the table and of the cache."""
        return self.turn.size + self.append.size

    def reseeded(self, seed: int) -> Case:
        """Other positions, slots and values."""
        kind = position.KINDS[seed % len(position.KINDS)]
        slots = cache.KINDS[(seed + seed // 8) % len(cache.KINDS)]
        data = position.DATA[seed % len(position.DATA)]
        return replace(self, kind=kind, slots=slots, data=data, seed=seed + 1000)

    def inputs(self) -> Arrays:
        """Those of both operators; the keys are the first one's."""
        return self.append.inputs() | self.turn.inputs()

    def expected(self, given: Arrays) -> Arrays:
        """The reference's outputs."""
        with np.errstate(all="ignore"):
            return rotary_kv_cache_append(self.problem, given)

    def parts(self) -> Iterator[Token]:
        """Tokens that count, and those that are skipped."""
        return (Token(self, token.place) for token in self.append.parts())


def is_whole(problem: Problem) -> bool:
    """Whether the halves of what is turned, and heads, are whole vectors."""
    return position.is_whole(problem.turn) and cache.is_whole(problem.append)


def cases(sizes: tuple[Size, ...]) -> tuple[Case, ...]:
    """Every size and pair of types, with a norm and without; the rest is drawn.

    Types that are rounded, and outputs, have a norm in every other case.
    """
    every = list(product(sizes, IN_PLACE, (None, "any")))
    for i, (size, types) in enumerate(product(sizes, (*ROUNDED, *OUTPUTS))):
        every.append((size, types, (None, "any")[i % 2]))
    found: list[Case] = []
    for (shape, key, rotary, value, pages, page_size), (dtype, stored, output), norm in every:
        seed = len(found)
        chooser = Chooser(seed)
        scope = cache.SCOPES[(seed // 24 + seed // 8 + seed // 2 % 4) % len(cache.SCOPES)]
        problem = Problem(
            shape,
            key,
            chooser.pick((40, 7, 1, 300, 40)),
            pages,
            page_size,
            dtype,
            value,
            rotary,
            ("neox", "interleaved")[(seed // 2 + seed // 24) % 2],
            chooser.pick(("int64", "int32")),
            norm and chooser.pick(DTYPES),
            chooser.pick(("nhd", "hnd")),
            stored,
            scope if stored in CODES else None,
            output,
        )
        turn = seed + seed // 12
        found.append(
            Case(
                problem,
                position.KINDS[turn % len(position.KINDS)],
                cache.KINDS[(turn + seed // 8) % len(cache.KINDS)],
                position.DATA[(turn + seed // 6) % len(position.DATA)],
                position.TABLES[turn // 3 % len(position.TABLES)],
                cache.SCALES[seed // 3 % len(cache.SCALES)],
                position.EPS[(turn + seed // 5) % len(position.EPS)],
                seed,
            )
        )
    return tuple(found)
