"""The group family as torch operations, for finite elements in whole groups and without offsets."""

from __future__ import annotations

import math
from typing import Any

import torch

import planq
from harness.formulas.segments import Operands, four_bits, packed, unpacked, wide

Results = tuple[torch.Tensor, ...]


def _coded(x: torch.Tensor, size: int, dtype: planq.DType) -> Results:
    """Codes of float32 elements, a row for each group, and multipliers."""
    half = 8.0 if four_bits(dtype) else 128.0
    groups = x.view(-1, size)
    reach = groups.abs().amax(1, keepdim=True)
    found = (half / reach).clamp(max=torch.finfo(torch.float32).max)
    s = torch.where(reach == 0, 1.0, found)
    codes = torch.round(groups * s).clamp(-half, half - 1).to(torch.int8)
    return codes, s.reciprocal()


def _stored(codes: torch.Tensor, dtype: planq.DType) -> torch.Tensor:
    """Flat, the first of a pair in the high nibble."""
    if not four_bits(dtype):
        return codes.flatten()
    return packed(codes.reshape(-1, 2).flip(-1)).flatten()


def _values(codes: torch.Tensor, parameters: torch.Tensor, desc: Any) -> torch.Tensor:
    """What codes stand for, in float32."""
    if four_bits(desc.input_dtype):
        codes = unpacked(codes.reshape(-1, 1), planq.DType.INT4).flip(-1)
    return (codes.reshape(-1, desc.group_size).float() * parameters.view(-1, 1)).flatten()


def _fed(desc: Any, x: torch.Tensor, error: torch.Tensor, size: int) -> Results:
    """Codes and multipliers of float32 elements and errors, and the errors after them."""
    wanted = x + error.float()
    codes, parameters = _coded(wanted, size, desc.output_dtype)
    lost = wanted - (codes * parameters).flatten()
    share = torch.tensor(desc.error_feedback, dtype=torch.float32)
    left = error.float() * share + lost * (1 - share)
    return codes, parameters, left.to(error.dtype)


def _refuse_others(desc: Any) -> None:
    """What is not written down here.

    Raises:
        ValueError: Offsets, torn groups, odd ones of 4 bits, other conventions or parameters, sums
            of float16.
    """
    torn = math.prod(desc.shape) % desc.group_size or desc.group_size % 2
    symmetric = desc.mode is planq.Mode.SYMMETRIC
    given = getattr(desc, "parameters_given", False)
    half = getattr(desc, "sum_dtype", None) is planq.DType.FLOAT16
    if torn or given or half or not symmetric:
        raise ValueError(f"no torch formula for {desc}")


class Quantize:
    """Codes and multipliers of groups, in the order that a hierarchical exchange wants if any."""

    def __init__(self, desc: Any) -> None:
        _refuse_others(desc)
        self.desc = desc
        nodes = getattr(desc, "nodes", 1)
        self.order = (nodes, getattr(desc, "devices_per_node", 1), getattr(desc, "pipelining", 1))

    def __call__(self, given: Operands) -> Results:
        """Both, flat."""
        desc, x = self.desc, wide(given["input"]).flatten()
        if getattr(desc, "error_feedback", None) is None:
            codes, parameters = _coded(x, desc.group_size, desc.output_dtype)
            errors: list[torch.Tensor] = []
        else:
            nodes, devices, slices = self.order
            held = given["error"].reshape(slices, devices, nodes, -1).permute(2, 1, 0, 3).flatten()
            codes, parameters, left = _fed(desc, x, held, desc.group_size)
            errors = [self._sent(left).flatten()]
        codes, parameters = self._sent(codes), self._sent(parameters)
        return _stored(codes, desc.output_dtype), parameters.flatten(), *errors

    def _sent(self, groups: torch.Tensor) -> torch.Tensor:
        return groups.reshape(*self.order, -1).permute(2, 1, 0, 3)


class Dequantize:
    """Elements of codes."""

    def __init__(self, desc: Any) -> None:
        _refuse_others(desc)
        self.desc = desc
        self.result: torch.dtype = getattr(torch, desc.output_dtype.value)

    def __call__(self, given: Operands) -> Results:
        """The elements."""
        return (_values(given["input"], given["parameters"], self.desc).to(self.result),)


class Reduce:
    """The sum of what every rank's codes stand for, one rank after another, as codes or not."""

    def __init__(self, desc: Any) -> None:
        _refuse_others(desc)
        if desc.mean:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc

    def __call__(self, given: Operands) -> Results:
        """Elements, or codes and multipliers."""
        desc = self.desc
        pairs = zip(given["input"], given["parameters"], strict=True)
        first, *others = (_values(*pair, desc) for pair in pairs)
        total = first + 0.0
        for other in others:
            total = total + other
        if desc.output_dtype is not desc.input_dtype:
            return (total.to(getattr(torch, desc.output_dtype.value)),)
        size = desc.output_group_size or desc.group_size
        errors: list[torch.Tensor] = []
        if desc.error_feedback is None:
            codes, parameters = _coded(total, size, desc.output_dtype)
        else:
            codes, parameters, *errors = _fed(desc, total, given["error"], size)
        return _stored(codes, desc.output_dtype), parameters.flatten(), *errors


class Fake:
    """What quantizing leaves of elements, to the nearest codes."""

    def __init__(self, desc: Any) -> None:
        torn = math.prod(desc.shape) % desc.group_size
        if torn or desc.rounding is planq.Rounding.STOCHASTIC:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc
        self.levels = 2.0**desc.bits

    def __call__(self, given: Operands) -> Results:
        """The elements that are left."""
        groups = wide(given["input"]).view(-1, self.desc.group_size)
        symmetric = self.desc.mode is planq.Mode.SYMMETRIC
        values = self._symmetric(groups) if symmetric else self._asymmetric(groups)
        dtype: torch.dtype = getattr(torch, self.desc.input_dtype.value)
        return (values.to(dtype).view(self.desc.shape),)

    def _symmetric(self, groups: torch.Tensor) -> torch.Tensor:
        half = self.levels / 2
        s = half / (groups.abs().amax(1, keepdim=True) + self.desc.eps / 2)
        return (torch.round(groups * s).clamp(-half, half - 1) + 0.0) * s.reciprocal()

    def _asymmetric(self, groups: torch.Tensor) -> torch.Tensor:
        low, high = groups.aminmax(dim=1, keepdim=True)
        d = (high - low + self.desc.eps) / self.levels
        places = ((groups - low) * d.reciprocal()).clamp(0, self.levels - 1)
        below = places.floor()
        return (below + (places - below >= 0.5)) * d + low
