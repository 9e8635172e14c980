"""A peer, whoever it is, and its first result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.core.workload import Launch, Workload

Call = Callable[[], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Peer:
    """Another implementation on the operands of a workload.

    Attributes:
        capturable: Whether it launches on the current stream alone, as a graph needs.
        differing: Share of its results that are not planq's; None where it keeps no result.
        prepared: Seconds that it took to get ready.
        extra_bytes: What it moves in addition, for a purpose of its own.
        what: Which of several ways was the fastest.
    """

    name: str
    launches: list[Launch]
    capturable: bool = True
    differing: float | None = None
    prepared: float = 0.0
    extra_bytes: int = 0
    what: str = ""


def first_result(call: Callable[[], torch.Tensor], capturable: bool) -> torch.Tensor:
    """A first result. What is not capturable may be on the default stream, whatever is current."""
    if capturable or not torch.cuda.is_available():
        return call().contiguous()
    default: Any = torch.cuda.default_stream()
    with torch.cuda.stream(default):
        found = call().contiguous()
    default.synchronize()
    return found


def product_peer(name: str, workload: Workload, calls: Sequence[Call], **more: Any) -> Peer:
    """The calls as a peer, one for each operand set; its results are compared where they can be."""
    begin = time.perf_counter()
    theirs = first_result(calls[0], more.get("capturable", True))
    prepared = time.perf_counter() - begin
    workload.launches[0]()
    ours = workload.sets[0]["output"]
    differing = (theirs != ours).float().mean().item() if theirs.dtype is ours.dtype else None
    launches: list[Launch] = list(calls)
    return Peer(name, launches, differing=differing, prepared=prepared, **more)
