"""`attention` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from planq.audit.ops.attention.states import F32, State, logarithm, merged, score
from planq.audit.ops.linear.float_sums import chain
from planq.audit.reference.formats import STORAGE, Array, Arrays, canonical, narrowed
from planq.audit.reference.functions import FUNCTIONS, exp2_fast, fma

BLOCK, SPAN = 128, 1024


@dataclass(frozen=True)
class Problem:
    """Queries and a cache: the descriptor's fields, in plain values."""

    query_shape: tuple[int, int, int]
    key_heads: int
    batch: int
    max_query: int
    max_key: int
    input_dtype: str
    value_dim: int | None = None
    pages: int | None = None
    page_size: int | None = None
    layout: str = "nhd"
    cache_dtype: str | None = None
    output_dtype: str | None = None
    causal: bool = False
    window: int | None = None
    soft_cap: float | None = None
    scale_scope: str | None = None
    with_lse: bool = False
    with_sink: bool = False

    @property
    def group(self) -> int:
        """How many heads of queries share one of keys."""
        return self.query_shape[1] // self.key_heads

    @property
    def stored_dtype(self) -> str:
        """The element type of the cache."""
        return self.cache_dtype or self.input_dtype

    @property
    def has_codes(self) -> bool:
        """Whether there are scales."""
        return self.stored_dtype != self.input_dtype

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Of the results."""
        return (*self.query_shape[:2], self.columns("value"))

    def columns(self, side: str) -> int:
        """Of a key's head or a value's."""
        return self.value_dim or self.query_shape[2] if side == "value" else self.query_shape[2]

    @property
    def places(self) -> tuple[int, int]:
        """Pages, and keys of a page; without pages, sequences and keys of each."""
        if not self.page_size:
            return self.own_places
        pages = math.prod(self.table_shape) if self.pages is None else self.pages
        return pages, self.page_size

    @property
    def own_places(self) -> tuple[int, int]:
        """Sequences and keys of each."""
        return self.batch, self.max_key

    def cache_shape(self, side: str) -> tuple[int, ...]:
        """Of keys or of values."""
        pages, size = self.places
        axes = (size, self.key_heads)
        return (pages, *(axes if self.layout == "nhd" else axes[::-1]), self.columns(side))

    @property
    def table_shape(self) -> tuple[int, int]:
        """Of the pages of all sequences."""
        assert self.page_size
        return self.batch, -(-self.max_key // self.page_size)

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """One for all, one for each head, or one for each head of a key."""
        if self.scale_scope == "token":
            return self.cache_shape("key")[:-1]
        return (self.key_heads if self.scale_scope == "head" else 1,)

    @cached_property
    def id(self) -> str:
        """A stable name."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        shape = "x".join(map(str, told.pop("query_shape")))
        return ",".join([shape, *(f"{name}={value}" for name, value in told.items() if value)])


# --- What tokens see -----------------------------------------------------------------------------


class Token(NamedTuple):
    """A token's sequence, and the keys that it sees; a sequence of -1 is none."""

    sequence: int = -1
    first: int = 0
    end: int = 0
    lost: bool = False


def starts_are_right(problem: Problem, start: Array) -> bool:
    """Whether sequences follow one another inside of the tokens."""
    return bool(
        (np.diff(start) >= 0).all() and start[0] >= 0 and start[-1] <= problem.query_shape[0]
    )


def tokens(problem: Problem, given: Arrays) -> list[Token]:
    """Every token."""
    start, length = (given[name].astype(np.int64) for name in ("query_start", "key_length"))
    count = problem.query_shape[0]
    if not starts_are_right(problem, start):
        return [Token(lost=True)] * count
    found = [Token()] * count
    for sequence, keys in enumerate(length.tolist()):
        begin, end = start[sequence : sequence + 2].tolist()
        fits = end - begin <= problem.max_query and 0 <= keys <= problem.max_key
        for token in range(begin, end):
            found[token] = seen(problem, given, sequence, keys, keys - (end - token), fits=fits)
    return found


def seen(
    problem: Problem, given: Arrays, sequence: int, length: int, position: int, *, fits: bool
) -> Token:
    """What a token at this position sees."""
    if not fits:
        return Token(sequence, lost=True)
    end = min(length, position + 1) if problem.causal else length
    first = max(0, position - problem.window + 1) if problem.window else 0
    if first >= end:
        return Token(sequence)
    return Token(sequence, first, end, lost=not has_pages(problem, given, sequence, first, end))


def has_pages(problem: Problem, given: Arrays, sequence: int, first: int, end: int) -> bool:
    """Whether the cache has the pages of these keys."""
    if not problem.page_size:
        return True
    size = problem.page_size
    pages = given["block_table"][sequence, first // size : (end - 1) // size + 1]
    return bool(((pages >= 0) & (pages < problem.places[0])).all())


def invalid(found: list[Token]) -> Array:
    """How many tokens have no answer."""
    return np.array([sum(token.lost for token in found)], np.int64)


# --- The keys of a sequence ----------------------------------------------------------------------


class Side(NamedTuple):
    """Keys or values of a head, at the places of a sequence's keys, and scales of each."""

    values: Array
    scale: Array | None


def side_of(problem: Problem, given: Arrays, name: str, sequence: int, end: int, head: int) -> Side:
    """Those of keys up to `end`; a key whose page the cache lacks is 0."""
    at = np.arange(end)
    page, place = np.full(end, sequence), at
    if problem.page_size:
        page = given["block_table"][sequence][at // problem.page_size].astype(np.int64)
        place = at % problem.page_size
    has = (page >= 0) & (page < problem.places[0])
    index = (np.where(has, page, 0), *((place, head) if problem.layout == "nhd" else (head, place)))
    stored = given[f"{name}_cache"].view(STORAGE[problem.stored_dtype])[index]
    own = STORAGE[problem.input_dtype]
    values = np.where(has[:, None], stored.astype(np.float32), F32(0)).astype(own)
    scale = None
    if problem.scale_scope == "token":
        scale = np.where(has, given[f"{name}_scale"][index], F32(1))
    return Side(values, scale)


def head_scale(problem: Problem, given: Arrays, name: str, head: int) -> Array | None:
    """The scale that all keys of a head have; None where there is none."""
    if not problem.has_codes or problem.scale_scope == "token":
        return None
    return np.asarray(given[f"{name}_scale"][head if problem.scale_scope == "head" else 0])


# --- Rows that share keys ------------------------------------------------------------------------


class Rows(NamedTuple):
    """Queries (rows, columns), what each sees, and what scores are multiplied by."""

    query: Array
    first: Array
    end: Array
    factor: Array
    key_scale: Array | None  # of scores, before a cap


def scores(problem: Problem, rows: Rows, keys: Side, block: slice) -> Array:
    """(rows, keys)."""
    own = keys.values[block]
    s = chain(np.zeros((len(rows.query), len(own)), F32), rows.query, own)
    if keys.scale is not None:
        s = s * keys.scale[block]
    if rows.key_scale is not None:
        s = s * rows.key_scale
    if problem.soft_cap is not None:
        cap = F32(problem.soft_cap)
        s = cap * FUNCTIONS["tanh"](s * (F32(1) / cap))
    return s


def weighed(found: Array, weights: Array, values: Array, visible: Array) -> Array:
    """The chain over a block's values; those that a row does not see are none of its."""
    if np.isfinite(values.astype(F32)).all():
        return chain(found, weights, values.T)
    return np.concatenate(
        [
            chain(
                found[i : i + 1],
                weights[i : i + 1],
                np.where(visible[i][:, None], values, values.dtype.type(0)).T,
            )
            for i in range(len(found))
        ]
    )


def span_of(problem: Problem, rows: Rows, sides: tuple[Side, Side], at: int) -> tuple[State, Array]:
    """The state of a span of keys, and which rows have lost theirs."""
    count = len(rows.query)
    keys, values = sides
    most, lost = np.full(count, -np.inf, F32), np.zeros(count, bool)
    sums, found = np.zeros((4, count), F32), np.zeros((count, values.values.shape[1]), F32)
    for begin in range(at, min(at + SPAN, len(keys.values)), BLOCK):
        block = slice(begin, min(begin + BLOCK, len(keys.values)))
        place = np.arange(block.start, block.stop)
        visible = (place >= rows.first[:, None]) & (place < rows.end[:, None])
        takes = np.asarray(visible.any(axis=1))
        s = np.where(visible, scores(problem, rows, keys, block), F32(-np.inf))
        largest = s.max(axis=1) * rows.factor
        fine = np.all(s < np.inf, axis=1) & (largest < np.inf)
        lost |= takes & ~fine
        following = np.where(takes & (largest > most), largest, most)
        fading = np.where(most == -np.inf, F32(1), exp2_fast(5, most - following))
        powers = exp2_fast(5, fma(s, rows.factor, -following[:, None]))
        powers = np.where(visible, powers, F32(0))
        padded = np.zeros((count, BLOCK), F32)
        padded[:, : len(place)] = powers
        made = sums * fading
        for j in range(BLOCK):
            made[j % 8 // 2] += padded[:, j]
        weights = powers if values.scale is None else powers * values.scale[block]
        weights = np.where(visible, weights, F32(0))
        weighted = weighed(
            found * fading[:, None],
            narrowed(weights, problem.input_dtype),
            values.values[block],
            visible,
        )
        most = following
        sums = np.where(takes, made, sums)
        found = np.where(takes[:, None], weighted, found)
    return State(most, (sums[0] + sums[1]) + (sums[2] + sums[3]), found), lost


def attended(problem: Problem, rows: Rows, sides: tuple[Side, Side]) -> tuple[State, Array]:
    """The state of all keys."""
    count, width = len(rows.query), sides[1].values.shape[1]
    state = State(np.full(count, -np.inf, F32), np.zeros(count, F32), np.zeros((count, width), F32))
    lost = np.zeros(count, bool)
    for at in range(0, len(sides[0].values), SPAN):
        own, odd = span_of(problem, rows, sides, at)
        lost |= odd
        sees = np.asarray((rows.first < at + SPAN) & (rows.end > at) & (rows.first < rows.end))
        state = state.where(~sees, merged(state, own))
    return state, lost


def finished(
    problem: Problem,
    state: State,
    lost: Array,
    sees: Array,
    sink: Array | None,
    scale: Array | None,
) -> tuple[Array, Array]:
    """The outputs of rows and their logarithms."""
    if sink is not None:
        own = score(sink)
        lost = lost | ~(own < np.inf)
        state = merged(state, State(own, np.ones_like(own), np.zeros_like(state.found)))
    y = state.found * (F32(1) / state.total)[:, None]
    if scale is not None:
        y = y * scale
    y = y + F32(0)
    y = np.where(sees[:, None], y, F32(0))
    y = np.where(lost[:, None], F32(np.nan), y)
    lse = np.where(lost, F32(np.nan), logarithm(state))
    dtype = problem.output_dtype or problem.input_dtype
    stored = canonical(y, dtype) if dtype == "float32" else narrowed(y, dtype)
    return stored, canonical(lse, "float32")


def factors(problem: Problem, given: Arrays, head: int) -> tuple[Array, Array | None]:
    """What scores are multiplied by after a cap, and before it."""
    c = score(given["scale"].astype(F32))
    scale = head_scale(problem, given, "key", head)
    if scale is None or problem.soft_cap is not None:
        return c, scale
    return np.asarray(c * scale), None


def attention(problem: Problem, given: Arrays) -> Arrays:
    """The operator's outputs."""
    with np.errstate(all="ignore"):
        return outputs(problem, given)


def outputs(problem: Problem, given: Arrays) -> Arrays:
    """One head of keys and one sequence after another."""
    found = tokens(problem, given)
    dtype = STORAGE[problem.output_dtype or problem.input_dtype]
    output = np.zeros(problem.output_shape, dtype)
    lse = np.zeros(problem.query_shape[:2], F32)
    for sequence in sorted({token.sequence for token in found}):
        own = [i for i, token in enumerate(found) if token.sequence == sequence]
        for head in range(problem.key_heads):
            heads = slice(head * problem.group, (head + 1) * problem.group)
            y, logarithms = of_head(problem, given, [found[i] for i in own], own, head)
            output[own, heads] = y.reshape(len(own), problem.group, -1)
            lse[own, heads] = logarithms.reshape(len(own), problem.group)
    made = {"output": output, "invalid": invalid(found)}
    return made | ({"lse": lse} if problem.with_lse else {})


def of_head(
    problem: Problem, given: Arrays, found: list[Token], own: list[int], head: int
) -> tuple[Array, Array]:
    """The rows of a sequence that share keys."""
    group = problem.group
    heads = slice(head * group, (head + 1) * group)
    first, end, gone = (np.repeat(each, group) for each in np.array([t[1:] for t in found]).T)
    factor, key_scale = factors(problem, given, head)
    query = given["query"][own, heads].reshape(len(own) * group, -1)
    rows = Rows(query, first, end, factor, key_scale)
    sides = tuple(
        side_of(problem, given, name, found[0].sequence, int(end.max()), head)
        for name in ("key", "value")
    )
    state, lost = attended(problem, rows, (sides[0], sides[1]))
    lost = lost | gone.astype(bool) | ~((factor > 0) & (factor < np.inf))
    sink = np.tile(given["sink"][heads], len(own)) if problem.with_sink else None
    scale = head_scale(problem, given, "value", head)
    return finished(problem, state, lost, first < end, sink, scale)
