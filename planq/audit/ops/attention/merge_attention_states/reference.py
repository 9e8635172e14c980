"""`merge_attention_states` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.attention.states import F32, State, logarithm, merged, score
from planq.audit.ops.elementwise.elements import shape_text, stored
from planq.audit.reference.formats import Array, Arrays, canonical


@dataclass(frozen=True)
class Problem:
    """Two rows of outputs for each head of a token."""

    shape: tuple[int, int, int]
    dtype: str

    @property
    def input_dtype(self) -> str:
        """The name that other operators have for it."""
        return self.dtype

    @cached_property
    def id(self) -> str:
        """A stable name."""
        return f"{shape_text(self.shape)},{self.dtype}"


def state_of(output: Array, lse: Array) -> State:
    """One side's; without keys it has no outputs."""
    most = score(lse)
    own = np.where((most == -np.inf)[..., None], F32(0), output.astype(F32))
    return State(most, np.ones_like(most), own)


def merge_attention_states(problem: Problem, given: Arrays) -> Arrays:
    """The operator's outputs."""
    with np.errstate(all="ignore"):
        one, other = (state_of(given[f"output_{x}"], given[f"lse_{x}"]) for x in "ab")
        state = merged(one, other)
        lost = ~((one.most < np.inf) & (other.most < np.inf))
        none = (one.most == -np.inf) & (other.most == -np.inf)
        y = state.found * (F32(1) / state.total)[..., None] + F32(0)
        y = np.where(lost[..., None], F32(np.nan), np.where(none[..., None], F32(0), y))
        lse = np.where(lost, F32(np.nan), logarithm(state))
        return {"output": stored(y, problem.dtype), "lse": canonical(lse, "float32")}
