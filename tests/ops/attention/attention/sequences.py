"""Sequences of queries, keys and values, and caches that hold them in any way."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from typing import Any

import numpy as np

from planq.audit.ops.attention.attention.adapter import attend
from planq.audit.ops.attention.attention.reference import Problem
from planq.audit.reference.formats import STORAGE, Array, Arrays, narrowed

CODES = ("int8", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Options:
    """What is attended to, and how."""

    dtype: str = "bfloat16"
    cache: str | None = None
    scope: str | None = None
    heads: int = 4
    key_heads: int = 2
    columns: int = 32
    value_dim: int | None = None
    causal: bool = True
    window: int | None = None
    soft_cap: float | None = None
    sink: bool = False
    scale: float = 0.25
    output: str | None = "float32"


@dataclass(frozen=True)
class Paging:
    """Where keys lie."""

    size: int | None = None
    layout: str = "nhd"
    seed: int = 0


@dataclass(frozen=True)
class Sequence:
    """Queries, keys and values at every position, with the scales of each head of a key."""

    query: Array
    key: Array
    value: Array
    key_scale: Array
    value_scale: Array


@dataclass(frozen=True)
class Chunk:
    """Some tokens of a sequence, and how many keys there are: up to the last one by default."""

    sequence: int
    first: int
    end: int
    keys: int | None = None


@dataclass(frozen=True)
class Batch:
    """Sequences of these lengths."""

    options: Options
    lengths: tuple[int, ...]
    seed: int = 0
    sequences: tuple[Sequence, ...] = field(init=False)
    scales: Arrays = field(init=False)

    def __post_init__(self) -> None:
        """Draws everything."""
        rng, o = np.random.default_rng(self.seed), self.options
        width = o.value_dim or o.columns
        made = tuple(
            Sequence(
                floats(rng, (n, o.heads, o.columns), o.dtype),
                stored(rng, (n, o.key_heads, o.columns), o),
                stored(rng, (n, o.key_heads, width), o),
                *(rng.uniform(0.01, 0.03, (n, o.key_heads)).astype(np.float32) for _ in "kv"),
            )
            for n in self.lengths
        )
        object.__setattr__(self, "sequences", made)
        shape = (o.key_heads if o.scope == "head" else 1,)
        scales = {
            f"{side}_scale": rng.uniform(0.01, 0.03, shape).astype(np.float32)
            for side in ("key", "value")
        }
        scales["sink"] = rng.standard_normal(o.heads).astype(np.float32)
        object.__setattr__(self, "scales", scales)

    def problem(self, chunks: list[Chunk], paging: Paging) -> Problem:
        """For these chunks, each a sequence of its own."""
        o, count = self.options, sum(chunk.end - chunk.first for chunk in chunks)
        keys = max(max(self.lengths), 1)
        width = -(-keys // paging.size) if paging.size else 0
        return Problem(
            (count, o.heads, o.columns),
            o.key_heads,
            len(chunks),
            max(count, 1),
            keys,
            o.dtype,
            value_dim=o.value_dim,
            pages=width * len(chunks) + 1 if paging.size else None,
            page_size=paging.size,
            layout=paging.layout,
            cache_dtype=o.cache,
            output_dtype=o.output,
            causal=o.causal,
            window=o.window,
            soft_cap=o.soft_cap,
            scale_scope=o.scope,
            with_lse=True,
            with_sink=o.sink,
        )

    def operands(self, chunks: list[Chunk], paging: Paging) -> tuple[Problem, Arrays]:
        """The operands of these chunks; what no chunk has in the cache is NaN."""
        problem, o = self.problem(chunks, paging), self.options
        lengths = [c.end if c.keys is None else c.keys for c in chunks]
        made: dict[str, Any] = {
            "query": np.concatenate(
                [self.sequences[c.sequence].query[c.first : c.end] for c in chunks]
            ),
            "query_start": np.cumsum([0, *(c.end - c.first for c in chunks)]).astype(np.int32),
            "key_length": np.array(lengths, np.int32),
            "scale": np.array(o.scale, np.float64),
        }
        table = None
        if paging.size:
            sequences, width = problem.table_shape
            pages = np.random.default_rng(paging.seed).permutation(sequences * width + 1)
            table = pages[: sequences * width].reshape(sequences, width).astype(np.int32)
            made["block_table"] = table
        for side in ("key", "value"):
            made[f"{side}_cache"] = by_place = hollow(problem.cache_shape(side), o)
            scales = None
            if o.scope == "token":
                made[f"{side}_scale"] = scales = np.full(problem.scale_shape, np.nan, np.float32)
            elif o.cache:
                made[f"{side}_scale"] = self.scales[f"{side}_scale"]
            for row, (chunk, length) in enumerate(zip(chunks, lengths, strict=True)):
                own = self.sequences[chunk.sequence]
                at = np.arange(length)
                page = (
                    np.full(length, row) if table is None else table[row][at // problem.places[1]]
                )
                place = at % problem.places[1]
                for to, values in (
                    (by_place, getattr(own, side)),
                    (scales, getattr(own, f"{side}_scale")),
                ):
                    if to is not None:
                        turned = to if paging.layout == "nhd" else to.swapaxes(1, 2)
                        turned[page, place] = values[:length]
        if o.sink:
            made["sink"] = self.scales["sink"]
        if table is not None:  # what no token sees is no page
            for row, length in enumerate(lengths):
                table[row, -(-length // problem.places[1]) :] = (-1, 2**31 - 1)[row % 2]
        return problem, made

    def attend(self, chunks: list[Chunk], paging: Paging | None = None) -> Arrays:
        """The outputs for the tokens of all chunks."""
        problem, given = self.operands(chunks, paging or Paging())
        return attend(problem, given)


def floats(rng: Any, shape: tuple[int, ...], dtype: str) -> Array:
    """Normal ones."""
    return narrowed(rng.standard_normal(shape), dtype)


def stored(rng: Any, shape: tuple[int, ...], options: Options) -> Array:
    """What a cache holds of keys or values."""
    if options.cache is None:
        return floats(rng, shape, options.dtype)
    if options.cache == "int8":
        return np.asarray(rng.integers(-127, 128, shape, np.int8))
    return narrowed(30 * rng.standard_normal(shape), options.cache)


def hollow(shape: tuple[int, ...], options: Options) -> Array:
    """A cache of NaN, or of the largest code."""
    dtype = STORAGE[options.cache or options.dtype]
    return np.full(shape, 127 if options.cache == "int8" else np.nan).astype(dtype)


def rows(found: Arrays, chunks: list[Chunk]) -> dict[tuple[int, int], bytes]:
    """The bits of each token: by its sequence and its position."""
    places = [(c.sequence, i) for c in chunks for i in range(c.first, c.end)]
    return {
        place: found["output"][i].tobytes() + found["lse"][i].tobytes()
        for i, place in enumerate(places)
    }


ALL_CACHES = (
    (None, None),
    *(("int8", scope) for scope in ("tensor", "head", "token")),
    ("float8_e4m3fn", "token"),
    ("float8_e5m2", "head"),
)


def combinations() -> list[Options]:
    """Types, caches, windows, caps, sinks and groups of heads, with one another."""
    return [
        Options(
            dtype,
            cache,
            scope,
            heads=heads,
            key_heads=key_heads,
            value_dim=48 if window else None,
            window=window,
            soft_cap=cap,
            sink=sink,
            scale=0.05 if cache is None else 0.005,
        )
        for dtype, (cache, scope), (heads, key_heads), window, cap, sink in product(
            ("float16", "bfloat16"),
            ALL_CACHES,
            ((1, 1), (6, 2)),
            (None, 70),
            (None, 5.0),
            (False, True),
        )
    ]


def digest() -> str:
    """Of the outputs of some combinations, for whatever instruction set this process has."""
    whole = sha256()
    for place, options in enumerate(combinations()[::7]):
        batch = Batch(options, (5, 140), place)
        found = batch.attend([Chunk(0, 0, 5), Chunk(1, 100, 140)], Paging(16))
        whole.update(found["output"].tobytes() + found["lse"].tobytes())
    for length in range(1, 41):
        leave_nan()
        found = Batch(Options(), (length,), length).attend([Chunk(0, length - 1, length)])
        whole.update(found["output"].tobytes() + found["lse"].tobytes())
    return whole.hexdigest()


def leave_nan() -> None:
    """Attends to nothing but NaN, which may be left in a thread's memory."""
    batch = Batch(Options(), (130,))
    for values in (batch.sequences[0].query, batch.sequences[0].key, batch.sequences[0].value):
        values[...] = np.nan
    batch.attend([Chunk(0, 0, 130)])


if __name__ == "__main__":
    sys.stdout.write(digest())
