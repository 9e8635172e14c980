"""dynamic_range_quantize as torch operations: what eager torch and torch.compile are timed on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

import planq

Formula = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def formula(desc: Any) -> Formula:
    """The descriptor's formula for matrices without special values: output, scale, zero point.

    Raises:
        ValueError: The descriptor asks for something that is not written down here.
    """
    supported = (
        desc.quotient is planq.Quotient.DIVIDE and desc.include_zero and len(desc.shape) == 2
    )
    if not supported or desc.nibble_order is not planq.NibbleOrder.LOW_FIRST:
        raise ValueError(f"no torch formula for {desc}")
    asymmetric = desc.mode is planq.Mode.ASYMMETRIC
    dims = _reduced_axes(desc)
    specs = desc.operands()

    def compute(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = _segments(desc, x if x.dtype is torch.float64 else x.float())
        parameters = (_asymmetric if asymmetric else _symmetric)(desc, values, dims)
        codes = _codes(desc, values, *parameters).reshape(specs["output"].shape)
        return codes, *(item.reshape(specs["scale"].shape) for item in parameters)

    return compute


def _reduced_axes(desc: Any) -> tuple[int, ...]:
    kind = desc.scope.kind
    if kind == "tensor":
        return (0, 1)
    if kind == "channel":
        return (1 - desc.scope.axis,)
    if kind == "group" and (desc.scope.axis != 1 or desc.shape[1] % desc.scope.size):
        raise ValueError("groups are along the last axis, and all of one size")
    if kind == "block":
        if desc.shape[0] % desc.scope.rows or desc.shape[1] % desc.scope.size:
            raise ValueError("blocks are all of one size")
        return (1, 3)
    return (-1,)


def _segments(desc: Any, x: torch.Tensor) -> torch.Tensor:
    rows, size = desc.scope.rows, desc.scope.size
    if desc.scope.kind == "group":
        return x.view(desc.shape[0], desc.shape[1] // size, size)
    if desc.scope.kind == "block":
        return x.view(desc.shape[0] // rows, rows, desc.shape[1] // size, size)
    return x


def _tiny(x: torch.Tensor) -> float:
    return float(torch.finfo(x.dtype).tiny)


def _symmetric(desc: Any, x: torch.Tensor, dims: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    largest = x.abs().amax(dims, keepdim=True)
    # A tensor as the divisor: torch multiplies by the reciprocal of a number.
    scale = largest / torch.full_like(largest, desc.q_max)
    return (torch.where(largest == 0, 1.0, scale.clamp(min=_tiny(x))),)


def _asymmetric(desc: Any, x: torch.Tensor, dims: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    low, high = x.amin(dims, keepdim=True).clamp(max=0), x.amax(dims, keepdim=True).clamp(min=0)
    span = high / 2 - low / 2
    scale = span / torch.full_like(span, (desc.q_max - desc.q_min) / 2)
    scale = torch.where(span == 0, 1.0, scale.clamp(min=_tiny(x)))
    zero_point = (desc.q_min - torch.round(low / scale)).clamp(desc.q_min, desc.q_max)
    return scale, zero_point.to(torch.int32)


def _codes(
    desc: Any, x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None = None
) -> torch.Tensor:
    quotient = x / scale
    if desc.output_dtype.value.startswith("float8"):
        limited = quotient.clamp(desc.q_min, desc.q_max)
        return limited.to(getattr(torch, desc.output_dtype.value))
    rounded = torch.round(quotient)
    if zero_point is not None:
        rounded = rounded + zero_point
    codes = rounded.clamp(desc.q_min, desc.q_max)
    if desc.output_dtype in (planq.DType.INT4, planq.DType.UINT4):
        nibbles = codes.to(torch.int8).reshape(*desc.shape[:-1], math.ceil(desc.shape[-1] / 2), 2)
        return ((nibbles[..., 0] & 15) | (nibbles[..., 1] << 4)).view(torch.uint8)
    return codes.to(getattr(torch, desc.output_dtype.value))
