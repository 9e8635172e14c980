"""The routing family as torch operations."""

from __future__ import annotations

from typing import Any, Final

import torch

from harness.formulas.segments import Operands

# Rows are moved as integers: of float8, torch has no operations.
_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


class MoePermute:
    """A stable sort of the pairs by their experts, and rows gathered in its order."""

    def __init__(self, desc: Any) -> None:
        if desc.scale_dtype is not None:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc

    def __call__(self, given: Operands) -> tuple[torch.Tensor, ...]:
        """Rows, where those of an expert begin, and where each went."""
        experts, index = self.desc.experts, given["expert_index"]
        keys = index.masked_fill((index < 0) | (index >= experts), experts).flatten()
        ordered, order = keys.sort(stable=True)
        bounds = torch.arange(experts + 1, dtype=keys.dtype, device=keys.device)
        destination = torch.empty_like(keys)
        destination[order] = torch.arange(len(keys), dtype=keys.dtype, device=keys.device)
        x = given["input"]
        rows = x.view(_BITS[x.element_size()])[order // self.desc.top_k]
        rows = rows.masked_fill((ordered == experts)[:, None], 0)
        return (
            rows.view(x.dtype).view(*index.shape, x.shape[1]),
            torch.searchsorted(ordered, bounds, out_int32=True),
            destination.masked_fill(keys == experts, -1).view_as(index),
        )
