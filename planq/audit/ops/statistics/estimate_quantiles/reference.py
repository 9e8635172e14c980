"""`estimate_quantiles` in NumPy: sort, and look."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.reference.formats import CANONICAL_NAN, Array


@dataclass(frozen=True)
class Problem:
    """Some quantiles of a tensor, in plain values; `tail` None is the default."""

    shape: tuple[int, ...]
    input_dtype: str = "float32"
    quantiles: int = 256
    tail: float | None = None
    nonfinite: str = "propagate"

    @property
    def result(self) -> Any:
        """The type of the results."""
        return np.float64 if self.input_dtype == "float64" else np.float32

    @property
    def share(self) -> float:
        """The tail in use."""
        return 1 / (2 * self.quantiles) if self.tail is None else self.tail

    @cached_property
    def id(self) -> str:
        """A stable name: every field that differs from its default."""
        default = asdict(Problem(shape=()))
        parts = ["x".join(map(str, self.shape))]
        for name, value in asdict(self).items():
            if name != "shape" and value != default[name]:
                parts.append(f"{name}={value}")
        return ",".join(parts)


def positions(problem: Problem, count: int) -> Array:
    """Where the quantiles are among `count` sorted elements."""
    j, tail = np.arange(problem.quantiles, dtype=np.float64), np.float64(problem.share)
    exact = (tail + j * (1 - 2 * tail) / (problem.quantiles - 1)) * (count - 1)
    below = np.floor(exact)
    return np.minimum((below + (exact - below >= 0.5)).astype(np.int64), count - 1)


def estimate_quantiles(problem: Problem, x: Array) -> Array:
    """The operator's output."""
    values = np.sort(x.astype(problem.result), axis=None)  # NaN last
    count = values.size - int(np.isnan(values).sum())
    if count == 0 or (count < values.size and problem.nonfinite == "propagate"):
        nan = np.array(CANONICAL_NAN[np.dtype(problem.result).name], f"u{problem.result().nbytes}")
        return np.full(problem.quantiles, nan.view(problem.result))
    found = values[positions(problem, count)]
    return np.where(found == 0, 0, found).astype(problem.result)
