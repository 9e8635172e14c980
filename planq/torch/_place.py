"""Where plans run for torch: on its current stream, in memory of its allocator."""

from __future__ import annotations

from typing import Any

import torch

from planq import _core
from planq.stream import host_stream


def stream(device: torch.device) -> Any:
    """The current one, or as many threads of the host as torch uses."""
    if device.type == "cuda":
        return torch.cuda.current_stream(device)
    return host_stream(threads=torch.get_num_threads())


def room(size: int, device: torch.device) -> torch.Tensor | None:
    """Bytes of torch's allocator, at an aligned address; None for none."""
    if size == 0:
        return None
    held = torch.empty(size + _core.WORKSPACE_ALIGNMENT, dtype=torch.uint8, device=device)
    first = -held.data_ptr() % _core.WORKSPACE_ALIGNMENT
    return held[first : first + size]
