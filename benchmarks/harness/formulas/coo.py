"""Outliers, their maxima and their lists as torch operations."""

from __future__ import annotations

from typing import Any

import torch

import planq
from harness.formulas.segments import Operands

TILE = 256


class RowColumnAbsmax:
    """Maxima of rows and columns, and counts for every tile of a row."""

    def __init__(self, desc: Any) -> None:
        if len(desc.shape) != 2:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc

    def outliers(self, x: torch.Tensor) -> torch.Tensor:
        """Which elements are."""
        far: torch.Tensor = x.double().abs() >= self.desc.threshold
        return far & (self.desc.threshold > 0)

    def maxima(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Without outliers."""
        kept = x.float().abs().masked_fill(self.outliers(x), 0)
        return kept.amax(1), kept.amax(0)

    def __call__(self, given: Operands) -> tuple[torch.Tensor, ...]:
        """Maxima and counts."""
        found = self.outliers(given["input"])
        wide = torch.nn.functional.pad(found, (0, -found.shape[1] % TILE))
        counts = wide.view(len(found), -1, TILE).sum(2, dtype=torch.int32)
        return (*self.maxima(given["input"]), counts)


class DoubleQuantize(RowColumnAbsmax):
    """Codes by rows and by columns, and the outliers in the order of the matrix."""

    def __init__(self, desc: Any) -> None:
        super().__init__(desc)
        if desc.quotient is not planq.Quotient.DIVIDE:
            raise ValueError(f"no torch formula for {desc}")

    def codes(self, x: torch.Tensor, found: torch.Tensor, absmax: torch.Tensor) -> torch.Tensor:
        """Of a divisor that broadcasts."""
        scale = (absmax / 127).clamp(min=2.0**-126).where(absmax != 0, 1.0)
        quotients = (x.float() / scale).round().clamp(-127, 127)
        return quotients.masked_fill(found, 0).to(torch.int8)

    def __call__(self, given: Operands) -> tuple[torch.Tensor, ...]:
        """In the order of the operands."""
        x, room = given["input"], self.desc.capacity
        found = self.outliers(x)
        rows, columns = self.maxima(x)
        places = found.nonzero()
        held = min(len(places), room)
        index = torch.full((2, room), -1, dtype=torch.int32, device=x.device)
        index[:, :held] = places[:held].T
        value = torch.zeros(room, dtype=x.dtype, device=x.device)
        value[:held] = x[found][:held]
        return (
            rows,
            columns,
            self.codes(x, found, rows[:, None]),
            self.codes(x, found, columns),
            index[0],
            index[1],
            value,
            torch.tensor([len(places)], device=x.device),
        )
