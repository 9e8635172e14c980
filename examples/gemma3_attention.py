"""Attention of the next tokens of a sequence, by a plan.

Keys and values are float16. A token's bits depend on its own query and on the keys and values that
it sees, and on nothing else.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

import planq

Array = np.ndarray[Any, Any]
BIT_EXACT = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT, batch_invariant=True)


class Heads(Protocol):
    """What attention has to know of a model."""

    @property
    def heads(self) -> int:
        """Heads of queries."""

    @property
    def key_heads(self) -> int:
        """Heads of keys and of values."""

    @property
    def head(self) -> int:
        """Elements of a head."""

    @property
    def window(self) -> int:
        """How many tokens a windowed layer sees, the own one among them."""


class Cache(NamedTuple):
    """Keys and values of a sequence in a layer: (1, tokens, heads, elements)."""

    key: Array
    value: Array

    @classmethod
    def of(cls, sizes: Heads, most: int) -> Cache:
        """Room for so many tokens."""
        shape = 1, most, sizes.key_heads, sizes.head
        return cls(np.zeros(shape, np.float16), np.zeros(shape, np.float16))


class New(NamedTuple):
    """What a layer has made of the next tokens, a row for each."""

    query: Array
    key: Array
    value: Array


class Attention:
    """Plans for sequences of one length at most, layers with a window and without.

    Args:
        sizes: Of the model.
        rows: The most tokens of a step.
        stream: Where they run.
    """

    def __init__(self, sizes: Heads, rows: int, stream: Any) -> None:
        self._sizes, self._rows, self._stream = sizes, rows, stream
        self._plan = cache(self._selected)

    def attend(self, new: New, held: Cache, length: int, output: Array, *, windowed: bool) -> None:
        """Puts keys and values behind those of `length` tokens, and writes what heads find."""
        sizes, count = self._sizes, len(new.query)
        for tensor, made in zip(held, (new.key, new.value), strict=True):
            own = tensor[0, length : length + count]
            own[...] = made.reshape(own.shape)
        plan, workspace = self._plan(held.key.shape[1], windowed)
        args = planq.AttentionArgs(
            query=new.query.astype(np.float16).reshape(count, sizes.heads, sizes.head),
            key_cache=held.key,
            value_cache=held.value,
            output=output.reshape(count, sizes.heads, sizes.head),
            query_start=np.array([0, count], np.int32),
            key_length=np.array([length + count], np.int32),
            scale=sizes.head**-0.5,
        )
        plan.run(self._stream, workspace, args)

    def _selected(self, most: int, windowed: bool) -> tuple[planq.Plan, Any]:
        sizes = self._sizes
        desc = planq.AttentionDescriptor(
            query_shape=(planq.Dim("tokens", max=self._rows), sizes.heads, sizes.head),
            key_heads=sizes.key_heads,
            batch=1,
            max_query=self._rows,
            max_key=most,
            input_dtype="float16",
            output_dtype="float32",
            causal=True,
            window=sizes.window if windowed else None,
        )
        plan = planq.Plan.select(self._stream, desc, BIT_EXACT)
        return plan, plan.empty_workspace(np)
