"""The fixed problems and inputs of `kv_cache_append`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from planq.audit.ops.kv_cache.kv_cache_append.reference import CODES, Problem, kv_cache_append
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array, Arrays
from planq.audit.reference.inputs import Chooser, field, hashed

DTYPES = ("float16", "bfloat16", "float32")
CACHES = (None, "int8", "float8_e4m3fn", "float8_e5m2")
# What float32 is rounded to.
ROUNDED = ("float16", "bfloat16")
DATA = ("normal", "finite", "mixed", "nonfinite", "patterns", "subnormal", "huge", "zeros", "ties")
SCALES = ("fitting", "fitting", "finite", "mixed")
SCOPES = ("tensor", "head", "token")
# Where slots are: all over, with many of them equal; each its own; few of them; one for all; some
# skipped and some beyond, by little, by any bits and by what is lost in 32 bits; none inside.
KINDS = ("spread", "own", "few", "one", "outside", "any_bits", "wrapped", "none")
# Tokens, heads and columns; columns of values; pages and their size. Whole vectors and not; a token
# to a block, several, and more than a table has places for; values of other columns, and none.
SIZES: tuple[tuple[tuple[int, int, int], int | None, int, int], ...] = (
    ((1, 8, 128), 128, 3, 16),
    ((5, 2, 64), 64, 4, 1),
    ((7, 1, 576), None, 2, 8),
    ((33, 3, 24), 40, 5, 7),
    ((4, 2, 5), 3, 3, 4),
    ((300, 1, 8), 8, 9, 16),
    ((900, 2, 16), None, 40, 32),
    ((9001, 1, 4), 2, 300, 16),
    ((64, 4, 96), 33, 6, 16),
)
EMPTY: tuple[tuple[tuple[int, int, int], int | None, int, int], ...] = (
    ((0, 2, 16), 16, 3, 4),
    ((3, 0, 16), 16, 3, 4),
    ((3, 2, 0), None, 3, 4),
    ((5, 2, 16), None, 0, 4),
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
        return replace(whole, key_shape=(1, *whole.key_shape[1:]))

    def inputs(self, whole: Arrays) -> Arrays:
        """The token alone."""
        own = {name: whole[name] for name in ("key", "value", "slot") if name in whole}
        return whole | {name: each[self.place : self.place + 1] for name, each in own.items()}

    def outputs(self, whole: Arrays) -> Arrays:
        """The cache, but for what other tokens have written."""
        problem, before = self.case.problem, self.case.inputs()
        slot = int(before["slot"][self.place])
        made = {"invalid": np.array([slot >= problem.capacity], np.int64)}
        for side in problem.sides:
            measured = (f"{side}_scale",) if problem.scale_scope == "token" else ()
            for name in (f"{side}_cache", *measured):
                made[name] = before[name].copy()
                if 0 <= slot < problem.capacity:
                    page, place = divmod(slot, problem.page_size)
                    at = (page, place) if problem.layout == "nhd" else (page, slice(None), place)
                    made[name][at] = whole[name][at]
        return made


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Problem
    kind: str = "spread"
    data: str = "normal"
    scales: str = "fitting"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        own = f"{self.kind},data={self.data},scales={self.scales},seed={self.seed}"
        return f"{self.problem.id},{own}"

    @property
    def size(self) -> int:
        """Elements of tokens and of the cache."""
        problem = self.problem
        return sum(
            math.prod(problem.input_shape(side)) + math.prod(problem.cache_shape(side))
            for side in problem.sides
        )

    def reseeded(self, seed: int) -> Case:
        """Other slots and other values."""
        kind, data = KINDS[seed % len(KINDS)], DATA[seed % len(DATA)]
        return replace(self, kind=kind, data=data, seed=seed + 1000)

    def slot(self) -> Array:
        """Of each token."""
        count, slots = self.problem.tokens, self.problem.capacity
        words = hashed(self.seed + 1, count)
        spread = (words % np.uint64(max(slots, 1))).astype(np.int64)
        chosen = field(words, 40, 2)
        if self.kind == "own":  # each once, as long as there are some
            spread = (np.arange(count) * 7 + 3) % max(slots, 1)
        elif self.kind == "few":
            spread = spread % 3
        elif self.kind == "one":
            spread = np.full_like(spread, slots // 2)
        elif self.kind == "outside":
            spread = np.choose(chosen, (spread, -1 - spread, slots + spread, spread))
        elif self.kind == "any_bits":
            spread = np.where(chosen == 0, words.view(np.int64), spread)
        elif self.kind == "wrapped":
            spread = np.where(chosen == 0, spread + 2**32, spread)
        elif self.kind == "none":
            spread = np.where(chosen == 0, slots, -1 - spread)
        return np.asarray(spread, np.int64)

    def _scale(self, seed: int) -> Array:
        shape = self.problem.scale_shape
        if self.scales != "fitting":
            return inputs.make(self.scales, shape, "float32", seed)
        steps = field(hashed(seed, math.prod(shape)), 9, 10).astype(np.float32)
        return np.asarray(steps * np.float32(2.0**-14) + np.float32(2.0**-8)).reshape(shape)

    def inputs(self) -> Arrays:
        """Tokens, their slots, a cache of any bytes, and scales."""
        problem, seed = self.problem, self.seed
        made = {"slot": self.slot()}
        for i, side in enumerate(problem.sides):
            shape = problem.input_shape(side)
            made[side] = inputs.make(self.data, shape, problem.input_dtype, seed + 2 + i)
            stored, pages = STORAGE[problem.stored_dtype], problem.cache_shape(side)
            words = hashed(seed + 4 + i, -(-math.prod(pages) * stored.itemsize // 8))
            room = words.view(np.uint8)[: math.prod(pages) * stored.itemsize]
            made[f"{side}_cache"] = room.view(stored).reshape(pages)
            if problem.has_codes:
                made[f"{side}_scale"] = self._scale(seed + 6 + i)
        return made

    def expected(self, given: Arrays) -> Arrays:
        """The reference's outputs."""
        with np.errstate(all="ignore"):
            return kv_cache_append(self.problem, given)

    def parts(self) -> Iterator[Token]:
        """Tokens that count, and those that are skipped."""
        slot = self.slot().tolist()
        last = {own: token for token, own in enumerate(slot)}
        return (Token(self, token) for token, own in enumerate(slot) if last[own] == token)


def is_whole(problem: Problem) -> bool:
    """Whether heads are whole vectors."""
    vector = 4 if problem.input_dtype == "float32" else 8
    return all(columns % vector == 0 for columns in problem.sides.values())


def cases(
    sizes: tuple[tuple[tuple[int, int, int], int | None, int, int], ...],
) -> tuple[Case, ...]:
    """Every size and pair of types; the rest is drawn."""
    pairs = [*product(sizes, product(DTYPES, CACHES))]
    pairs += product(sizes, product(("float32",), ROUNDED))
    found: list[Case] = []
    for (shape, value, pages, page_size), (dtype, cache) in pairs:
        seed = len(found)
        chooser = Chooser(seed)
        scope = SCOPES[(seed // 12 + seed // 4 + seed % 4) % len(SCOPES)]
        problem = Problem(
            shape,
            pages,
            page_size,
            dtype,
            value,
            chooser.pick(("nhd", "hnd")),
            cache,
            scope if cache in CODES else None,
        )
        turn = seed + seed // 12
        kind, data = KINDS[(turn + seed // 8) % len(KINDS)], DATA[turn % len(DATA)]
        found.append(Case(problem, kind, data, SCALES[seed // 3 % len(SCALES)], seed))
    return tuple(found)
