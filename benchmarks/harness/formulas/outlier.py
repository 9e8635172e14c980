"""The outlier family as torch operations."""

from __future__ import annotations

from typing import Any

import torch

import planq
from harness.formulas.segments import Operands, wide

# A panel of 32 columns in tiles of so many rows: the axes that rows and columns are split into,
# behind the tile and before the panel's columns, and the order in which memory has them.
_TILES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "col32": ((1,), (32,), (2, 0, 1, 3)),
    "col_turing": ((4, 2), (8, 4), (3, 0, 2, 4, 1, 5)),
    "col_ampere": ((4, 4, 2), (32,), (4, 0, 2, 1, 3, 5)),
}


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def in_layout(matrix: torch.Tensor, layout: str) -> torch.Tensor:
    """A matrix as the layout has it, as padding and a permutation of axes."""
    if layout in ("row", "col"):
        return matrix.contiguous() if layout == "row" else matrix.T.contiguous()
    rows, columns, order = _TILES[layout]
    tile = 1
    for extent in rows:
        tile *= extent
    held = (_up(matrix.shape[0], tile), _up(matrix.shape[1], 32))
    padded = matrix.new_zeros(held)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    axes = padded.view(held[0] // tile, *rows, held[1] // 32, *columns)
    return axes.permute(order).reshape(held)


class TransformLayout:
    """From rows to any layout."""

    def __init__(self, desc: Any) -> None:
        if desc.from_layout is not planq.Layout.ROW or len(desc.shape) != 2:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The matrix, or its transpose, in the other layout."""
        matrix = given["input"].T if self.desc.transpose else given["input"]
        return (in_layout(matrix, self.desc.to_layout.value),)


class ExtractOutliers:
    """Columns of rows, as many as there is room for."""

    def __init__(self, desc: Any) -> None:
        if desc.layout is not planq.Layout.ROW or len(desc.shape) != 2:
            raise ValueError(f"no torch formula for {desc}")

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The columns."""
        return (given["input"].index_select(1, given["index"]),)


class _Vectorwise:
    """What both directions share: which axes a statistic is made along."""

    def __init__(self, desc: Any) -> None:
        self.desc, self.form = desc, desc.form.value
        self.shifted = "zeropoint" in self.form
        every = tuple(range(len(desc.shape)))
        self.axes = every if self.form in ("linear", "zeropoint") else (desc.axis,)

    def spread(self, statistic: torch.Tensor) -> torch.Tensor:
        """In a shape that broadcasts."""
        whole = len(self.axes) == len(self.desc.shape)
        return statistic.view((1,) * len(self.desc.shape)) if whole else statistic


class VectorwiseQuantize(_Vectorwise):
    """Codes and statistics of elements without special values."""

    def __call__(self, given: Operands) -> tuple[torch.Tensor, ...]:
        """Codes, statistics, and zero points if there are any."""
        x = wide(given["input"])
        if self.shifted:
            low, high = x.amin(self.axes, True), x.amax(self.axes, True)
            scale = torch.full_like(low, 255) / (high - low)
            zero = -torch.round(low * scale)
            codes = torch.round(x * scale + zero).clamp(0, 255)
            parts = scale, zero.to(torch.int32)
        else:
            scale = x.abs().amax(self.axes, True)
            if self.form == "truncated":
                scale = scale * 0.7
            if self.form in ("row", "vector"):
                codes = torch.round(x * (torch.full_like(scale, 127) / scale))
            else:
                codes = torch.round(torch.clamp(x, -scale, scale) / scale * 127)
            parts = (scale,)
        shape = self.desc.operands()["scale"].shape
        dtype = torch.uint8 if self.shifted else torch.int8
        return codes.to(dtype), *(part.reshape(shape) for part in parts)


class VectorwiseDequantize(_Vectorwise):
    """Elements of codes."""

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The elements."""
        scale = self.spread(given["scale"])
        codes = given["input"].to(scale.dtype)
        if self.shifted:
            values = (codes - self.spread(given["zero_point"])) / scale
        else:
            values = codes / torch.full_like(codes, 127) * scale
        return (values.to(getattr(torch, self.desc.output_dtype.value)),)
