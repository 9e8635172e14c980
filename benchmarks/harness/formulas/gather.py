"""The gather family as torch operations."""

from __future__ import annotations

from typing import Any

import torch

import planq
from harness.formulas.segments import Operands


class Embedding:
    """Rows by index, of a floating table or of int8 codes under a scale for each row."""

    def __init__(self, desc: Any) -> None:
        codes = desc.table_dtype is planq.DType.INT8 and desc.scope.kind == "token"
        if not codes and desc.table_dtype in ("int8", "int4"):
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc

    def __call__(self, given: Operands) -> tuple[torch.Tensor, ...]:
        """Rows, and how many indices name none."""
        table, index = given["table"], given["index"]
        outside = (index < 0) | (index >= len(table))
        place = index.masked_fill(outside, 0)
        rows = torch.nn.functional.embedding(place, table).float()
        if "scale" in given:
            rows = rows * given["scale"].float()[place][..., None]
        rows = rows * torch.as_tensor(given["factor"]).float().to(rows.device)
        rows = rows.masked_fill(outside[..., None], 0)
        return rows.to(getattr(torch, self.desc.output_dtype.value)), outside.sum().view(1)


class Argmax:
    """torch's own."""

    def __init__(self, desc: Any) -> None:
        self.desc = desc

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The first of the largest elements."""
        return (given["input"].argmax(-1).to(getattr(torch, self.desc.output_dtype.value)),)
