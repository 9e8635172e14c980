"""A run takes nothing from the heap, whatever its operands are."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq import _core
from planq.audit.reference.formats import Array

LISTS: Any = importlib.import_module("operators.list300")
STEP: Any = importlib.import_module("operators.step14")
NOOP: Any = importlib.import_module("operators.noop")
LIBRARIES = [
    ctypes.CDLL(str(path))
    for path in (Path(_core.__file__), Path(_core.__file__).with_name("libplanq.so"))
]
Prepared = tuple[planq.Plan, object]
Make = Callable[[Any], Any]


def counts() -> list[int]:
    """What each of the libraries took so far."""
    return [library.planq_allocations() for library in LIBRARIES]


def prepare_noop(make: Make) -> Prepared:
    """Four operands."""
    desc = NOOP.NoopDescriptor(shape=(8, 8), input_dtype="float32", output_dtype="int8")
    types = {"output": np.int8, "scale": np.float32, "zero_point": np.int32}
    operands = {name: make(np.ones(1, dtype)) for name, dtype in types.items()}
    operands["output"] = make(np.ones((8, 8), np.int8))
    args = NOOP.NoopArgs(input=make(np.ones((8, 8), np.float32)), **operands)
    return planq.Plan.select(planq.HOST, desc), args


def prepare_dim(make: Make) -> Prepared:
    """The same under a Dim."""
    desc = NOOP.NoopDescriptor(
        shape=(planq.Dim("m", 16), 8), input_dtype="float32", output_dtype="int8"
    )
    return planq.Plan.select(planq.HOST, desc), prepare_noop(make)[1]


def prepare_step(make: Make) -> Prepared:
    """Fourteen, of which some are numbers by value."""
    names = ("parameter", "gradient", "average", "square", "largest", "copy")
    tensors = {name: make(np.ones((4, 4), np.float32)) for name in names}
    numbers = dict.fromkeys(("rate", "beta1", "beta2", "epsilon", "decay", "gradient_scale"), 0.5)
    args = STEP.Step14Args(**tensors, **numbers, skip=0, step=make(np.array(1)))
    return planq.Plan.select(planq.HOST, STEP.Step14Descriptor(shape=(4, 4), amsgrad=True)), args


def prepare_lists(make: Make) -> Prepared:
    """Two lists of three hundred."""
    memory: Array = np.zeros((600, 5), np.float32)
    parameter, gradient = ([make(row) for row in memory[i::2, :3]] for i in range(2))
    sums = make(np.zeros(300))
    args = LISTS.List300Args(parameter=parameter, gradient=gradient, rate=0.5, sums=sums)
    return planq.Plan.select(planq.HOST, LISTS.List300Descriptor(shapes=[(3,)] * 300)), args


def prepare_quantize(make: Make) -> Prepared:
    """An operator of the library's own, with its threads."""
    desc = planq.QuantizeDescriptor(shape=(256, 512), input_dtype="float32", output_dtype="int8")
    args = planq.QuantizeArgs(
        input=make(np.ones((256, 512), np.float32)),
        output=make(np.ones((256, 512), np.int8)),
        scale=make(np.ones(1, np.float32)),
    )
    return planq.Plan.select(planq.HOST, desc), args


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    "prepare", [prepare_noop, prepare_dim, prepare_step, prepare_lists, prepare_quantize]
)
def test_a_run_allocates_nothing(prepare: Callable[[Make], Prepared], make: Make) -> None:
    """Not even the first; what it needs was made with the plan.

    A process learns each type of tensor and starts its threads once, with whichever plan.
    """
    warm, args = prepare(make)
    warm.run(planq.HOST, None, args)
    before = counts()
    plan, args = prepare(make)
    assert all(now > then for now, then in zip(counts(), before, strict=True)), "nothing is counted"
    for _ in range(3):
        before = counts()
        plan.run(planq.HOST, None, args)
        assert counts() == before


def test_runs_inside_of_a_run_allocate_once() -> None:
    """Each has operands of its own, which the plan keeps for the next."""
    plan, args = prepare_noop(np.asarray)
    depth = 0

    def run_again(event: str, running: object) -> None:
        nonlocal depth
        depth += 1
        if depth < 3:
            plan.run(planq.HOST, None, args)
        depth -= 1

    def run_nested() -> list[int]:
        before = counts()
        plan.run(planq.HOST, None, args)
        return [now - then for now, then in zip(counts(), before, strict=True)]

    _core.set_verbose_hook(run_again)
    try:
        assert sum(run_nested()) > 0
        assert run_nested() == [0, 0]
    finally:
        _core.set_verbose_hook(None)
