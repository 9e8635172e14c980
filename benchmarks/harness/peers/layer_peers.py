"""Norms, gates and the codes of their tokens as vLLM computes them: compiled, and in Triton."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch.nn import functional

from harness.core.cuda import CudaMachine
from harness.core.workload import Launch, Machine, Operands, Workload
from harness.peers.peer import Peer, first_result

LIMITS: Final = {"int8": 127.0, "float8_e4m3fn": 448.0}
"""The largest code of a token, by the type of the codes."""
LEAST_FLOAT8: Final = 1 / (448.0 * 512.0)

Formula = Callable[[Operands], tuple[torch.Tensor, ...]]


def rms_norm(given: Operands) -> torch.Tensor:
    """The sum with the residual is rounded where it is stored, and not where it is normalized."""
    x = given["input"].float()
    if "residual" in given:
        x = x + given["residual"].float()
        given["residual"].copy_(x)
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + given["eps"])
    return x.to(given["input"].dtype) * given["weight"]


def silu_and_mul(given: Operands) -> torch.Tensor:
    """The function is rounded before the product."""
    gate, up = given["input"].chunk(2, -1)
    return functional.silu(gate) * up


def quantized(y: torch.Tensor, code: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of tokens and their scales: int8 by a ratio, fp8 by an inverse."""
    y, limit = y.float(), LIMITS[code]
    largest = y.abs().amax(-1, keepdim=True)
    if code == "int8":
        codes = (y * (torch.full_like(largest, limit) / largest)).round().clamp(-128, 127)
        scale = largest / limit
    else:
        scale = (largest / limit).clamp(min=LEAST_FLOAT8)
        codes = (y * (1 / scale)).clamp(-limit, limit)
    return codes.to(getattr(torch, code)), scale.squeeze(-1)


def of_vllm(desc: Any, code: str) -> Formula:
    """The formula of a norm or a gate, and of codes of its tokens where that is the type.

    Raises:
        ValueError: vLLM has no such layer.
    """
    gated = desc.operator == "activation" and desc.gated and desc.function.value == "silu"
    if desc.operator != "rms_norm" and not (gated and desc.layout.value == "halves"):
        raise ValueError(f"vLLM has no {desc}")
    layer = silu_and_mul if gated else rms_norm

    def compute(given: Operands) -> tuple[torch.Tensor, ...]:
        y = layer(given)
        return quantized(y, code) if code in LIMITS else (y,)

    return compute


def compiled(desc: Any, code: str) -> Formula:
    """The same by torch's compiler, for the shape of its first operands alone."""
    torch._dynamo.reset()
    made: Formula = torch.compile(
        of_vllm(desc, code), mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False
    )
    return made


def vllm_compiled(machine: Machine, workload: Workload) -> Peer:
    """One kernel of torch's compiler, for this shape alone."""
    desc = workload.case.descriptor
    return _peer("vllm_compiled", compiled(desc, desc.output_dtype.value), workload)


def triton(machine: Machine, workload: Workload) -> Peer | None:
    """One short kernel, a row to a program."""
    kernels, desc = triton_kernels(), workload.case.descriptor
    if kernels is None or not isinstance(machine, CudaMachine):
        return None
    return _peer("triton", kernels.of_triton(desc, desc.output_dtype.value), workload)


def triton_kernels() -> Any:
    """The module of that name; None where Triton is not installed."""
    if importlib.util.find_spec("triton") is None:
        return None
    return importlib.import_module("harness.peers.triton_kernels")


def _peer(name: str, function: Formula, workload: Workload) -> Peer:
    """On operands whose residual is the peer's own, as it is before a launch of planq."""
    given = [
        {**one, "residual": one["residual"].clone()} if "residual" in one else dict(one)
        for one in workload.sets
    ]
    begin = time.perf_counter()
    theirs = first_result(lambda: function(given[0])[0], capturable=True)
    prepared = time.perf_counter() - begin
    workload.launches[0]()
    ours = workload.sets[0]["output"].view(-1)
    differing = (theirs.view(-1).view(ours.dtype) != ours).float().mean().item()
    launches: list[Launch] = [partial(function, one) for one in given]
    return Peer(name, launches, differing=differing, prepared=prepared)


MAKERS: Final[dict[str, Callable[[Machine, Workload], Peer | None]]] = {
    "vllm_compiled": vllm_compiled,
    "triton": triton,
}
