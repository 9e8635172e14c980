"""`min_max` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.reference.formats import CANONICAL_NAN, Array

ScopeSpec = tuple[Any, ...]
ENDS = {"symmetric": ("absmax",), "asymmetric": ("minimum", "maximum")}


@dataclass(frozen=True)
class Problem:
    """One measurement, in plain values.

    Attributes:
        scope: `("tensor",)`, `("channel", axis)`, `("token",)`, `("group", size, axis)` or
            `("block", rows, columns)`.
    """

    shape: tuple[int, ...]
    input_dtype: str = "float32"
    scope: ScopeSpec = ("tensor",)
    mode: str = "symmetric"
    nonfinite: str = "propagate"
    update: bool = False

    @property
    def result(self) -> Any:
        """The type of the results."""
        return np.float64 if self.input_dtype == "float64" else np.float32

    @property
    def ends(self) -> tuple[str, ...]:
        """The names of the results."""
        return ENDS[self.mode]

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """How many indices of each axis a segment spans; None for all of them."""
        rank, (kind, *numbers) = len(self.shape), self.scope
        spans: list[int | None] = [1] * rank
        if kind == "tensor":
            spans = [None] * rank
        elif kind == "channel":
            spans = [None] * rank
            spans[numbers[0]] = 1
        elif kind == "token":
            spans[-1] = None
        elif kind == "group":
            spans[numbers[1]] = numbers[0]
        else:
            spans[-2:] = numbers
        return tuple(spans)

    @property
    def counts(self) -> tuple[int, ...]:
        """Segments along each axis."""
        return tuple(
            1 if size is None else -(-extent // size)
            for extent, size in zip(self.shape, self.sizes, strict=True)
        )

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        """The shape of the results."""
        if self.scope[0] == "tensor":
            return (1,)
        kept = [n for n, size in zip(self.counts, self.sizes, strict=True) if size is not None]
        return tuple(kept)

    @cached_property
    def id(self) -> str:
        """A stable name: every field that differs from its default."""
        default = asdict(Problem(shape=()))
        parts = ["x".join(map(str, self.shape))]
        for name, value in asdict(self).items():
            if name != "shape" and value != default[name]:
                shown = ".".join(map(str, value)) if name == "scope" else value
                parts.append(f"{name}={shown}")
        return ",".join(parts)


def folded(problem: Problem, x: Array, fill: float) -> Array:
    """Segments as rows, in the order of the parameters, `fill` in the place of missing elements."""
    pads, split = [], []
    for extent, size, count in zip(problem.shape, problem.sizes, problem.counts, strict=True):
        span = extent if size is None else min(size, max(extent, 1))
        pads.append((0, count * span - extent))
        split += [count, span]
    padded = np.pad(x, pads, constant_values=fill).reshape(split)
    order = [*range(0, len(split), 2), *range(1, len(split), 2)]
    return padded.transpose(order).reshape(math.prod(split[0::2]), math.prod(split[1::2]))


def settled(problem: Problem, name: str, found: Array, present: Array, before: Any) -> Array:
    """One end from the elements' own, whether there were elements, and the previous one."""
    saturate = problem.nonfinite == "saturate"
    result = np.where(present, found, 0)
    if before is not None:
        before = before.reshape(-1)
        usable = ~np.isnan(before) if saturate else np.ones(before.shape, bool)
        further = np.minimum if name == "minimum" else np.maximum
        both = np.where(present, further(found, before), before)
        result = np.where(usable, both, result)
    nan = np.array(CANONICAL_NAN[np.dtype(problem.result).name], f"u{problem.result().nbytes}")
    result = np.where(result == 0, 0, result).astype(problem.result)
    result = np.where(np.isnan(result), nan.view(problem.result), result)
    return np.asarray(result).reshape(problem.parameter_shape)


def min_max(problem: Problem, operands: dict[str, Array]) -> dict[str, Array]:
    """The operator's outputs by name."""
    x = operands["input"].astype(problem.result)
    with np.errstate(invalid="ignore"):
        values = np.abs(x) if problem.mode == "symmetric" else x
        counted = np.isfinite(x) if problem.nonfinite == "saturate" else np.ones(x.shape, bool)
        present = np.asarray(folded(problem, counted, fill=False).any(axis=1))
        results = {}
        for name in problem.ends:
            worst = np.inf if name == "minimum" else -np.inf
            rows = folded(problem, np.where(counted, values, worst), fill=worst)
            pick = np.min if name == "minimum" else np.max
            found = pick(rows, axis=1, initial=worst)
            before = operands.get(f"previous_{name}")
            results[name] = settled(problem, name, found, present, before)
    return results
