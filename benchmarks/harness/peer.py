"""A peer, whoever it is, and its first result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from harness.workload import Launch


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
