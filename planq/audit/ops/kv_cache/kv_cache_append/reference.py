"""`kv_cache_append` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.affine.reference import float8_codes, integer_codes, ranges_of
from planq.audit.reference.formats import FLOATS, STORAGE, Array, Arrays, narrowed

F32 = np.float32
CODES = ("int8", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class Problem:
    """Tokens and a cache: the descriptor's fields, in plain values."""

    key_shape: tuple[int, int, int]
    pages: int
    page_size: int
    input_dtype: str
    value_dim: int | None = None
    layout: str = "nhd"
    cache_dtype: str | None = None
    scale_scope: str | None = None

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return self.key_shape[0]

    @property
    def capacity(self) -> int:
        """How many slots the cache has."""
        return self.pages * self.page_size

    @property
    def stored_dtype(self) -> str:
        """The element type of the cache."""
        return self.cache_dtype or self.input_dtype

    @property
    def has_codes(self) -> bool:
        """Whether there are scales."""
        return self.stored_dtype in CODES

    @property
    def has_copies(self) -> bool:
        """Whether nothing is computed."""
        return self.stored_dtype == self.input_dtype

    @property
    def sides(self) -> dict[str, int]:
        """Keys, and values if there are any, with the columns of a head."""
        return {"key": self.key_shape[2]} | ({"value": self.value_dim} if self.value_dim else {})

    def input_shape(self, side: str) -> tuple[int, ...]:
        """Of keys or of values."""
        return (*self.key_shape[:2], self.sides[side])

    def cache_shape(self, side: str) -> tuple[int, ...]:
        """Of their pages."""
        axes = (self.page_size, self.key_shape[1])
        return (self.pages, *(axes if self.layout == "nhd" else axes[::-1]), self.sides[side])

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """One for all, one for each head, or one for each head of a slot."""
        if self.scale_scope == "token":
            return self.cache_shape("key")[:-1]
        return (self.key_shape[1] if self.scale_scope == "head" else 1,)

    @cached_property
    def id(self) -> str:
        """A stable name."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        shape = "x".join(map(str, told.pop("key_shape")))
        return ",".join([shape, *(f"{name}={value}" for name, value in told.items())])


def measured(problem: Problem, heads: Array) -> Array:
    """The scale of each head of a token."""
    x = np.abs(heads.astype(F32))
    peak = np.max(x, axis=-1, initial=0)
    _, largest = ranges_of(problem.stored_dtype, "symmetric")
    step = np.maximum(peak / F32(largest), np.finfo(F32).smallest_normal)
    return np.where(np.isfinite(peak), np.where(peak == 0, F32(1), step), F32(np.nan)).astype(F32)


def stored(problem: Problem, heads: Array, scale: Array | None) -> Array:
    """What the cache holds of keys or values."""
    if problem.has_copies:
        return heads
    if scale is None:
        return narrowed(heads, problem.stored_dtype)
    dtype = problem.stored_dtype
    quotients = np.asarray(heads.astype(F32) / scale[..., None])
    bounds = ranges_of(dtype, "symmetric")
    if dtype in FLOATS:
        return float8_codes(quotients, bounds, dtype, "propagate").view(STORAGE[dtype])
    zero = np.zeros((), np.int64)
    return integer_codes(quotients, zero, bounds).astype(STORAGE[dtype])


def kv_cache_append(problem: Problem, given: Arrays) -> Arrays:
    """The operator's outputs: tokens one after another."""
    slot = given["slot"]
    outputs = {"invalid": np.array([np.count_nonzero(slot >= problem.capacity)], np.int64)}
    for side in problem.sides:
        scale, made = given.get(f"{side}_scale"), {}
        if problem.scale_scope == "token":
            scale = measured(problem, given[side])
            made[f"{side}_scale"] = scale
        made[f"{side}_cache"] = stored(problem, given[side], scale)
        for name, of_tokens in made.items():
            outputs[name] = given[name].copy()
            pages = outputs[name]
            by_place = pages if problem.layout == "nhd" else pages.swapaxes(1, 2)
            for token in np.flatnonzero((slot >= 0) & (slot < problem.capacity)):
                page, place = divmod(int(slot[token]), problem.page_size)
                by_place[page, place] = of_tokens[token]
    return outputs
