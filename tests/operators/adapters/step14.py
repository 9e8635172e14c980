"""`step14` for the tests that are generated from the registry."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

import planq
from planq.audit.reference.formats import Array

NATIVE: Any = importlib.import_module("operators.step14")
MATRICES = ("parameter", "gradient", "average", "square", "largest", "copy")
RATE, BETA1, BETA2, EPSILON = 0.1, 0.9, 0.99, 1e-8


def step_of(
    state: dict[str, Array],
    gradient: Array,
    step: int,
    *,
    rate: float = RATE,
    decay: float = 0.0,
    scale: float = 1.0,
) -> dict[str, Array]:
    """What the operands hold after the `step`th step, in NumPy; a state may have no `largest`."""
    g = gradient.astype(np.float64) / scale
    average = BETA1 * state["average"].astype(np.float64) + (1 - BETA1) * g
    square = BETA2 * state["square"].astype(np.float64) + (1 - BETA2) * (g * g)
    after = {"average": average.astype(np.float32), "square": square.astype(np.float32)}
    if "largest" in state:
        square = np.maximum(state["largest"].astype(np.float64), square)
        after["largest"] = square.astype(np.float32)
    before = state["parameter"].astype(np.float64)
    change = average / (np.sqrt(square) + EPSILON) + decay * before
    after["parameter"] = (before - rate / step * change).astype(np.float32)
    return after


@dataclass(frozen=True)
class Problem:
    """A matrix of parameters."""

    rows: int
    columns: int
    amsgrad: bool


def pick(tensors: dict[str, Array], row: int) -> dict[str, Array]:
    """A row of what has rows, and all of the rest."""
    return {
        name: values[row : row + 1] if name in MATRICES else values
        for name, values in tensors.items()
    }


@dataclass(frozen=True)
class Part:
    """A row."""

    whole: Problem
    row: int

    @property
    def problem(self) -> Problem:
        """The row alone."""
        return replace(self.whole, rows=1)

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """With every number."""
        return pick(whole, self.row)

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """With the step."""
        return pick(whole, self.row)


@dataclass(frozen=True)
class Case:
    """The third step, or one that is skipped."""

    problem: Problem
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the seed."""
        p = self.problem
        return f"{p.rows}x{p.columns},amsgrad={p.amsgrad},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements."""
        return self.problem.rows * self.problem.columns

    def reseeded(self, seed: int) -> Case:
        """Other numbers; an odd seed skips the step."""
        return replace(self, seed=seed)

    def inputs(self) -> dict[str, Array]:
        """All but the copy, what is updated among them."""
        rng = np.random.default_rng(self.seed)
        names = [n for n in MATRICES[:-1] if n != "largest" or self.problem.amsgrad]
        shape = (self.problem.rows, self.problem.columns)
        made: dict[str, Array] = {name: rng.random(shape, np.float32) for name in names}
        numbers = {"rate": RATE, "beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON}
        numbers |= {"decay": 0.25, "gradient_scale": 3.0}
        made |= {name: np.array(number) for name, number in numbers.items()}
        return {**made, "skip": np.array(self.seed % 2), "step": np.array(2)}

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """What is updated, and the copy."""
        state = {name: given[name] for name in MATRICES if name in given and name != "gradient"}
        if given["skip"]:  # the copy is not written either
            copy = np.full_like(given["parameter"].view(np.uint32), 0xA5A5A5A5).view(np.float32)
            return {**state, "copy": copy, "step": given["step"]}
        numbers = {"decay": float(given["decay"]), "scale": float(given["gradient_scale"])}
        after = step_of(state, given["gradient"], int(given["step"]) + 1, **numbers)
        return {**after, "copy": after["parameter"], "step": given["step"] + 1}

    def parts(self) -> Iterator[Part]:
        """Rows."""
        return (Part(self.problem, row) for row in range(self.problem.rows))


@cache
def descriptor(problem: Hashable) -> planq.Descriptor:
    """Of a problem."""
    assert isinstance(problem, Problem)
    shape = (problem.rows, problem.columns)
    made: planq.Descriptor = NATIVE.Step14Descriptor(shape=shape, amsgrad=problem.amsgrad)
    return made


@dataclass(frozen=True)
class Step14Tests:
    """A kernel that updates in place."""

    def cases(self) -> tuple[Case, ...]:
        """Both modes, and a step that is skipped."""
        shapes = [(1, 1), (3, 5), (4, 33)]
        steps = [Case(Problem(*shape, amsgrad)) for shape in shapes for amsgrad in (False, True)]
        return (*steps, steps[2].reseeded(1))

    def empty_cases(self) -> tuple[Case, ...]:
        """The step is counted."""
        return tuple(Case(Problem(*shape, amsgrad=True)) for shape in [(0, 5), (4, 0)])

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""
        return descriptor(problem)

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """What everything is computed in."""
        return planq.MathPrecision.F64

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """To float32."""
        return planq.Rounding.NEAREST_EVEN

    def variety(self, problem: Hashable) -> str:
        """There is one."""
        return "step"


TESTS = Step14Tests()
