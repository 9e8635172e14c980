"""`percentile_clip` in NumPy, written from the numeric contract alone; problems and cases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from planq.audit.ops.statistics import sums
from planq.audit.reference import inputs
from planq.audit.reference.formats import INPUT_DTYPES, Array

REMEMBERED = 100
SHAPES = ((1,), (5,), (64,), (3, 5, 7), (40, 100), (2, 33, 130))
STEPS = (1, 2, 99, 100, 205, 7)
PERCENTILES = (5, 0, 99, 50)
KINDS = ("normal", "mixed", "finite", "zeros", "huge", "subnormal")


@dataclass(frozen=True)
class Problem(sums.Problem):
    """A gradient whose norm is compared with those before."""

    percentile: int = 5

    @cached_property
    def id(self) -> str:
        """A stable name."""
        return f"{super().id},percentile={self.percentile}"


def percentile_clip(
    problem: Problem, x: Array, history: Array, step: int
) -> tuple[Array, Array, Array, Array]:
    """History from here on, factor, norm, bound."""
    total = sums.square_sum(problem, x)
    history = history.copy()
    if np.isfinite(total[0]):
        history[slice(None) if step == 1 else step % REMEMBERED] = total[0]
    ordered = np.sort(history)[problem.percentile : problem.percentile + 1]
    with np.errstate(all="ignore"):
        norm, bound = np.sqrt(total), np.sqrt(ordered)
        factor = np.where(norm > bound, bound / norm, problem.result(1))
    return history, factor, sums.as_stored(norm[0]), sums.as_stored(bound[0])


@dataclass(frozen=True)
class Case(sums.Case):
    """A problem with its inputs."""

    problem: Problem
    step: int = 1

    @cached_property
    def id(self) -> str:
        """The problem, the input and the step, as one word."""
        return f"{super().id},step={self.step}"

    def reseeded(self, seed: int) -> Case:
        """The problem on finite values of all kinds, at another step."""
        return replace(self, data="finite", seed=seed, step=seed + 1)

    def inputs(self) -> dict[str, Array]:
        """The gradient, norms of about its size, and the step."""
        given = super().inputs()
        draws = inputs.hashed(self.seed + 77, REMEMBERED).astype(np.float64) / 2.0**63
        typical = float(sums.square_sum(self.problem, given["input"])[0])
        history = draws * (typical if np.isfinite(typical) else 3.0)
        if self.seed % 3 == 2:
            history[3::40], history[5] = np.nan, np.inf
        with np.errstate(over="ignore"):
            history = history.astype(self.problem.result)
        return {**given, "history": history, "step": np.array(self.step)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """What is updated, and the outputs."""
        values = percentile_clip(self.problem, given["input"], given["history"], int(given["step"]))
        names = ("history", "gradient_scale", "norm", "clip_value")
        return dict(zip(names, values, strict=True))


def _cases(shapes: tuple[tuple[int, ...], ...]) -> tuple[Case, ...]:
    cases: list[Case] = []
    for dtype in INPUT_DTYPES:
        for i, shape in enumerate(shapes):
            seed = len(cases)
            problem = Problem(shape, dtype, percentile=PERCENTILES[seed % 4])
            kind, step = KINDS[seed * 5 % 6], STEPS[(seed + i) % 6]
            cases.append(Case(problem, kind, seed, step))
    return tuple(cases)


@cache
def sampled_cases() -> tuple[Case, ...]:
    """Every input dtype and shape; steps, percentiles and kinds of values change."""
    return _cases(SHAPES)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Tensors without elements, whose norm is 0."""
    return _cases(((0,), (0, 5), (5, 0)))
