"""Rows of floats in which a group of 32 is hard to make codes of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planq.audit.reference.formats import STORAGE, Array

GROUP = 32


def smallest(dtype: str) -> float:
    """The smallest subnormal number."""
    return {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}[dtype]


def largest(dtype: str) -> float:
    """The largest finite number."""
    return {"float32": 2.0**128 - 2.0**104, "float16": 65504.0, "bfloat16": 2.0**128 - 2.0**120}[
        dtype
    ]


def one_of(value: float) -> Callable[[str, Array], Array]:
    """An ordinary group with one such element."""

    def changed(_: str, group: Array) -> Array:
        group[7] = value
        return group

    return changed


def ties(_: str, group: Array) -> Array:
    """Every quotient is halfway between two codes, but for the largest."""
    group[:] = np.arange(len(group)) - 16 + 0.5
    group[3] = -127
    return group


# By name, what becomes of a group, given the dtype.
GROUPS: dict[str, Callable[[str, Array], Array]] = {
    "zeros": lambda _, group: group * 0.0,
    "zeros below": lambda _, group: np.abs(group) * -0.0,
    "nan": one_of(np.nan),
    "negative nan": one_of(-np.nan),
    "infinity": one_of(np.inf),
    "both infinities": lambda _, group: np.where(np.arange(len(group)) % 9, group, -np.inf),
    "ties": ties,
    "largest": lambda dtype, group: np.where(group > 0, largest(dtype), -largest(dtype)),
    # So small that 127 by the largest of them is infinite, or the scale is no normal number.
    "smallest": lambda dtype, group: np.sign(np.rint(group)) * smallest(dtype),
    "subnormal": lambda dtype, group: np.rint(group * 40) * smallest(dtype),
    "one": lambda _, group: np.where(np.arange(len(group)) == 31, -3.0, group * 0.0),
    "one subnormal": lambda dtype, group: np.where(np.arange(len(group)) == 31, smallest(dtype), 0),
}


def hostile_row(name: str, dtype: str, terms: int, seed: int = 0) -> Array:
    """A row (1, terms) whose first group and last are such groups, and the others ordinary."""
    draw = np.random.default_rng(seed)
    row = draw.standard_normal(terms) * 2.0
    for first in {0, terms - GROUP}:
        row[first : first + GROUP] = GROUPS[name](dtype, row[first : first + GROUP].copy())
    with np.errstate(all="ignore"):
        return row.astype(STORAGE[dtype])[None]
