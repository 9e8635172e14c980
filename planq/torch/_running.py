"""The current stream of torch, and workspaces from its allocator."""

from __future__ import annotations

from typing import Any

import torch

from planq import _core
from planq.stream import host_stream


def current_stream(device: torch.device) -> Any:
    """The current stream of a GPU, or a host stream with as many threads as torch uses."""
    if device.type == "cuda":
        return torch.cuda.current_stream(device)
    return host_stream(threads=torch.get_num_threads())


def is_capturing(device: torch.device) -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def room(size: int, device: torch.device) -> torch.Tensor | None:
    """A workspace from torch's allocator, at an aligned address; None for 0 bytes."""
    if size == 0:
        return None
    held = torch.empty(size + _core.WORKSPACE_ALIGNMENT, dtype=torch.uint8, device=device)
    first = -held.data_ptr() % _core.WORKSPACE_ALIGNMENT
    return held[first : first + size]
