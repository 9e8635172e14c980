"""`fake_quantize` by DeepSpeed's convention on CUDA: in place, sizes beyond 32 bits, graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.from_reference import descriptor_of
from planq.audit.ops.affine.fake_quantize.deepspeed import FORMS, Case, DeepSpeedProblem, tiny_cases
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench, arguments
from support.gpu import Cuda, cuda, new_stream, on_gpu

DEVICE = "cuda:0"
SIZES = pytest.mark.xdist_group("sizes")
TILE = 1 << 21
REPEATS = 1030  # more than 2^31 elements in all


@pytest.fixture(autouse=True)
def release() -> Iterator[None]:
    """What torch keeps of gigabytes, other workers may need."""
    yield
    cuda.empty_cache()


def run(problem: DeepSpeedProblem, operands: dict[str, Any]) -> None:
    """Runs on the caller's tensors, and waits."""
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(stream, descriptor_of("fake_quantize", problem))
    need = plan.workspace_size()
    workspace = torch.empty(need, dtype=torch.uint8, device=DEVICE) if need else None
    plan.run(stream, workspace, arguments(plan.descriptor, operands))
    torch.cuda.synchronize()


def as_bytes(tensor: torch.Tensor) -> Array:
    """The bytes of a tensor, on the host."""
    flat: Array = tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
    return flat


@pytest.mark.sanitize
@pytest.mark.parametrize(("mode", "rounding"), FORMS)
@pytest.mark.parametrize("size", [64, 100, 8192, 20000, 66000])
def test_in_place(size: int, mode: str, rounding: str) -> None:
    """Where vectors begin, past that, and in rows between which nothing changes."""
    problem = DeepSpeedProblem(
        shape=(33, 8192), input_dtype="bfloat16", group_size=size, mode=mode, rounding=rounding
    )
    given = problem.inputs("normal", size)
    wanted = problem.expected(given)["output"].view(np.uint8).ravel()
    draws = {name: int(given[name]) for name in given if name != "input"}
    x = on_gpu(given["input"], DEVICE)
    for left, right in ((0, 0), (0, 40), (3, 40)):
        wide = torch.full((33, left + 8192 + right), 77.0, dtype=x.dtype, device=DEVICE)
        inside = wide[:, left : left + 8192]
        inside.copy_(x)
        run(problem, {"input": inside, "output": inside, **draws})
        assert np.array_equal(as_bytes(inside), wanted), (left, right)
        inside.fill_(77)
        assert bool((wide == 77).all())
    flat = torch.full((33 * 8192 + 1,), 77.0, dtype=x.dtype, device=DEVICE)
    flat[1:] = x.reshape(-1)
    run(replace(problem, shape=(33 * 8192,)), {"input": flat[1:], "output": flat[1:], **draws})
    assert np.array_equal(as_bytes(flat[1:]), wanted)
    assert float(flat[0]) == 77


@SIZES
@pytest.mark.parametrize("size", [2048, TILE, TILE * REPEATS])
@pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
def test_beyond_two_to_the_thirty_one(mode: str, size: int) -> None:
    """Every tile as if it were alone; of one group too, whose range is that of each."""
    tile = DeepSpeedProblem(
        shape=(TILE,), input_dtype="bfloat16", group_size=min(size, TILE), mode=mode
    )
    given = tile.inputs("normal", 1)
    x = on_gpu(given["input"], DEVICE).repeat(REPEATS)
    run(replace(tile, shape=(x.numel(),), group_size=size), {"input": x, "output": x})
    wanted = on_gpu(tile.expected(given)["output"], DEVICE).view(torch.int16)
    for part in x.view(torch.int16).view(REPEATS, TILE):
        assert torch.equal(part, wanted)


@pytest.mark.parametrize("size", [500, 50000])
def test_a_captured_graph_draws_anew_with_a_scalar_that_advances(size: int) -> None:
    """The offset lies on the GPU; each replay reads what it holds by then."""
    problem = DeepSpeedProblem(
        shape=(50000,), input_dtype="float32", group_size=size, rounding="stochastic"
    )
    given = problem.inputs("normal", 2)
    stream = new_stream(DEVICE)
    plan = planq.Plan.select(stream, descriptor_of("fake_quantize", problem))
    workspace = torch.empty(max(plan.workspace_size(), 1), dtype=torch.uint8, device=DEVICE)
    offset = torch.zeros((), dtype=torch.int64, device=DEVICE)
    output = torch.zeros(problem.shape, device=DEVICE)
    operands = {"input": on_gpu(given["input"], DEVICE), "output": output, "offset": offset}
    args = arguments(plan.descriptor, {**operands, "seed": 5})
    graph: Any = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        plan.run(stream, workspace if plan.workspace_size() else None, args)
        offset.add_(12500)
        graph.capture_end()
    for replay in range(3):
        graph.replay()
        torch.cuda.synchronize()
        moved = {**given, "seed": np.array(5), "offset": np.array(12500 * replay)}
        wanted = problem.expected(moved)["output"]
        assert np.array_equal(as_bytes(output), wanted.view(np.uint8).ravel())


@pytest.mark.parametrize("case", tiny_cases(), ids=lambda case: str(case.id))
def test_steps_that_are_subnormal(case: Case) -> None:
    """The documented bits, as on the host."""
    given = case.inputs()
    bench = Bench(Cuda(0), descriptor_of("fake_quantize", case.problem))
    bench.load(given)
    bench.run()
    bench.check(given, case.expected(given), case.id)
