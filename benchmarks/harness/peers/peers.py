"""What else computes the same results on the same machine."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import planq
from harness.core.cuda import CudaMachine
from harness.core.workload import Launch, Machine, Operands, Workload
from harness.formulas import elementwise, gather, optimizer
from harness.formulas.formula import formula
from harness.peers import attention_peers, bnb, layer_peers, product_peers
from harness.peers.peer import Peer, first_result


def make_peer(name: str, machine: Machine, workload: Workload) -> Peer | None:
    """The peer of this name, made ready on the workload; None where the machine lacks it."""
    return _MAKERS[name](machine, workload)


def _on_inputs(
    name: str, function: Callable[[Operands], Any], workload: Workload, **more: Any
) -> Peer:
    specs = workload.case.descriptor.operands()
    inputs = [name for name, spec in specs.items() if spec.role == "input"]
    result = next(name for name, spec in specs.items() if spec.role == "output")
    given = [{name: operands[name] for name in inputs} for operands in workload.sets]
    begin = time.perf_counter()
    theirs = first_result(lambda: function(given[0])[0], more.get("capturable", True))
    prepared = time.perf_counter() - begin
    workload.launches[0]()
    ours = workload.sets[0][result].view(-1)
    differing = (theirs.view(-1).view(ours.dtype) != ours).float().mean().item()
    launches: list[Launch] = [partial(function, one) for one in given]
    return Peer(name, launches, differing=differing, prepared=prepared, **more)


def _eager(machine: Machine, workload: Workload) -> Peer:
    return _on_inputs("eager", formula(workload.case.descriptor), workload)


def _compile(machine: Machine, workload: Workload) -> Peer:
    torch._dynamo.reset()
    compiled = torch.compile(
        formula(workload.case.descriptor),
        mode="max-autotune-no-cudagraphs",
        fullgraph=True,
        dynamic=False,
    )
    return _on_inputs("compile", compiled, workload)


def _bitsandbytes(machine: Machine, workload: Workload) -> Peer | None:
    if importlib.util.find_spec("bitsandbytes") is None:
        return None
    if workload.case.product is not None:
        return product_peers.bitsandbytes(workload)
    if workload.case.descriptor.operator == "optimizer_step":
        return optimizer.bitsandbytes(workload)
    call = bnb.call_for(workload.case.descriptor)
    return _on_inputs("bitsandbytes", call, workload, capturable=False)


def _torchao(machine: Machine, workload: Workload) -> Peer | None:
    if workload.case.product is not None:
        return product_peers.torchao(machine, workload)
    return optimizer.torchao(workload)


def _torch_fake_quantize(machine: Machine, workload: Workload) -> Peer:
    """Operators of torch itself, which also write a mask of a byte for each element."""
    desc = workload.case.descriptor
    zero_point = torch.zeros_like(workload.sets[0]["scale"], dtype=torch.int32)

    def compute(given: Operands) -> tuple[torch.Tensor]:
        parameters = given["scale"], given.get("zero_point", zero_point)
        bounds = desc.q_min, desc.q_max
        if desc.scope.kind == "tensor":
            return (torch.fake_quantize_per_tensor_affine(given["input"], *parameters, *bounds),)
        return (
            torch.fake_quantize_per_channel_affine(
                given["input"], *parameters, desc.scope.axis, *bounds
            ),
        )

    mask = math.prod(desc.shape)
    return _on_inputs("torch_fake_quantize", compute, workload, extra_bytes=mask)


def _torch_conversions(machine: Machine, workload: Workload) -> Peer:
    """What torch packs and reorders weights with."""
    module = importlib.import_module("torch.quantization._quantized_conversions")
    desc = workload.case.descriptor
    routine: Callable[[torch.Tensor], Any]
    if desc.operator == "pack_int4":
        routine = module.pack_int4_to_int8
    elif desc.operator == "unpack_int4":
        routine = module.unpack_int8_to_int4
    else:
        kind = torch.int8 if desc.input_dtype is planq.DType.INT8 else torch.quint4x2
        reorder = module.quantized_weight_reorder_for_mixed_dtypes_linear_cutlass
        routine = partial(reorder, dtypeq=kind, transpose=desc.transpose)
    return _on_inputs(
        "torch_conversions",
        lambda given: (routine(given["input"].view(torch.int8)),),
        workload,
        capturable=False,
    )


def _vector_norm(machine: Machine, workload: Workload) -> Peer:
    """The norm of torch, with sums in another order; a clip takes more than that."""
    orders = {"one": 1.0, "two": 2.0, "infinity": math.inf}
    order = orders[getattr(workload.case.descriptor, "p", "two")]

    def compute(given: Operands) -> torch.Tensor:
        x = given["input"]
        kind = torch.promote_types(x.dtype, torch.float32)
        found: torch.Tensor = torch.linalg.vector_norm(x.flatten(), order, dtype=kind)
        return found

    launches: list[Launch] = [partial(compute, one) for one in workload.sets]
    return Peer("vector_norm", launches)


def _torch_fill(machine: Machine, workload: Workload) -> Peer:
    """In place, of the same memory."""
    calls = [partial(one["output"].fill_, one["value"]) for one in workload.sets]
    workload.launches[0]()
    ours = workload.sets[0]["output"].clone()
    differing = (calls[0]() != ours).float().mean().item()
    launches: list[Launch] = list(calls)
    return Peer("torch_fill", launches, differing=differing)


def _torch_functions(machine: Machine, workload: Workload) -> Peer:
    desc = workload.case.descriptor
    return _on_inputs("torch_functions", elementwise.of_torch(desc), workload)


def _torch_multinomial(machine: Machine, workload: Workload) -> Peer:
    """A sort, sums and a draw of torch's. It draws by a generator of its own, so bits differ."""
    launches: list[Launch] = [partial(gather.usual_draw, one) for one in workload.sets]
    return Peer("torch_multinomial", launches, capturable=False)


def _two_pass(machine: Machine, workload: Workload) -> Peer | None:
    if not isinstance(machine, CudaMachine):
        return None
    return Peer("two_pass", machine.two_pass(workload.case.rows, workload.case.columns))


_MAKERS: dict[str, Callable[[Machine, Workload], Peer | None]] = {
    "eager": _eager,
    "compile": _compile,
    "bitsandbytes": _bitsandbytes,
    "two_pass": _two_pass,
    "torch_conversions": _torch_conversions,
    "torch_fake_quantize": _torch_fake_quantize,
    "torch_fused": lambda _, workload: optimizer.torch_optimizer(
        "torch_fused", workload, fused=True
    ),
    "torch_foreach": lambda _, workload: optimizer.torch_optimizer(
        "torch_foreach", workload, foreach=True
    ),
    "torch_fill": _torch_fill,
    "torch_functions": _torch_functions,
    "torch_multinomial": _torch_multinomial,
    "vector_norm": _vector_norm,
    **attention_peers.MAKERS,
    **layer_peers.MAKERS,
    **product_peers.MAKERS,
    "torchao": _torchao,
}
