"""The fixed problems and inputs of `optimizer_step`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from planq.audit.ops.optimizer.optimizer_step.reference import Problem, dynamic_map
from planq.audit.reference import inputs
from planq.audit.reference.formats import Arrays

VECTOR = 8
SCALARS = {
    "lr": 1e-2,
    "beta1": 0.9,
    "beta2": 0.99,
    "beta3": 0.999,
    "alpha": 5.0,
    "eps": 1e-8,
    "weight_decay": 0.1,
    "gradient_scale": 0.75,
    "max_unorm": 0.02,
}
STEPS = (1, 2, 37, 100000)
WHOLE = ((4, 64), (1024,), (8,), (2, 3, 512))
EDGES = ((3,), (), (0, 5), (1025,), (7, 37), (1,))
BLOCKS = ((64, 64), (8192,), (512,))
TORN = ((5000,), (), (63,), (3, 0), (257,))
LONG = ((4096,), (9000,), (2, 2048))


@dataclass(frozen=True)
class Part:
    """A tensor of a list."""

    whole: Problem
    tensor: int

    @property
    def problem(self) -> Problem:
        """The tensor in a list of its own."""
        return self.whole.alone(self.tensor)

    def inputs(self, whole: Arrays) -> Arrays:
        """With every scalar and codebook."""
        return self._picked(whole)

    def outputs(self, whole: Arrays) -> Arrays:
        """With the step."""
        return self._picked(whole)

    def _picked(self, whole: Arrays) -> Arrays:
        mark = f"[{self.tensor}]"
        shared = {name: values for name, values in whole.items() if "[" not in name}
        own = {
            name.replace(mark, "[0]"): values
            for name, values in whole.items()
            if name.endswith(mark)
        }
        return {**own, **shared}


@dataclass(frozen=True)
class Case:
    """A step of a problem."""

    problem: Problem
    data: str = "normal"
    seed: int = 0
    map_factor: float = 1.0  # of the compiled-in maps; by 1 they are given all the same

    @cached_property
    def id(self) -> str:
        """The problem and the input, as one word."""
        return f"{self.problem.id},data={self.data},seed={self.seed}"

    @property
    def size(self) -> int:
        """Elements of all tensors."""
        return sum(self.problem.counts)

    @property
    def step(self) -> int:
        """The number of the step, as it is given."""
        return STEPS[self.seed % len(STEPS)] - self.problem.advance_step

    def reseeded(self, seed: int) -> Case:
        """Another step; every other one is skipped where steps are."""
        return replace(self, data=("normal", "finite")[seed % 2], seed=seed)

    def inputs(self) -> Arrays:
        """Everything that is read."""
        made = self._scalars()
        for tensor in range(len(self.problem.shapes)):
            for name, values in self._tensors(tensor).items():
                made[f"{name}[{tensor}]"] = values
        return made

    def expected(self, given: Arrays) -> Arrays:
        """What is written."""
        return self.problem.expected(given)

    def parts(self) -> Iterator[Part]:
        """The tensors."""
        return (Part(self.problem, tensor) for tensor in range(len(self.problem.shapes)))

    def _scalars(self) -> Arrays:
        problem = self.problem
        told = {name: np.array(SCALARS[name]) for name in problem.scalars}
        if problem.trust == "layerwise" and problem.algorithm == "lars":
            told["max_unorm"] = np.array(0.001)
        if self.seed % 3 == 2:
            told["weight_decay"] = np.array(0.0)
        told["step"] = np.array(self.step)
        if problem.nonfinite == "skip_step":
            told["found_nonfinite"] = np.array(float(self.seed % 2))
        if problem.rounding == "stochastic":
            told["seed"], told["offset"] = np.array(self.seed - 5), np.array(2**32 - 3)
        if problem.state_format != "float32":
            for k in range(problem.states):
                values = dynamic_map(problem.is_signed(k))
                told[f"codebook{k + 1}"] = values * np.float32(self.map_factor)
        return told

    def _tensors(self, tensor: int) -> Arrays:
        problem, shape = self.problem, self.problem.shapes[tensor]
        seed = 10 * self.seed + 100 * tensor
        made = {
            "parameter": inputs.make("finite", shape, problem.parameter_dtype, seed),
            "gradient": inputs.make(self.data, shape, problem.gradient_dtype, seed + 1),
        }
        if problem.skip_zeros:
            some = inputs.hashed(seed + 2, math.prod(shape)).reshape(shape) % np.uint64(3) == 0
            gradient = made["gradient"]
            made["gradient"] = np.where(some, gradient.dtype.type(-0.0), gradient)
        if problem.master:
            made["master"] = inputs.make("normal", shape, "float32", seed + 3)
        for k in range(problem.states):
            made |= self._state(tensor, k, seed + 4 + k)
        return made

    def _state(self, tensor: int, k: int, seed: int) -> Arrays:
        """A state of its sign, 0 before the first step."""
        problem, shape = self.problem, self.problem.shapes[tensor]
        first = self.step + problem.advance_step == 1
        if problem.state_format == "float32":
            values = inputs.make("normal", shape, "float32", seed) * np.float32(0 if first else 1)
            return {f"state{k + 1}": values if problem.is_signed(k) else np.abs(values)}
        count = math.prod(shape)
        words = inputs.hashed(seed, count)
        absmax = inputs.make("normal", (problem.blocks(tensor),), "float32", seed + 50)
        absmax = np.abs(absmax) * np.float32(0 if first else 1)
        codes = (words % np.uint64(256)).astype(np.uint8)
        return {f"state{k + 1}": codes.reshape(shape), f"absmax{k + 1}": absmax}


def is_whole(problem: Problem) -> bool:
    """Whether all tensors are whole vectors."""
    return all(count % VECTOR == 0 for count in problem.counts)


ALGORITHMS = ("adam", "ademamix", "momentum", "rmsprop", "adagrad", "lion")
# What an algorithm's case has beside its formula, so that every option is somewhere.
OPTIONS: dict[str, list[dict[str, object]]] = {
    "adam": [
        {"weight_decay_mode": "after", "gradient_dtype": "bfloat16"},
        {"parameter_dtype": "bfloat16", "master": True, "gradient_dtype": "bfloat16"},
        {"trust_ratio": "clip", "parameter_dtype": "float16", "rounding": "stochastic"},
    ],
    "ademamix": [{"trust_ratio": "clip", "skip_zeros": True}, {"nonfinite": "skip_step"}],
    "momentum": [
        {"nesterov": True, "weight_decay_mode": "coupled", "advance_step": True},
        {"parameter_dtype": "bfloat16", "rounding": "stochastic", "tensor_ids": "counted"},
    ],
    "rmsprop": [{"centered": True, "nonfinite": "skip_element"}, {"weight_decay_mode": "coupled"}],
    "adagrad": [{"gradient_dtype": "float16", "skip_zeros": True}],
    "lion": [{"parameter_dtype": "float16", "gradient_dtype": "float16"}, {"trust_ratio": "clip"}],
    "lamb": [{}, {"trust_ratio": "clip", "skip_zeros": True, "nonfinite": "skip_element"}],
    "lars": [{"nesterov": True}, {"trust_ratio": "clip"}],
}
DATA = ("normal", "mixed", "finite", "zeros", "huge", "subnormal")


def problem_of(algorithm: str, shapes: tuple[tuple[int, ...], ...], **options: object) -> Problem:
    """A problem with some options."""
    given = dict(options)
    if given.get("tensor_ids") == "counted":
        given["tensor_ids"] = tuple(2**32 - 1 - 7 * i for i in range(len(shapes)))
    return Problem(shapes, algorithm, **given)  # type: ignore[arg-type]


@cache
def sampled_cases() -> tuple[Case, ...]:
    """Every algorithm and option on states of every format."""
    cases: list[Case] = []

    def add(problem: Problem) -> None:
        seed = len(cases)
        kind = "normal" if problem.nonfinite == "skip_element" else DATA[(seed // 4) % len(DATA)]
        cases.append(Case(problem, "mixed" if seed % 5 == 4 else kind, seed))

    for algorithm, listed in OPTIONS.items():
        for option in ({}, *listed) if algorithm in ALGORITHMS else listed:
            shapes = WHOLE if len(cases) % 2 else EDGES
            add(problem_of(algorithm, shapes, **option))
    sizes = (256, 64, 4096, 1024, 2048)
    for algorithm, listed in OPTIONS.items():
        for option in listed:
            torn = len(cases) % 2 == 0
            blocks = {"state_format": "blockwise8", "block_size": sizes[len(cases) % 5]}
            add(problem_of(algorithm, TORN if torn else BLOCKS, **option, **blocks))
    for algorithm in ("adam", "ademamix", "lion", "rmsprop", "lamb", "lars"):
        static: Any = TORN if len(cases) % 2 else BLOCKS
        add(problem_of(algorithm, static, **OPTIONS[algorithm][0], state_format="static8"))
    return tuple(cases)


@cache
def long_cases() -> tuple[Case, ...]:
    """Tensors that kernels take whole tiles of, whose elements need few questions; other maps."""
    halves = {"parameter_dtype": "bfloat16", "gradient_dtype": "bfloat16"}
    wide = {"parameter_dtype": "float32", "gradient_dtype": "float32"}
    cases: list[Case] = []
    for algorithm in OPTIONS:
        for state_format, size in (
            *(("blockwise8", 64), ("blockwise8", 256), ("blockwise8", 4096)),
            *(("static8", 256), ("float32", 256)),
        ):
            for dtypes in (halves, wide):
                seed = len(cases)
                options = {**dtypes, "state_format": state_format, "block_size": size}
                problem = problem_of(algorithm, LONG, **options)
                kind, factor = DATA[seed % 7 % len(DATA)], 0.75 if seed % 3 == 2 else 1.0
                cases.append(Case(problem, kind, seed, factor))
    return tuple(cases)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No tensors, and tensors without elements; the step is counted, norms are 0."""
    formats = ("float32", "blockwise8", "static8")
    return tuple(
        Case(problem_of("lamb", shapes, state_format=state, advance_step=True))
        for state in formats
        for shapes in ((), ((0,), (3, 0)))
    )
