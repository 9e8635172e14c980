"""The fixed problems and inputs of `attention`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.ops.attention.attention.reference import (
    Problem,
    attention,
    invalid,
    tokens,
)
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array, Arrays
from planq.audit.reference.inputs import Chooser, field, hashed

DTYPES = ("float16", "bfloat16")
CACHES = (None, "int8", "float8_e4m3fn", "float8_e5m2")
SCOPES = ("tensor", "head", "token")
DATA = (
    *("normal", "finite", "normal", "mixed", "normal", "patterns", "normal", "subnormal"),
    *("normal", "zeros", "normal", "nonfinite", "normal", "huge", "normal", "ties"),
)
# How sequences share the tokens: all alike; by any share; one has all; one token each; several have
# none; some tokens are of no sequence; and what is wrong.
KINDS = (
    *("even", "ragged", "decode", "one", "even", "long", "ragged", "pages", "decode", "none"),
    *("even", "outside", "ragged", "starts"),
)
# Scores are spread, nearly alike, or far apart; and what no scale is.
SCALES = (
    *(0.125, 0.01, 1.0, 0.3, 3e-5, 0.0, 0.02, 0.125, 0.3, 0.05, math.nan, 0.1, 1.0, 0.2, 0.125),
    *(-1.0, 0.03),
)
SINKS = ("normal", "normal", "mixed")


@dataclass(frozen=True)
class Size:
    """Tokens, heads and columns; heads of keys; columns of values; sequences, keys, a page."""

    query: tuple[int, int, int]
    key_heads: int
    batch: int
    keys: int
    page: int | None = None
    value: int | None = None


# Few and many rows of a key head, columns of one group and of several slices, MLA's among them;
# pages smaller and larger than blocks; one key, a block, a span, and keys beyond these.
SIZES = (
    Size((3, 2, 64), 1, 3, 40, page=16),
    Size((1, 4, 128), 2, 1, 1100),
    Size((5, 6, 32), 2, 2, 300, page=7),
    Size((18, 1, 16), 1, 1, 130),
    Size((2, 20, 48), 1, 2, 90, page=64, value=32),
    Size((2, 5, 576), 1, 1, 35, page=32, value=512),
    Size((6, 3, 80), 3, 4, 257, page=128),
    Size((37, 2, 16), 2, 3, 64, page=1, value=48),
    Size((2, 2, 256), 1, 2, 140, page=256),
    Size((4, 2, 16), 2, 2, 2070, page=16),
    Size((9, 4, 64), 4, 3, 129),
    Size((1, 1, 16), 1, 1, 1),
    Size((20, 2, 256), 1, 2, 140, page=16),
    Size((13, 3, 192), 1, 1, 60),
    Size((23, 1, 96), 1, 1, 133, page=128),
)
# Spans of so many rows have no blocks of their own on a GPU. Nearly all tokens are of no sequence.
MANY = Size((4100, 1, 16), 1, 3, 2070, page=16)
EMPTY = (
    Size((0, 2, 64), 1, 2, 40, page=16),
    Size((0, 4, 16), 4, 1, 5),
)


@dataclass(frozen=True)
class Tail:
    """The last tokens of a sequence, without those before and without other sequences."""

    case: Case
    sequence: int
    first: int
    end: int

    @property
    def problem(self) -> Problem:
        """Of these tokens."""
        whole = self.case.problem
        return replace(whole, query_shape=(self.end - self.first, *whole.query_shape[1:]))

    def inputs(self, whole: Arrays) -> Arrays:
        """Other sequences have neither tokens nor keys."""
        made = dict(whole)
        made["query"] = np.ascontiguousarray(whole["query"][self.first : self.end])
        own = np.arange(self.case.problem.batch)
        start = np.where(np.append(own, own.size) > self.sequence, self.end - self.first, 0)
        made["query_start"] = start.astype(np.int32)
        made["key_length"] = np.where(own == self.sequence, whole["key_length"], np.int32(0))
        return made

    def outputs(self, whole: Arrays) -> Arrays:
        """Their rows; how many of them have no answer is counted anew."""
        rows = slice(self.first, self.end)
        made = {n: np.ascontiguousarray(v[rows]) for n, v in whole.items() if n != "invalid"}
        return made | {"invalid": invalid(tokens(self.problem, self.inputs(self.case.inputs())))}


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Problem
    kind: str = "ragged"
    data: str = "normal"
    scale: float = 0.125
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        own = f"{self.kind},data={self.data},scale={self.scale:g},seed={self.seed}"
        return f"{self.problem.id},{own}"

    @property
    def size(self) -> int:
        """Multiplications of all tokens with all keys of a sequence, roughly."""
        problem = self.problem
        width = problem.columns("key") + problem.columns("value")
        return math.prod(problem.query_shape[:2]) * problem.max_key * width // 16

    def reseeded(self, seed: int) -> Case:
        """Other sequences and other values."""
        kind, data = KINDS[seed % len(KINDS)], DATA[seed % len(DATA)]
        if self.problem.query_shape[0] >= MANY.query[0]:
            kind = self.kind
        return replace(self, kind=kind, data=data, seed=seed + 1000)

    def _start(self) -> Array:
        problem, kind = self.problem, self.kind
        count, batch = problem.query_shape[0], problem.batch
        cuts = np.arange(1, batch) * count // batch
        if kind in ("ragged", "pages", "outside"):
            cuts = np.sort(field(hashed(self.seed, batch), 3, 30) % (count + 1))[: batch - 1]
        elif kind == "one":
            cuts = np.where(np.arange(1, batch) > self.seed % batch, count, 0)
        elif kind == "decode":
            cuts = np.minimum(np.arange(1, batch), count)
        elif kind == "none":
            cuts = np.arange(1, batch) // 2 * count // batch
        start = np.concatenate([[0], cuts, [count]])
        if kind == "decode":
            start[-1] = min(batch, count)
        if kind == "outside":
            start = np.clip(start, min(1, count), max(count - 1, min(1, count)))
        if kind == "starts":
            start[self.seed % (batch + 1)] = (-1, count + 1, 2**31 - 1)[self.seed % 3]
        return start.astype(np.int32)

    def _length(self, start: Array) -> Array:
        problem = self.problem
        words = hashed(self.seed + 1, problem.batch)
        length = field(words, 5, 30) % (problem.max_key + 1)
        chosen = field(words, 40, 2)
        length = np.where(chosen == 0, problem.max_key, length)
        if self.kind in ("decode", "even"):  # tokens are the last of their sequences
            length = np.maximum(length, np.minimum(np.diff(start), problem.max_key))
        if self.kind == "none":
            length = np.where(chosen == 1, 0, length)
        if self.kind == "long":
            most = np.full_like(length, problem.max_key + 1)
            length = np.choose(
                chosen, (length, most, -1 - length, most + 2**31 - 2 - problem.max_key)
            )
        return length.astype(np.int32)

    def _table(self) -> Array:
        problem = self.problem
        sequences, width = problem.table_shape
        words = hashed(self.seed + 2, sequences * width)
        pages = problem.places[0]
        table = (np.argsort(words) % pages).reshape(sequences, width)
        if self.kind == "pages":
            wrong = np.choose(field(words, 20, 2), (-1, pages, 2**31 - 1, -(2**31)))
            some = field(words, 30, 3) == 0
            table = np.where(some.reshape(table.shape), wrong.reshape(table.shape), table)
        return table.astype(np.int32)

    def _cache(self, side: str, seed: int) -> Array:
        problem = self.problem
        shape, stored = problem.cache_shape(side), STORAGE[problem.stored_dtype]
        if not problem.has_codes:
            return inputs.make(self.data, shape, problem.input_dtype, seed)
        words = hashed(seed, -(-math.prod(shape) // 8))
        room = words.view(np.uint8)[: math.prod(shape)].copy()
        if problem.stored_dtype.startswith("float8") and self.data not in ("nonfinite", "mixed"):
            room &= np.uint8(0xBF)  # no NaN and no infinity
        return room.view(stored).reshape(shape)

    def _hide(self, made: Arrays) -> None:
        """Makes NaN of what no token sees, or the largest code."""
        problem = self.problem
        hidden = np.ones(problem.places, bool)
        for token in tokens(problem, made):
            at = np.arange(token.first, token.end)
            page, place = np.full(at.size, token.sequence), at
            if problem.page_size:
                page = made["block_table"][token.sequence][at // problem.page_size]
                place = at % problem.page_size
            has = (page >= 0) & (page < problem.places[0])
            hidden[page[has], place[has]] = False
        for name in ("key_cache", "value_cache"):
            by_place = made[name] if problem.layout == "nhd" else made[name].swapaxes(1, 2)
            odd = 127 if problem.stored_dtype == "int8" else np.nan
            by_place[hidden] = np.array(odd).astype(by_place.dtype)

    def _scale(self, seed: int) -> Array:
        shape = self.problem.scale_shape
        if self.data in ("huge", "mixed"):
            return inputs.make(self.data, shape, "float32", seed)
        steps = field(hashed(seed, math.prod(shape)), 9, 10).astype(np.float32)
        return np.asarray(steps * np.float32(2.0**-14) + np.float32(2.0**-8)).reshape(shape)

    def inputs(self) -> Arrays:
        """Queries, where sequences are, and a cache."""
        problem, seed = self.problem, self.seed
        made: dict[str, Any] = {
            "query": inputs.make(self.data, problem.query_shape, problem.input_dtype, seed + 3),
            "query_start": self._start(),
            "scale": np.array(self.scale, np.float64),
        }
        made["key_length"] = self._length(made["query_start"])
        if problem.page_size:
            made["block_table"] = self._table()
        for i, side in enumerate(("key", "value")):
            made[f"{side}_cache"] = self._cache(side, seed + 4 + i)
            if problem.has_codes:
                made[f"{side}_scale"] = self._scale(seed + 6 + i)
        if problem.with_sink:
            kind = SINKS[seed % len(SINKS)]
            made["sink"] = inputs.make(kind, (problem.query_shape[1],), "float32", seed + 8)
        if seed % 4:
            self._hide(made)
        return made

    def expected(self, given: Arrays) -> Arrays:
        """The reference's outputs."""
        return attention(self.problem, given)

    def parts(self) -> Iterator[Tail]:
        """Ends of sequences."""
        start = self._start()
        if self.kind == "starts":
            return
        fits = np.diff(start) <= self.problem.max_query
        for sequence in np.flatnonzero(fits & (np.diff(start) > 0)):
            first, end = start[sequence : sequence + 2].tolist()
            for token in {first, (first + end) // 2, end - 1}:
                yield Tail(self, int(sequence), token, end)


def problem_of(size: Size, dtype: str, cache: str | None, scope: str | None, seed: int) -> Problem:
    """A problem whose other fields are drawn."""
    chooser = Chooser(seed)
    width = -(-size.keys // size.page) if size.page else 0
    return Problem(
        size.query,
        size.key_heads,
        size.batch,
        max(size.query[0], 1),
        size.keys,
        dtype,
        value_dim=size.value,
        pages=max(width * size.batch - seed % 2, 1) if size.page else None,
        page_size=size.page,
        layout=chooser.pick(("nhd", "hnd")),
        cache_dtype=cache,
        output_dtype=chooser.pick((None, None, "float32", "float16", "bfloat16")),
        causal=chooser.pick((False, True)),
        window=chooser.pick((None, None, 1, 9, 150)),
        soft_cap=chooser.pick((None, None, 30.0, 0.1)),
        scale_scope=scope,
        with_lse=chooser.pick((False, True)),
        with_sink=chooser.pick((False, True)),
    )


def cases(sizes: tuple[Size, ...]) -> tuple[Case, ...]:
    """Every size and pair of types; the rest is drawn."""
    found: list[Case] = []
    for size in sizes:
        for dtype in DTYPES:
            for cache in CACHES:
                seed = len(found)
                scope = cache and SCOPES[(seed // 8 + seed) % len(SCOPES)]
                turn = seed + seed // 8
                found.append(
                    Case(
                        problem_of(size, dtype, cache, scope, seed),
                        KINDS[(turn + seed // 16) % len(KINDS)],
                        DATA[(seed * 3 + seed // 8) % len(DATA)],
                        SCALES[turn % len(SCALES)],
                        seed,
                    )
                )
    return tuple(found)


def many_cases() -> tuple[Case, ...]:
    """Rows of several spans among many that see nothing."""
    pairs = [(dtype, cache) for dtype in DTYPES for cache in CACHES]
    return tuple(
        Case(problem_of(MANY, dtype, cache, cache and "head", seed), "decode", "normal", 0.05, seed)
        for seed, (dtype, cache) in enumerate(pairs, 200)
    )
