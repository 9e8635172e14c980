"""The packing family as torch operations."""

from __future__ import annotations

from typing import Any

import torch

import planq
from harness.formulas.segments import Operands, packed, unpacked


class _Pairs:
    """What packing and unpacking share: along the last axis, the first code in the low nibble."""

    def __init__(self, desc: Any) -> None:
        low_first = desc.nibble_order is planq.NibbleOrder.LOW_FIRST
        if not low_first or desc.axis != len(desc.shape) - 1 or desc.shape[-1] % 2:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc


class PackInt4(_Pairs):
    """Two codes a byte."""

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The bytes."""
        return (packed(given["input"]),)


class UnpackInt4(_Pairs):
    """A byte for each code."""

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The codes."""
        return (unpacked(given["input"], self.desc.input_dtype),)


class Reorder:
    """The order of CUTLASS's mixed-dtype linear layers, as a permutation of the axes of W[k, n]."""

    def __init__(self, desc: Any) -> None:
        if desc.inverse or desc.transpose:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The reordered weight."""
        eight = self.desc.input_dtype is planq.DType.INT8
        rows, columns = self.desc.shape
        plain = given["input"].view(torch.uint8)
        # Parts of k: tile of 64, part of it, then h, p, l: field h or l + h, word p. m: part of n.
        parts, high, shared = (4, 2, 2) if eight else (2, 4, 4)
        codes = plain ^ 0x80 if eight else unpacked(plain, planq.DType.UINT4) ^ 8
        tiles = codes.view(rows // 64, parts, high, 4, 2, columns // shared, shared)
        ordered = tiles.permute(5, 0, 6, 1, 3, 4, 2).reshape(rows, columns)
        return (ordered if eight else packed(ordered),)


class PackWeight:
    """The order of tensor cores' fragments, as a permutation of the axes of W[n, k]."""

    def __init__(self, desc: Any) -> None:
        low_first = desc.nibble_order is planq.NibbleOrder.LOW_FIRST
        if desc.inverse or not low_first or any(extent % 64 for extent in desc.weight_shape):
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The packed weight."""
        (n, k), signed = self.desc.weight_shape, self.desc.code_dtype is planq.DType.INT4
        codes = unpacked(given["input"], planq.DType.UINT4) ^ (8 if signed else 0)
        # Rows: tile, warp, half of a fragment, group. Terms: tile, step, half, thread, parity.
        tiles = codes.view(n // 64, 4, 2, 8, k // 64, 4, 2, 4, 2)
        ordered = tiles.permute(0, 4, 1, 3, 7, 5, 8, 6, 2)
        return (packed(ordered.reshape(n // 64, 64 * k)),)
