"""`histogram_scatter_add` in NumPy, written from the numeric contract alone; problems and cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from planq.audit.ops.statistics.sums import as_stored, tree_sum
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array

# Bins of one, two and three digits; sums of a few terms, of a run and of several.
SIZES = (
    ((1, 1), 1),
    ((3, 5), 40),
    ((2, 3), 7000),
    ((1, 1), 4096),
    ((7, 301), 5000),
    ((40, 33), 1),
    ((1000, 300), 9000),
    ((300, 2), 1025),
)
EMPTY = (((0, 5), 9), ((5, 0), 9), ((4, 6), 0))
KINDS = ("finite", "zeros", "mixed", "normal")


@dataclass(frozen=True)
class Problem:
    """A histogram, and the number of sources."""

    shape: tuple[int, int]
    count: int

    @cached_property
    def id(self) -> str:
        """A stable name."""
        return f"{self.shape[0]}x{self.shape[1]},count={self.count}"


def scatter_add(
    histogram: Array, index1: Array, index2: Array, source: Array
) -> tuple[Array, Array]:
    """The histogram from here on, and how many sources have no bin."""
    rows, columns = histogram.shape
    inside = (index1 >= 0) & (index1 < rows) & (index2 >= 0) & (index2 < columns)
    after = histogram.copy()
    with np.errstate(all="ignore"):
        for row, column in set(zip(index1[inside].tolist(), index2[inside].tolist(), strict=True)):
            own = source[(index1 == row) & (index2 == column)]
            after[row, column] = as_stored(histogram[row, column] + tree_sum(own))[0]
    return after, np.array([np.sum(~inside)], np.int64)


def _indices(extent: int, count: int, seed: int) -> Array:
    """Up to one beside the bins on either side."""
    return (inputs.hashed(seed, count) % np.uint64(extent + 2)).astype(np.int64) - 1


@dataclass(frozen=True)
class Case:
    """A problem with its inputs."""

    problem: Problem
    data: str = "finite"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the input, as one word."""
        return f"{self.problem.id},data={self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Sources."""
        return self.problem.count

    def reseeded(self, seed: int) -> Case:
        """Other sources in other bins."""
        return replace(self, data="finite", seed=seed)

    def inputs(self) -> dict[str, Array]:
        """Bins and sources; zeros of both signs among them."""
        (rows, columns), count = self.problem.shape, self.problem.count
        return {
            "histogram": inputs.make("zeros", (rows, columns), "float32", self.seed),
            "index1": _indices(rows, count, self.seed).astype(np.int32),
            "index2": _indices(columns, count, self.seed + 1).astype(np.int32),
            "source": inputs.make(self.data, (count,), "float32", self.seed + 2),
        }

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """What is updated, and the count."""
        names = ("histogram", "index1", "index2", "source")
        after, outside = scatter_add(*(given[name] for name in names))
        return {"histogram": after, "outside": outside}

    def parts(self) -> Iterator[Any]:
        """None: a source may be of any bin."""
        return iter(())


@cache
def sampled_cases() -> tuple[Case, ...]:
    """Every size; values of all kinds."""
    return tuple(
        Case(Problem(*size), KINDS[(i + seed) % len(KINDS)], seed)
        for seed in range(2)
        for i, size in enumerate(SIZES)
    )


@cache
def empty_cases() -> tuple[Case, ...]:
    """No bins, or no sources."""
    return tuple(Case(Problem(*size)) for size in EMPTY)
