"""Runs on a GPU are recorded in the order of their stream, and computed again there and here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.cli import main
from support.gpu import cuda, new_stream
from support.recorded import blob, counts, operand, recorded, runs, sha256

SHAPE = (64, 1000)


def quantize(stream: Any) -> planq.Plan:
    """A plan that gives the same bits everywhere."""
    desc = planq.DynamicRangeQuantizeDescriptor(
        shape=SHAPE, input_dtype="float32", output_dtype="int8"
    )
    exact = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT)
    return planq.Plan.select(stream, desc, exact)


def operands(stride: int = SHAPE[1]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """An input whose rows lie apart, and outputs."""
    wide = torch.randn((SHAPE[0], stride), device="cuda:0")
    codes = torch.zeros(SHAPE, dtype=torch.int8, device="cuda:0")
    scale = torch.zeros(SHAPE[0], device="cuda:0")
    return wide, {"input": wide[:, : SHAPE[1]], "output": codes, "scale": scale}


@pytest.mark.parametrize("stride", [1000, 1003])
@pytest.mark.parametrize("device", ["host", "cuda:0"])
def test_a_run_is_kept_and_has_the_same_bits_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stride: int, device: str
) -> None:
    """Although the caller changes the operands right after it, on the same stream."""
    stream = new_stream()
    wide, given = operands(stride)
    plan, was = quantize(stream), given["input"].cpu().numpy().copy()
    torch.cuda.synchronize()
    with recorded(tmp_path), cuda.stream(stream):
        plan.run(stream, None, planq.DynamicRangeQuantizeArgs(**given))
        codes = given["output"].clone()
        wide.zero_()
        given["output"].zero_()
    [record] = runs(tmp_path)
    assert record["backend"] == "cuda"
    assert blob(tmp_path, operand(record, "input")["before"]) == was.tobytes()
    assert operand(record, "output")["after"] == sha256(codes.cpu().numpy().tobytes())
    assert main(["replay", str(tmp_path), "--device", device, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] == 1


def test_what_is_updated_in_place_is_kept_as_it_was(tmp_path: Path) -> None:
    """An optimizer's parameter."""
    stream = new_stream()
    desc = planq.OptimizerStepDescriptor(
        shapes=((1000,),),
        algorithm="MOMENTUM",
        parameter_dtype="float32",
        gradient_dtype="float32",
    )
    plan = planq.Plan.select(stream, desc)
    parameter, state = torch.arange(1000.0, device="cuda:0"), torch.zeros(1000, device="cuda:0")
    args = planq.OptimizerStepArgs(
        parameter=[parameter],
        gradient=[torch.ones_like(parameter)],
        state1=[state],
        lr=0.5,
        beta1=0,
        beta2=0,
        step=1,
    )
    torch.cuda.synchronize()
    with recorded(tmp_path):
        plan.run(stream, plan.empty_workspace(torch, device="cuda:0"), args)
    [record] = runs(tmp_path)
    was = np.arange(1000, dtype=np.float32)
    entry = operand(record, "parameter", 0)
    assert blob(tmp_path, entry["before"]) == was.tobytes()
    assert entry["after"] == sha256((was - np.float32(0.5)).tobytes())


def test_a_stream_that_is_captured_is_left_alone(tmp_path: Path) -> None:
    """It is counted, and the graph runs as without a recording."""
    stream = new_stream()
    _, given = operands()
    plan, args = quantize(stream), planq.DynamicRangeQuantizeArgs(**given)
    torch.cuda.synchronize()
    graph = cuda.CUDAGraph()
    with recorded(tmp_path):
        with cuda.graph(graph, stream=stream):
            plan.run(stream, None, args)
        plan.run(stream, None, args)
        torch.cuda.synchronize()
        wanted = given["output"].clone()
        given["output"].zero_()
        graph.replay()
        torch.cuda.synchronize()
    assert torch.equal(given["output"], wanted)
    assert counts(tmp_path) == {"recorded": 1, "dropped": 0, "captured": 1, "failed": 0}


def test_a_run_while_another_stream_is_captured_disturbs_nothing(tmp_path: Path) -> None:
    """Although that capture forbids every thread what might wait."""
    captured, other = new_stream(), new_stream()
    (_, first), (_, second) = operands(), operands()
    plan = quantize(other)
    torch.cuda.synchronize()
    graph = cuda.CUDAGraph()
    with recorded(tmp_path):
        with cuda.graph(graph, stream=captured, capture_error_mode="global"):
            plan.run(captured, None, planq.DynamicRangeQuantizeArgs(**first))
            plan.run(other, None, planq.DynamicRangeQuantizeArgs(**second))
        graph.replay()
        torch.cuda.synchronize()
    assert counts(tmp_path)["captured"] + counts(tmp_path)["recorded"] == 2
    assert first["output"].any()
    assert second["output"].any()


def test_a_default_stream_is_recorded_too(tmp_path: Path) -> None:
    """Whose handle is 0."""
    stream = cuda.default_stream("cuda:0")
    _, given = operands()
    with recorded(tmp_path):
        quantize(stream).run(stream, None, planq.DynamicRangeQuantizeArgs(**given))
    assert counts(tmp_path)["recorded"] == 1
