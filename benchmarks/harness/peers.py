"""What else computes the same codes on the same machine."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from harness.cuda import CudaMachine
from harness.formula import formula
from harness.workload import Launch, Machine, Workload


@dataclass(frozen=True, slots=True)
class Peer:
    """Another implementation on the operands of a workload.

    Attributes:
        capturable: Whether it launches on the current stream alone, as a graph needs.
        differing: Share of its codes that are not planq's; None where it keeps no result.
        prepared: Seconds that it took to get ready.
    """

    name: str
    launches: list[Launch]
    capturable: bool = True
    differing: float | None = None
    prepared: float = 0.0


def make_peer(name: str, machine: Machine, workload: Workload) -> Peer | None:
    """The peer of this name, made ready on the workload; None where the machine lacks it."""
    return _MAKERS[name](machine, workload)


def _on_inputs(
    name: str, function: Callable[[torch.Tensor], Any], workload: Workload, **more: Any
) -> Peer:
    begin = time.perf_counter()
    codes = function(workload.sets[0]["input"])[0]
    prepared = time.perf_counter() - begin
    workload.launches[0]()
    ours = workload.sets[0]["output"]
    differing = (codes.view(torch.uint8) != ours.view(torch.uint8)).float().mean().item()
    launches: list[Launch] = [partial(function, operands["input"]) for operands in workload.sets]
    return Peer(name, launches, differing=differing, prepared=prepared, **more)


def _eager(machine: Machine, workload: Workload) -> Peer:
    return _on_inputs("eager", formula(workload.case.descriptor), workload)


def _compile(machine: Machine, workload: Workload) -> Peer:
    torch._dynamo.reset()
    compiled = torch.compile(
        formula(workload.case.descriptor), mode="max-autotune-no-cudagraphs", dynamic=False
    )
    return _on_inputs("compile", compiled, workload)


def _bitsandbytes(machine: Machine, workload: Workload) -> Peer | None:
    if importlib.util.find_spec("bitsandbytes") is None:
        return None
    quantize = importlib.import_module("bitsandbytes.functional").int8_vectorwise_quant
    return _on_inputs("bitsandbytes", quantize, workload, capturable=False)


def _two_pass(machine: Machine, workload: Workload) -> Peer | None:
    if not isinstance(machine, CudaMachine):
        return None
    return Peer("two_pass", machine.two_pass(workload.case.rows, workload.case.columns))


_MAKERS: dict[str, Callable[[Machine, Workload], Peer | None]] = {
    "eager": _eager,
    "compile": _compile,
    "bitsandbytes": _bitsandbytes,
    "two_pass": _two_pass,
}
