"""Scopes and codes as torch operations: what the formulas of the affine family share."""

from __future__ import annotations

import math
from typing import Any

import torch

import planq

Operands = dict[str, Any]
Extents = tuple[int, ...]


def segmented(scope: planq.Scope, shape: Extents) -> tuple[Extents, Extents]:
    """Shapes under which elements and parameters broadcast.

    Raises:
        ValueError: Segments that are not all of one size, or not along the last axis.
    """
    if scope.kind == "tensor":
        return shape, (1,) * len(shape)
    if scope.kind == "channel":
        return shape, tuple(n if axis == scope.axis else 1 for axis, n in enumerate(shape))
    if scope.kind in ("token", "pair"):
        return shape, (*shape[:-1], 1)
    *outer, columns = shape
    if columns % scope.size or (scope.kind == "group" and scope.axis != len(shape) - 1):
        raise ValueError("segments are along the last axis, and all of one size")
    pieces = columns // scope.size
    if scope.kind == "group":
        return (*outer, pieces, scope.size), (*outer, pieces, 1)
    if len(shape) != 2 or shape[0] % scope.rows:
        raise ValueError("blocks are of a matrix, and all of one size")
    tall = shape[0] // scope.rows
    return (tall, scope.rows, pieces, scope.size), (tall, 1, pieces, 1)


def wide(x: torch.Tensor) -> torch.Tensor:
    """Elements in the compute type."""
    return x if x.dtype is torch.float64 else x.float()


def four_bits(dtype: planq.DType) -> bool:
    """Whether two codes share a byte."""
    return dtype in (planq.DType.INT4, planq.DType.UINT4)


def single(values: torch.Tensor) -> torch.Tensor:
    """Doubles as floats that round to fp8 as the doubles do; torch would round them twice.

    A float next to an inexact double, on the side where the last bit is set, is on no tie.
    """
    if values.dtype is not torch.float64:
        return values
    near = values.float()
    bits = near.view(torch.int32)
    toward = torch.where((near.double() > values) == (near > 0), bits - 1, bits)
    inexact = (near.double() != values) & (near != 0)
    return torch.where(inexact, toward | 1, bits).view(torch.float32)


def codes_of(
    desc: Any, quotient: torch.Tensor, zero_point: torch.Tensor | None = None
) -> torch.Tensor:
    """Codes of quotients as stored."""
    if desc.output_dtype.value.startswith("float8"):
        limited = single(quotient.clamp(desc.q_min, desc.q_max))
        return limited.to(getattr(torch, desc.output_dtype.value))
    codes = shifted(quotient, zero_point).clamp(desc.q_min, desc.q_max)
    if four_bits(desc.output_dtype):
        return packed(codes.to(torch.int8).reshape(desc.shape))
    return codes.to(getattr(torch, desc.output_dtype.value))


def shifted(quotient: torch.Tensor, zero_point: torch.Tensor | None) -> torch.Tensor:
    """Rounded quotients from their zero point on; -0 is no code."""
    return torch.round(quotient) + (0.0 if zero_point is None else zero_point)


def packed(codes: torch.Tensor) -> torch.Tensor:
    """Two codes a byte along the last axis, the first in the low nibble."""
    pairs = codes.reshape(*codes.shape[:-1], math.ceil(codes.shape[-1] / 2), 2)
    return ((pairs[..., 0] & 15) | (pairs[..., 1] << 4)).view(torch.uint8)


def unpacked(codes: torch.Tensor, dtype: planq.DType) -> torch.Tensor:
    """The opposite of :func:`packed`: a byte for each code."""
    pairs = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
    return (pairs ^ 8).view(torch.int8) - 8 if dtype is planq.DType.INT4 else pairs
