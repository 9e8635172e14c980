"""The contract on CUDA: tensors, streams, order, and what is refused."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.affine.dynamic_range_quantize.adapter import descriptor
from planq.audit.ops.affine.dynamic_range_quantize.cases import outputs
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.reference import inputs
from support.gpu import cuda, new_stream, on_gpu

cupy: Any = importlib.import_module("cupy")
cuda_core: Any = importlib.import_module("cuda.core")

PROBLEM = Problem((33, 1000), "float32")
DESC = descriptor(PROBLEM)


class Operands:
    """Input and poisoned outputs on the GPU."""

    def __init__(self, seed: int = 0) -> None:
        """Values by seed."""
        self.values = inputs.make("finite", PROBLEM.shape, "float32", seed)
        self.x = on_gpu(self.values)
        self.q = torch.full(PROBLEM.shape, -99, dtype=torch.int8, device="cuda:0")
        self.s = torch.full(PROBLEM.shape[:1], -1.0, device="cuda:0")
        torch.cuda.synchronize()

    def args(self, wrap: Callable[[torch.Tensor], Any] = lambda t: t) -> Any:
        """As tensors of any library."""
        return planq.DynamicRangeQuantizeArgs(
            input=wrap(self.x), output=wrap(self.q), scale=wrap(self.s)
        )

    def right(self) -> bool:
        """Whether the outputs are the reference's."""
        torch.cuda.synchronize()
        wanted = outputs(PROBLEM, self.values)
        codes = np.array_equal(self.q.cpu().numpy(), wanted["output"])
        return codes and self.s.cpu().numpy().tobytes() == wanted["scale"].tobytes()

    def untouched(self) -> bool:
        """Whether nothing was written."""
        torch.cuda.synchronize()
        return bool((self.q == -99).all() and (self.s == -1).all())


def as_tuple(tensor: torch.Tensor) -> Any:
    """The explicit tuple."""
    name = str(tensor.dtype).removeprefix("torch.")
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), name, "cuda:0")


WRAPPERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "torch": lambda t: t,
    "cupy": cupy.from_dlpack,
    "tuple": as_tuple,
}


def make_streams() -> dict[str, Any]:
    """The same kind of thing by every name."""
    side = new_stream()
    device = cuda_core.Device(0)
    device.set_current()
    return {
        "torch": side,
        "torch default": torch.cuda.default_stream(),
        "cupy": cupy.cuda.Stream(non_blocking=True),
        "cuda.core": device.create_stream(),
        "handle and device": planq.cuda_stream(side.cuda_stream, 0),
        "default handle": planq.cuda_stream(0, 0),
    }


STREAM_NAMES = [
    "torch",
    "torch default",
    "cupy",
    "cuda.core",
    "handle and device",
    "default handle",
]


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS.keys())
def test_tensors_of_every_library(wrap: Callable[[torch.Tensor], Any]) -> None:
    """Read in place."""
    operands, stream = Operands(), new_stream()
    plan = planq.Plan.select(stream, DESC)
    plan.run(stream, None, operands.args(wrap))
    assert operands.right()


@pytest.mark.parametrize("name", STREAM_NAMES)
def test_streams_of_every_library(name: str) -> None:
    """For select, run and launch."""
    operands, stream = Operands(), make_streams()[name]
    plan = planq.Plan.select(stream, DESC)
    plan.run(stream, None, operands.args())
    assert operands.right()
    operands.q.fill_(-99)
    torch.cuda.synchronize()
    plan.bind(None, operands.args())(stream)
    assert operands.right()


def test_a_stream_of_another_library_is_captured() -> None:
    """A stream that is captured does not say its device; run and launch need not ask."""
    operands, device = Operands(), cuda_core.Device(0)
    device.set_current()
    plan = planq.Plan.select(new_stream(), DESC)
    launch = plan.bind(None, operands.args())
    for enqueue in (lambda stream: plan.run(stream, None, operands.args()), launch):
        builder = device.create_stream().create_graph_builder()
        builder.begin_building("global")
        enqueue(builder.stream)
        graph = builder.end_building().complete()
        operands.q.fill_(-99)
        torch.cuda.synchronize()
        graph.launch(builder.stream)
        assert operands.right()


def test_run_returns_before_the_gpu_is_done_and_keeps_the_streams_order() -> None:
    """The stream sleeps first; then the input is written; then the plan reads it."""
    operands, stream = Operands(), new_stream()
    plan = planq.Plan.select(stream, DESC)
    late = operands.x.clone()
    operands.x.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        cuda._sleep(400_000_000)
        operands.x.copy_(late, non_blocking=True)
    plan.run(stream, None, operands.args())
    assert not stream.query()
    assert operands.right()


def test_torch_memory_does_not_grow() -> None:
    """Neither select nor run takes device memory from the caller's allocator, or of its own."""
    operands, stream = Operands(), new_stream()
    plan = planq.Plan.select(stream, DESC)
    plan.run(stream, None, operands.args())
    args = operands.args()

    def grows() -> bool:
        torch.cuda.synchronize()
        free = torch.cuda.mem_get_info()[0]
        for _ in range(1000):
            plan.run(stream, None, args)
        torch.cuda.synchronize()
        return bool(torch.cuda.mem_get_info()[0] < free)

    # Other processes on the GPU take memory now and then; a leak would do so every time.
    assert not all(grows() for _ in range(20))


def test_a_bound_launch_keeps_the_memory_of_a_tensor_not_the_tensor() -> None:
    """torch may let a tensor go over to other memory; the launch goes on with the old one."""
    operands, stream = Operands(), new_stream()
    x = operands.x
    launch = planq.Plan.select(stream, DESC).bind(None, operands.args())
    held = torch.cuda.memory_allocated()
    operands.x = None
    x.data = torch.zeros(1, device="cuda:0")
    others = [torch.full(PROBLEM.shape, 7.0, device="cuda:0") for _ in range(8)]
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() > held
    launch(stream)
    assert operands.right()
    del launch, others, x
    assert torch.cuda.memory_allocated() < held


def test_what_the_memory_on_the_gpu_does_not_say_is_refused() -> None:
    """Gradients that would be lost, signs that are kept in a bit."""
    operands, stream = Operands(), new_stream()
    plan = planq.Plan.select(stream, DESC)
    args = operands.args()
    for x, word in (
        (operands.x.detach().requires_grad_(), "gradient"),
        (torch._neg_view(operands.x), "negative bit"),
    ):
        args.input = x
        assert word in plan.can_implement(args).reason
        with pytest.raises(planq.ArgumentError, match=word):
            plan.run(stream, None, args)
    assert operands.untouched()


def test_a_cuda_plan_refuses_host_streams_and_host_tensors() -> None:
    """No silent change of backend, no copy."""
    operands, stream = Operands(), new_stream()
    plan = planq.Plan.select(stream, DESC)
    with pytest.raises(planq.StreamError):
        plan.run(planq.HOST, None, operands.args())
    args = operands.args()
    args.input = operands.values
    with pytest.raises(planq.ArgumentError, match=r"input: expected .* on cuda:0, got .* on host"):
        plan.run(stream, None, args)
    assert operands.untouched()


def test_a_host_plan_refuses_cuda_tensors() -> None:
    """The other way round."""
    operands = Operands()
    plan = planq.Plan.select(planq.HOST, DESC)
    with pytest.raises(planq.ArgumentError, match=r"on host, got .* on cuda:0"):
        plan.run(planq.HOST, None, operands.args())
    assert operands.untouched()


def test_pinned_and_managed_memory_follow_their_device() -> None:
    """Pinned host memory is host memory."""
    plan = planq.Plan.select(planq.HOST, DESC)
    x = torch.from_numpy(inputs.make("normal", PROBLEM.shape, "float32")).pin_memory()
    q, s = torch.empty(PROBLEM.shape, dtype=torch.int8), torch.empty(PROBLEM.shape[:1])
    plan.run(planq.HOST, None, planq.DynamicRangeQuantizeArgs(input=x, output=q, scale=s))
    assert np.array_equal(q.numpy(), outputs(PROBLEM, x.numpy())["output"])


def test_devices_are_listed_with_their_facts() -> None:
    """As torch sees them; and explain agrees with them by name."""
    for facts in planq.devices():
        properties = torch.cuda.get_device_properties(facts.index)
        assert facts.arch == properties.major * 10 + properties.minor
        assert facts.multiprocessors == properties.multi_processor_count
        assert facts.l2_bytes == properties.L2_cache_size
        by_facts = planq.explain(DESC, device=facts)
        assert by_facts == planq.explain(DESC, device=f"cuda:{facts.index}")
        assert by_facts.chosen is not None


def test_a_plan_survives_json_on_the_gpu() -> None:
    """Selected again for the stream's device."""
    stream = new_stream()
    plan = planq.Plan.select(stream, DESC)
    assert planq.Plan.from_json(stream, plan.to_json()).sku == plan.sku
    with pytest.raises(planq.PlanMismatchError):
        planq.Plan.from_json(planq.HOST, plan.to_json())


def test_eight_threads_share_a_cuda_plan() -> None:
    """Each with its own stream and operands."""
    from concurrent.futures import ThreadPoolExecutor

    plan = planq.Plan.select(new_stream(), DESC)

    def work(seed: int) -> bool:
        operands, stream = Operands(seed), new_stream()
        for _ in range(50):
            plan.run(stream, None, operands.args())
        return operands.right()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
