"""Updates in place, operands left out and numbers in memory, on a GPU and in its graphs."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import planq
from support.gpu import cuda, new_stream

STEP: Any = importlib.import_module("operators.step14")
SHAPE = (33, 257)
TENSORS = ("parameter", "gradient", "average", "square", "largest", "copy")


def make_operands(device: str) -> dict[str, Any]:
    """The fourteen; numbers by value, in memory of either type, and one that is frozen."""
    made: dict[str, Any] = {
        name: torch.rand(SHAPE, generator=torch.Generator().manual_seed(i)).to(device)
        for i, name in enumerate(TENSORS)
    }
    made["rate"] = torch.tensor(0.1, dtype=torch.float64, device=device)
    made["epsilon"] = torch.tensor([1e-6], device=device)
    made["skip"] = torch.zeros((), dtype=torch.int64, device=device)
    made["step"] = torch.zeros(1, dtype=torch.int64, device=device)
    return {**made, "beta1": 0.9, "beta2": 0.99, "decay": 0.01, "gradient_scale": 3}


def assert_same(ours: dict[str, Any], reference: dict[str, Any]) -> None:
    """Every byte of what was written."""
    cuda.synchronize()
    for name in (*TENSORS, "step"):
        assert torch.equal(ours[name].cpu(), reference[name]), name


def desc(shape: tuple[Any, ...] = SHAPE) -> Any:
    """With all that the operator can update."""
    return STEP.Step14Descriptor(shape=shape, amsgrad=True)


@pytest.mark.parametrize("captured", [False, True], ids=["bound", "captured"])
def test_a_bound_launch_and_a_graph_read_numbers_in_memory_again(captured: bool) -> None:
    """A rate and a flag that change between replays; the bits are the host's."""
    ours, reference = make_operands("cuda:0"), make_operands("cpu")
    stream = new_stream("cuda:0")
    cuda.synchronize()
    replay = planq.Plan.select(stream, desc()).bind(None, STEP.Step14Args(**ours))
    on_host = planq.Plan.select(planq.HOST, desc()).bind(None, STEP.Step14Args(**reference))
    graph: Any = cuda.CUDAGraph()
    if captured:
        with cuda.graph(graph, stream=stream):
            replay(stream)
        assert_same(ours, reference)
    for rate, skip in ((0.1, 0), (0.25, 0), (0.5, 1), (0.75, 0)):
        for operands in (ours, reference):
            operands["rate"].fill_(rate)
            operands["skip"].fill_(skip)
        cuda.synchronize()
        graph.replay() if captured else replay(stream)
        on_host(planq.HOST)
        assert_same(ours, reference)
    assert reference["step"].item() == 3


@pytest.mark.parametrize("rows", [0, 1, 7, 33])
def test_one_plan_runs_at_every_extent(rows: int) -> None:
    """From its first run; what was left out is not touched."""
    ours, reference = make_operands("cuda:0"), make_operands("cpu")
    stream = new_stream("cuda:0")
    cuda.synchronize()
    shape = (planq.Dim("m", SHAPE[0]), SHAPE[1])
    for target, operands in ((stream, ours), (planq.HOST, reference)):
        given = {name: operands[name][:rows] for name in TENSORS}
        args = STEP.Step14Args(**{**operands, **given, "copy": None, "decay": None})
        planq.Plan.select(target, desc(shape)).run(target, None, args)
    assert_same(ours, reference)


def test_a_number_on_the_host_is_no_operand_of_a_gpu() -> None:
    """In memory; by value it is."""
    ours = make_operands("cuda:0")
    plan = planq.Plan.select(new_stream("cuda:0"), desc())
    status = plan.can_implement(STEP.Step14Args(**{**ours, "rate": torch.tensor(0.1)}))
    assert status.operand == "rate"
    assert status.reason == (
        "rate: expected a number, or shape () float64 (or float32) on cuda:0, "
        "got () float32 on host"
    )
    assert plan.can_implement(STEP.Step14Args(**{**ours, "rate": 0.1}))
