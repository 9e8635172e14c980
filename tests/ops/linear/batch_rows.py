"""Rows of layers with floating sums, alone and in batches: one check for the host and for a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import planq
from planq.audit import kernels
from planq.audit.memory import Device, TensorTuple, Workspace
from planq.audit.operators import OPERATORS
from planq.audit.ops.linear.linear_4bit.reference import FourBitProblem
from planq.audit.ops.linear.linear_fp8.reference import BLOCKS, Fp8Problem
from planq.audit.ops.linear.linear_mixed.reference import MixedProblem
from planq.audit.ops.linear.matmul.reference import FloatMatmulProblem
from planq.audit.reference.formats import STORAGE, Array
from planq.audit.runner import Bench

# One row, few, a tile's, one more than a tile's, many.
BATCHES = (1, 2, 7, 64, 129, 4096)
MOST = BATCHES[-1]
ANY = planq.PlanPreference()
# Operands with a row for each of the input's.
BY_ROW = frozenset({"input", "input_scale", "residual", "output"})

N, K = 20, 272
LAYER = ((MOST, K), (N, K))
TERMS: dict[str, Any] = {"bias_dtype": "float32", "residual_dtype": "float16"}
INTEGERS: dict[str, Any] = {
    "code_dtype": "int4",
    "weight_scope": ("group", 64, 1),
    "weight_mode": "asymmetric",
}
PROBLEMS: tuple[tuple[str, Any], ...] = (
    ("matmul", FloatMatmulProblem(*LAYER, "bfloat16", "bfloat16", **TERMS)),
    ("matmul", FloatMatmulProblem(*LAYER, "float16", accumulation="lanes")),
    ("linear_4bit", FourBitProblem(*LAYER, block_size=32, nested_block_size=16, **TERMS)),
    ("linear_4bit", FourBitProblem(*LAYER, block_size=64, accumulation="lanes")),
    ("linear_mixed", MixedProblem(*LAYER, "float16", code_dtype="int8", **TERMS)),
    ("linear_mixed", MixedProblem(*LAYER, code_dtype="int4", weight_scope=("group", 64, 1))),
    ("linear_fp8", Fp8Problem(*LAYER, "bfloat16", **TERMS)),
    ("linear_fp8", Fp8Problem(*LAYER, input_scope=BLOCKS[0], weight_scope=BLOCKS[1])),
    ("linear_4bit", FourBitProblem(*LAYER, accumulation="groups_sm90", **INTEGERS, **TERMS)),
    ("linear_mixed", MixedProblem(*LAYER, "float16", accumulation="groups_sm90")),
)

IDS = [f"{operator}-{number}" for number, (operator, _) in enumerate(PROBLEMS)]


def rows_of(tensor: TensorTuple, first: int, count: int) -> TensorTuple:
    """Some rows of an operand, where they lie."""
    pointer, shape, strides, dtype, device = tensor
    assert strides is not None
    skipped = first * strides[0] * STORAGE[dtype].itemsize
    return (pointer + skipped, (count, *shape[1:]), strides, dtype, device)


class Rows:
    """A problem of `MOST` rows in a device's memory; plans take some of them."""

    def __init__(self, device: Device, operator: str, problem: Any) -> None:
        """Inputs are written."""
        self.problem, self.given = problem, problem.inputs("any", 1)
        self.desc = OPERATORS[operator].descriptor(problem)
        self.device, self.bench = device, Bench(device, self.desc)
        self.bench.load(self.given)

    def plan(self, rows: int | planq.Dim, pref: planq.PlanPreference = ANY) -> planq.Plan:
        """For so many rows."""
        desc = replace(self.desc, input_shape=(rows, K))
        return planq.Plan.select(self.bench.stream, desc, pref)

    def outputs(self, plan: planq.Plan, first: int, count: int) -> Array:
        """What the plan makes of all rows from the first on, `count` at a time, as bytes."""
        workspace = Workspace(self.device, plan.workspace_size(), 0)
        tensors = {name: operand.tensor for name, operand in self.bench.operands.items()}
        self.bench.operands["output"].repoison()
        for row in range(first, MOST, count):
            piece = {
                name: rows_of(tensor, row, count) if name in BY_ROW else tensor
                for name, tensor in tensors.items()
            }
            plan.run(self.bench.stream, workspace.argument, type(self.bench.args)(**piece))
        self.device.synchronize()
        return self.bench.operands["output"].read()[first:].view(np.uint8)

    def expected(self, count: int) -> Array:
        """The reference's last rows, as bytes."""
        given = self.problem.cut(self.given, slice(MOST - count, None))
        made: Array = self.problem.with_rows(count).expected(given)["output"]
        return made.view(np.uint8)


def check_rows(device: Device, operator: str, problem: Any) -> None:
    """Each row of every batch has the bits of that row alone, by plans of either kind.

    Kernels that promise a bound have bits of their own. Batches are the last rows, so that they
    begin at many addresses.
    """
    rows = Rows(device, operator, problem)
    alone = rows.outputs(rows.plan(1), 0, 1)
    assert np.array_equal(alone[-3:], rows.expected(3))
    bounded = kernels.bounded_skus(operator)
    names = kernels.takers(operator, problem, device.name)
    takers = {name: kernels.by_name()[name].sku for name in names}
    assert takers
    for name in sorted(takers, key=lambda name: (takers[name] in bounded, name)):
        of_its_own = planq.PlanPreference(sku=takers[name]) if takers[name] in bounded else ANY
        if takers[name] in bounded:
            alone = rows.outputs(rows.plan(1, of_its_own), 0, 1)
        of_any = rows.plan(planq.Dim("m", max=MOST), kernels.pinned(name))
        for m in BATCHES:
            for plan in (rows.plan(m, of_its_own), of_any):
                batch = rows.outputs(plan, MOST - m, m)
                assert np.array_equal(batch, alone[-m:]), f"{name} on {m} rows"
