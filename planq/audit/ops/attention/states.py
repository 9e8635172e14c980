"""States of attention in NumPy: what some keys make of rows, and how states are merged."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planq.audit.reference.formats import Array
from planq.audit.reference.functions import FUNCTIONS, LN2H, LOG2E, exp2_fast

F32 = np.float32


class State(NamedTuple):
    """The largest scaled score of each row, the sum of its powers, its values weighed by these."""

    most: Array
    total: Array
    found: Array

    def where(self, condition: Array, other: State) -> State:
        """This one for some rows, the other for the rest."""
        return State(
            np.where(condition, self.most, other.most),
            np.where(condition, self.total, other.total),
            np.where(condition[..., None], self.found, other.found),
        )


def merged(one: State, other: State) -> State:
    """A state of the keys of both."""
    most = np.maximum(one.most, other.most)
    a, b = exp2_fast(5, one.most - most), exp2_fast(5, other.most - most)
    found = one.found * a[..., None] + other.found * b[..., None]
    return State(most, one.total * a + other.total * b, found)


def score(logarithm: Array) -> Array:
    """A natural logarithm as a scaled score."""
    return np.asarray(logarithm * F32(LOG2E))


def logarithm(state: State) -> Array:
    """The natural logarithm of all powers."""
    return np.asarray(F32(LN2H) * (state.most + FUNCTIONS["log2"](state.total)))
