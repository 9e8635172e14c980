"""planq.torch on a GPU: bits, opcheck, compiled, in graphs, on streams of torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import planq
import planq.torch
from planq.audit.operators import expected
from support.gpu import cuda, new_stream
from support.own import ADAPTERS
from support.tensors import from_torch
from support.torch_operators import cases, check, overloads, some_call

OPS: Any = torch.ops.planq
DEVICE = "cuda:0"
COUNT = 8


def runs_here(kernel: planq.KernelInfo) -> bool:
    """Whether it is for this GPU's architecture."""
    major, minor = cuda.get_device_capability()
    arch = 10 * major + minor
    last = arch if kernel.max_arch is None else kernel.max_arch
    return kernel.backend == planq.Backend.CUDA and kernel.min_arch <= arch <= last


OPERATORS = sorted(
    info.name
    for info in planq.operators()
    if info.name in ADAPTERS and any(runs_here(kernel) for kernel in info.kernels)
)


@pytest.mark.parametrize("operator", OPERATORS)
def test_bits_are_the_references(operator: str) -> None:
    """Allocating and not, with elements and without."""
    for case in cases(operator, COUNT):
        for overload in overloads(operator):
            check(operator, case, overload, DEVICE)


@pytest.mark.parametrize("operator", OPERATORS)
def test_opcheck(operator: str) -> None:
    """Schema, autograd's registration, fake tensors, ahead-of-time dispatch with symbols."""
    for overload in overloads(operator):
        torch.library.opcheck(
            overload, (), some_call(operator, overload, COUNT, DEVICE)[1].arguments
        )


@pytest.mark.parametrize("operator", OPERATORS)
def test_captured(operator: str) -> None:
    """After a call that selected the plan; results and workspace are the graph's memory."""
    for overload in overloads(operator):
        case, call = some_call(operator, overload, COUNT, DEVICE)
        given = [
            tensor
            for value in call.arguments.values()
            for tensor in (value if isinstance(value, list | tuple) else [value])
            if isinstance(tensor, torch.Tensor)
        ]
        kept = [tensor.clone() for tensor in given]
        call()
        graph: Any = cuda.CUDAGraph()
        cuda.synchronize()
        with cuda.graph(graph):
            results = call()
        for _ in range(2):
            for tensor, value in zip(given, kept, strict=True):
                tensor.copy_(value)
            graph.replay()
            cuda.synchronize()
            for name, wanted in expected(case).items():
                got = from_torch(results[name].cpu())
                assert got.tobytes() == wanted.tobytes(), f"{overload} on {case.id}: {name}"


@pytest.mark.parametrize("operator", OPERATORS)
def test_compiled_whole_with_symbols(operator: str) -> None:
    """One graph, without a break."""
    for overload in overloads(operator):
        case, call = some_call(operator, overload, COUNT, DEVICE)
        names = [name for name, value in call.arguments.items() if isinstance(value, torch.Tensor)]
        rest = {name: value for name, value in call.arguments.items() if name not in names}

        def step(
            *tensors: torch.Tensor, overload: Any = overload, names: Any = names, rest: Any = rest
        ) -> Any:
            return overload(**dict(zip(names, tensors, strict=True)), **rest)

        torch.compiler.reset()
        compiled = torch.compile(step, fullgraph=True, dynamic=True, backend="aot_eager")
        results = compiled(*(call.arguments[name] for name in names))
        if overload._schema.returns:
            made = [results] if isinstance(results, torch.Tensor) else results
            found = dict(zip(call.outputs, made, strict=True))
        else:
            found = {name: call.operand(name) for name in call.outputs}
        for name, wanted in expected(case).items():
            assert from_torch(found[name].cpu()).tobytes() == wanted.tobytes(), (
                f"{overload}: {name}"
            )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor_with_new_numbers_of_rows() -> None:
    """Arithmetic around an operator; nothing is compiled anew from 2 rows up."""

    def step(x: torch.Tensor) -> torch.Tensor:
        codes, scale = OPS.dynamic_range_quantize(x * 2, "int8")
        result: torch.Tensor = OPS.dequantize(codes, scale, "int8", "float32", scope="token()") + 1
        return result

    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True)
    compiled(torch.randn(2, 512, device=DEVICE))
    with torch._dynamo.config.patch(error_on_recompile=True):
        for rows in (3, 7, 100, 1000):
            x = torch.randn(rows, 512, device=DEVICE)
            assert torch.equal(compiled(x), step(x))


def test_two_streams_do_not_wait_for_each_other() -> None:
    """Each call is on the stream that was current, after what came before it there."""
    x = torch.randn(64, 4096)
    wanted = [OPS.dynamic_range_quantize(x * factor, "int8") for factor in (1, 2)]
    inputs = [torch.zeros(64, 4096, device=DEVICE) for _ in wanted]
    source = x.to(DEVICE)
    OPS.dynamic_range_quantize(source, "int8")
    streams = [new_stream(DEVICE), new_stream(DEVICE)]
    for stream in streams:  # both own memory now, and both have a plan
        with cuda.stream(stream):
            OPS.dynamic_range_quantize(source * 3, "int8")
    cuda.synchronize()
    found = []
    for factor, stream, tensor in zip((1, 2), streams, inputs, strict=True):
        with cuda.stream(stream):
            if factor == 1:
                cuda._sleep(2_000_000_000)
            tensor.copy_(source * factor)
            found.append(OPS.dynamic_range_quantize(tensor, "int8"))
    streams[1].synchronize()
    assert not streams[0].query(), "the first stream is asleep, and the second did not wait"
    cuda.synchronize()
    for ours, theirs in zip(found, wanted, strict=True):
        assert all(torch.equal(a.cpu(), b) for a, b in zip(ours, theirs, strict=True))


def test_workspace_of_torchs_allocator_and_the_callers() -> None:
    """On a stream of its own, while other memory comes and goes."""
    x = torch.randn(1 << 16, device=DEVICE)
    wanted = OPS.estimate_quantiles(x.cpu())
    with cuda.stream(new_stream(DEVICE)):
        for _ in range(20):
            ours = OPS.estimate_quantiles(x)
            torch.empty(1 << 16, device=DEVICE).fill_(float("nan"))
            assert torch.equal(ours.cpu(), wanted)
    desc = planq.EstimateQuantilesDescriptor(shape=(1 << 16,), input_dtype="float32")
    needed = planq.Plan.select(new_stream(DEVICE), desc).workspace_size()
    out = torch.empty(256, device=DEVICE)
    OPS.estimate_quantiles.out(x, out, torch.empty(needed, dtype=torch.uint8, device=DEVICE))
    assert torch.equal(out.cpu(), wanted)


def test_gradients_are_the_hosts() -> None:
    """Of both that have one."""
    for call in (
        lambda x: planq.torch.quantize_dequantize(x, "int8", q_min=-20),
        lambda x: planq.torch.quantize_dequantize(x, "float8_e4m3fn"),
        lambda x: OPS.fake_quantize(x, scope="token()", q_min=-20, dynamic=True)[0],
    ):
        grads = []
        x, dy = torch.randn(33, 257), torch.randn(33, 257)
        for device in ("cpu", DEVICE):
            leaf = x.to(device, copy=True).requires_grad_()
            call(leaf).backward(dy.to(device))
            assert leaf.grad is not None
            grads.append(leaf.grad.cpu())
        assert torch.equal(*grads)


def test_every_gpu_has_plans_of_its_own() -> None:
    """Whichever is current."""
    x = torch.randn(5, 256)
    wanted = OPS.dynamic_range_quantize(x, "int8")
    for index in range(cuda.device_count()):
        found = OPS.dynamic_range_quantize(x.to(f"cuda:{index}"), "int8")
        assert all(tensor.device.index == index for tensor in found)
        assert all(torch.equal(a.cpu(), b) for a, b in zip(found, wanted, strict=True))


def test_an_operand_elsewhere_is_refused() -> None:
    """With planq's words."""
    x, scale = torch.ones(4, 64, device=DEVICE), torch.ones(1)
    with pytest.raises(planq.ArgumentError, match=r"scale: expected .* on cuda:0, got .* on host"):
        OPS.quantize(x, scale, "int8")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("compiled", [False, True])
def test_a_backward_pass_meets_the_policy_of_the_block_that_runs_it(compiled: bool) -> None:
    """It runs in a thread of torch's, after a forward pass outside; outside again, it runs."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return planq.torch.quantize_dequantize(x, "int8").sum()

    torch.compiler.reset()
    call = torch.compile(forward, fullgraph=True, backend="aot_eager") if compiled else forward
    x = torch.ones(4, 64, device=DEVICE, requires_grad=True)
    call(x).backward()
    loss = call(x)
    with (
        planq.policy(planq.PlanPreference(backend="host")),
        pytest.raises(planq.NoKernelError, match="a policy in force"),
    ):
        loss.backward()
    call(x).backward()


def test_a_backward_pass_meets_the_policy_of_its_forward_pass() -> None:
    """Outside of the block: another backend is not the one that the forward pass named."""
    x = torch.ones(4, 64, device=DEVICE, requires_grad=True)
    with planq.policy(planq.PlanPreference(backend="cuda")):
        loss = planq.torch.quantize_dequantize(x, "int8").sum()
    planq.set_policy(planq.PlanPreference(backend="host"))
    try:
        with pytest.raises(planq.DescriptorError, match="got cuda and host"):
            loss.backward()
    finally:
        planq.set_policy(None)
