"""`rotary_kv_cache_append` in NumPy: the references of its two operators, one after the other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.kv_cache.kv_cache_append import reference as cache
from planq.audit.ops.position.rotary_embedding import reference as position
from planq.audit.reference.formats import Array, Arrays, narrowed


@dataclass(frozen=True)
class Problem:
    """Heads, how they are turned, and a cache: the descriptor's fields, in plain values."""

    query_shape: tuple[int, int, int]
    key_heads: int
    max_position: int
    pages: int
    page_size: int
    dtype: str
    value_dim: int | None = None
    rotary_dim: int | None = None
    pairs: str = "neox"
    position_dtype: str = "int64"
    norm_weight_dtype: str | None = None
    layout: str = "nhd"
    cache_dtype: str | None = None
    scale_scope: str | None = None
    output_dtype: str | None = None

    @property
    def turn(self) -> position.Problem:
        """Of the first operator."""
        return position.Problem(
            self.query_shape,
            self.max_position,
            self.dtype,
            self.key_heads,
            self.rotary_dim,
            self.pairs,
            self.position_dtype,
            self.norm_weight_dtype,
        )

    @property
    def append(self) -> cache.Problem:
        """Of the second one."""
        return cache.Problem(
            self.turn.key_shape,
            self.pages,
            self.page_size,
            self.dtype,
            self.value_dim,
            self.layout,
            self.cache_dtype,
            self.scale_scope,
        )

    @cached_property
    def id(self) -> str:
        """A stable name."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        shape = "x".join(map(str, told.pop("query_shape")))
        return ",".join([shape, *(f"{name}={value}" for name, value in told.items())])


def output_of(problem: Problem, query: Array) -> Array:
    """Turned queries in the type of the output."""
    if problem.output_dtype in (None, problem.dtype):
        return query
    return narrowed(query, problem.output_dtype)


def rotary_kv_cache_append(problem: Problem, given: Arrays) -> Arrays:
    """The operator's outputs."""
    turned = position.rotary_embedding(problem.turn, given)
    appended = cache.kv_cache_append(problem.append, given | {"key": turned["key"]})
    invalid = np.concatenate([turned["invalid"], appended["invalid"]])
    if problem.output_dtype:
        turned = {"query_output": output_of(problem, turned["query"])}
    return turned | appended | {"invalid": invalid}
