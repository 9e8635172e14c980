"""The fixed problems and inputs of `sample`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from planq.audit.ops.gather.sample.reference import Problem, sample
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, Arrays
from planq.audit.reference.inputs import bell, field, hashed, rounded

ELEMENTS = ("float16", "bfloat16", "float32")
# Logits as models have them; nearly equal ones; equal ones; all equal; with few, many and only
# elements of -infinity; with +infinity; and kinds of the reference's inputs.
DATA = (
    *("logits", "flat", "steps", "constant", "masked", "alone", "lowest", "infinite", "logits"),
    *("normal", "zeros", "subnormal", "huge", "patterns", "nonfinite", "offset", "tiled"),
)
# What filters there are: of each row those of a kind, with values of its own.
KINDS = ("all", "none", "top_k", "top_p", "min_p", "all", "bad")
TEMPERATURES = (1.0, 0.7, 1.5, 0.3, 100.0, 0.01, 1e-6, 1e-42, 1e30, 0.0, 3.4e38, -0.0, 1.0, 1.0)
TOP_K = (1, 2, 5, 50, 40, 0, 1000, -1, 7, 2**31 - 1, 20, 100)
TOP_P = (0.9, 0.95, 0.5, 0.1, 1.0, 0.999, 1e-42, 0.0, 1 - 2.0**-24, 0.8)
MIN_P = (0.05, 0.1, 0.0, 1.0, 1e-9, 0.5, 1e-42, 1e-4)
BAD: dict[str, tuple[float, ...]] = {
    "temperature": (-1.0, math.nan, math.inf, -1e-45, -math.inf, 1.0),
    "top_p": (-0.1, 1 + 2.0**-23, math.nan, math.inf, 1.0, 0.5, 0.9),
    "min_p": (-1e-45, 1.5, math.nan, 0.1, 0.0),
}
# Rows of less than a vector, of less than a warp's, of a block's, and of several blocks'; with and
# without edges; few rows and many.
SHAPES = (
    *((1,), (5,), (4099,), (1, 1), (3, 7), (7, 1), (2, 3, 17), (64, 64), (300, 8), (90, 33)),
    *((9, 512), (4, 1000), (3, 2, 2048), (40, 4096), (1, 16384), (2, 32001), (5, 20000)),
    *((1, 70001), (33, 8200), (300, 2052), (2, 128256), (1, 262144)),
)
EMPTY = ((0, 5), (2, 0, 40000))


@dataclass(frozen=True)
class Row:
    """One row."""

    whole: Problem
    row: int

    @property
    def problem(self) -> Problem:
        """Of one row."""
        return replace(self.whole, shape=(1, self.whole.shape[-1]))

    def inputs(self, whole: Arrays) -> Arrays:
        """Its elements and its settings."""
        count = self.whole.count
        own = {name: v.reshape(count, -1)[self.row : self.row + 1] for name, v in whole.items()}
        return {name: v if name == "input" else v[:, 0] for name, v in own.items()}

    def outputs(self, whole: Arrays) -> Arrays:
        """Its index. Whether there is none is counted alone."""
        own = whole["output"].reshape(-1)[self.row : self.row + 1]
        return {"output": own, "invalid": np.array([np.count_nonzero(own < 0)], np.int64)}


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Problem
    data: str = "logits"
    kind: str = "all"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        return f"{self.problem.id},data={self.data},{self.kind},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of all rows."""
        return math.prod(self.problem.shape)

    def reseeded(self, seed: int) -> Case:
        """Other elements and settings."""
        return replace(
            self, data=DATA[seed % len(DATA)], kind=KINDS[seed % len(KINDS)], seed=seed + 1000
        )

    def _elements(self) -> Array:
        shape, dtype = self.problem.shape, self.problem.input_dtype
        fmt, words = FLOATS[dtype], hashed(self.seed, math.prod(shape))
        spread, pick = bell(words), field(words, 5, 7)
        own = {
            "logits": spread * 3,
            "flat": spread / 16,
            "steps": np.rint(spread * 2),
            "masked": np.where(pick < 64, -np.inf, spread),
            "alone": np.where(pick > 0, -np.inf, spread),
            "lowest": np.full(spread.shape, -np.inf),
            "infinite": np.where(pick == 3, np.inf, spread),
        }
        if self.data not in own:
            return inputs.make(self.data, shape, dtype, self.seed)
        values, finite = own[self.data], np.isfinite(own[self.data])
        made = values.astype(fmt.dtype)
        made[finite] = rounded(values[finite], fmt)
        return made.reshape(shape)

    def _settings(self) -> dict[str, Array]:
        count = self.problem.count
        words = hashed(self.seed + 7, 4 * count).reshape(4, count)
        picked: dict[str, tuple[Any, ...]] = {"temperature": TEMPERATURES, "top_k": TOP_K}
        picked |= {"top_p": TOP_P, "min_p": MIN_P}
        off: dict[str, tuple[Any, ...]] = {"top_k": (0,), "top_p": (1.0,), "min_p": (0.0,)}
        if self.kind in off:
            picked |= {name: off[name] for name in off if name != self.kind}
        elif self.kind == "none":
            picked |= off
        elif self.kind == "bad":
            picked |= BAD
        chosen = {}
        for (name, values), own in zip(picked.items(), words, strict=True):
            places = (own % np.uint64(len(values))).astype(np.int64)
            with np.errstate(over="ignore"):
                chosen[name] = np.array(values)[places].astype(
                    np.int32 if name == "top_k" else np.float32
                )
        return chosen

    def inputs(self) -> Arrays:
        """Logits, settings, seeds and positions."""
        problem = self.problem
        words = hashed(self.seed + 3, 2 * problem.count).view(np.int64).reshape(2, -1)
        small = np.arange(problem.count)
        every = {
            **self._settings(),
            "seed": words[0] if self.seed % 3 else small + 42,
            "position": words[1] if self.seed % 2 else small,
        }
        return {"input": self._elements()} | {
            name: values.reshape(problem.shape[:-1]) for name, values in every.items()
        }

    def expected(self, given: Arrays) -> Arrays:
        """The reference's outputs."""
        return sample(self.problem, given)

    def parts(self) -> Iterator[Row]:
        """Rows."""
        return (Row(self.problem, row) for row in range(self.problem.count))


def _cases(shapes: tuple[tuple[int, ...], ...], turns: int) -> tuple[Case, ...]:
    found: list[Case] = []
    for shape in shapes:
        for _ in range(turns if math.prod(shape) < 2**17 else 1):
            for dtype in ELEMENTS:
                seed = len(found)
                wide = "int64" if seed % 2 == 0 else "int32"
                data = DATA[(seed + seed // len(DATA)) % len(DATA)]
                kind = KINDS[(seed + seed // len(KINDS)) % len(KINDS)]
                found.append(Case(Problem(shape, dtype, wide), data, kind, seed))
    return tuple(found)


@cache
def cases() -> tuple[Case, ...]:
    """Every shape with every type."""
    return _cases(SHAPES, 3)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No rows."""
    return _cases(EMPTY, 1)
