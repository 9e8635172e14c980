"""`rotary_embedding` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.norm.reference import F32, factors, row_sums
from planq.audit.reference.formats import CANONICAL_NAN, Array, Arrays, narrowed
from planq.audit.reference.functions import fma


@dataclass(frozen=True)
class Problem:
    """Heads and how they are turned: the descriptor's fields, in plain values."""

    query_shape: tuple[int, int, int]
    max_position: int
    dtype: str
    key_heads: int | None = None
    rotary_dim: int | None = None
    pairs: str = "neox"
    position_dtype: str = "int64"
    norm_weight_dtype: str | None = None

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return self.query_shape[0]

    @property
    def columns(self) -> int:
        """Of a head."""
        return self.query_shape[2]

    @property
    def rotary(self) -> int:
        """Columns that are turned."""
        return self.rotary_dim or self.columns

    @property
    def key_shape(self) -> tuple[int, int, int]:
        """Of the keys; no heads where there are none."""
        return (self.tokens, self.key_heads or 0, self.columns)

    @cached_property
    def id(self) -> str:
        """A stable name."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        shape = "x".join(map(str, told.pop("query_shape")))
        return ",".join([shape, *(f"{name}={value}" for name, value in told.items())])


def normalized(problem: Problem, heads: Array, weight: Array, eps: Array) -> Array:
    """Each head by `rms_norm`, rounded to the type of the elements, in float32."""
    t = heads * factors(row_sums(heads * heads), problem.columns, eps)
    return narrowed(np.asarray(t * (weight.astype(F32) + F32(0))), problem.dtype).astype(F32)


def turned(problem: Problem, heads: Array, table: Array) -> Array:
    """Every pair of each head; `table` has a row for each token."""
    half = problem.rotary // 2
    if problem.pairs == "neox":
        firsts, seconds = slice(0, half), slice(half, problem.rotary)
    else:
        firsts, seconds = slice(0, problem.rotary, 2), slice(1, problem.rotary, 2)
    a, b = heads[..., firsts], heads[..., seconds]
    cosines, sines = (
        np.broadcast_to(part[:, None, :], a.shape) for part in (table[:, :half], table[:, half:])
    )
    made = heads.copy()
    made[..., firsts] = fma(a, cosines, -(b * sines))
    made[..., seconds] = fma(b, cosines, a * sines)
    return made


def rotary_embedding(problem: Problem, given: Arrays) -> Arrays:
    """The operator's outputs."""
    position = given["position"].astype(np.int64)
    named = (position >= 0) & (position < problem.max_position)
    table = given["cos_sin"][position[named]]
    outputs = {"invalid": np.array([np.count_nonzero(~named)], np.int64)}
    for name in ("query", "key") if problem.key_heads else ("query",):
        stored = given[name].copy()
        unsigned = f"u{stored.dtype.itemsize}"
        stored.view(unsigned)[~named] = CANONICAL_NAN[problem.dtype]
        heads = given[name][named].astype(F32)
        if problem.norm_weight_dtype:
            heads = normalized(problem, heads, given[f"{name}_weight"], given["eps"])
        kept = problem.columns if problem.norm_weight_dtype else problem.rotary
        made = narrowed(turned(problem, heads, table), problem.dtype)
        stored.view(unsigned)[named, :, :kept] = made.view(unsigned)[..., :kept]
        outputs[name] = stored
    return outputs
