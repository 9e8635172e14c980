"""dynamic_range_quantize and min_max as torch operations."""

from __future__ import annotations

from typing import Any

import torch

import planq
from harness.formulas.segments import Extents, Operands, codes_of, segmented, wide

Results = tuple[torch.Tensor, ...]


class DynamicRangeQuantize:
    """Codes, scale and zero point of matrices without special values."""

    def __init__(self, desc: Any) -> None:
        supported = (
            desc.quotient is planq.Quotient.DIVIDE and desc.include_zero and len(desc.shape) == 2
        )
        if not supported or desc.nibble_order is not planq.NibbleOrder.LOW_FIRST:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc
        specs = desc.operands()
        self.stored, self.stored_scale = specs["output"].shape, specs["scale"].shape
        self.shape, parameters = segmented(desc.scope, desc.shape)
        self.dims = _reduced(parameters)

    def __call__(self, given: Operands) -> Results:
        """Output, scale, zero point."""
        x = wide(given["input"]).view(self.shape)
        asymmetric = self.desc.mode is planq.Mode.ASYMMETRIC
        parameters = (_asymmetric if asymmetric else _symmetric)(self.desc, x, self.dims)
        codes = codes_of(self.desc, x / parameters[0], *parameters[1:])
        return (
            codes.reshape(self.stored),
            *(item.reshape(self.stored_scale) for item in parameters),
        )


def _reduced(parameters: Extents) -> Extents:
    return tuple(axis for axis, extent in enumerate(parameters) if extent == 1)


def _tiny(x: torch.Tensor) -> float:
    return float(torch.finfo(x.dtype).tiny)


def _symmetric(desc: Any, x: torch.Tensor, dims: Extents) -> Results:
    largest = x.abs().amax(dims, keepdim=True)
    # A tensor as the divisor: torch multiplies by the reciprocal of a number.
    scale = largest / torch.full_like(largest, desc.q_max)
    return (torch.where(largest == 0, 1.0, scale.clamp(min=_tiny(x))),)


def _asymmetric(desc: Any, x: torch.Tensor, dims: Extents) -> Results:
    low, high = x.amin(dims, keepdim=True).clamp(max=0), x.amax(dims, keepdim=True).clamp(min=0)
    span = high / 2 - low / 2
    scale = span / torch.full_like(span, (desc.q_max - desc.q_min) / 2)
    scale = torch.where(span == 0, 1.0, scale.clamp(min=_tiny(x)))
    zero_point = (desc.q_min - torch.round(low / scale)).clamp(desc.q_min, desc.q_max)
    return scale, zero_point.to(torch.int32)


class MinMax:
    """Ranges of segments without special values."""

    def __init__(self, desc: Any) -> None:
        if desc.update:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc
        self.stored = next(s for s in desc.operands().values() if s.role == "output").shape
        self.shape, parameters = segmented(desc.scope, desc.shape)
        self.dims = _reduced(parameters)

    def __call__(self, given: Operands) -> Results:
        """The largest magnitude, or the smallest and the largest element."""
        x = wide(given["input"]).view(self.shape)
        if self.desc.mode is planq.Mode.ASYMMETRIC:
            found = [x.amin(self.dims), x.amax(self.dims)]
        else:
            found = [x.abs().amax(self.dims)]
        return tuple((item + 0.0).reshape(self.stored) for item in found)
