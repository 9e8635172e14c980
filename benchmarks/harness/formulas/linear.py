"""Products of integer codes as torch operations, and what their cases hold beside codes."""

from __future__ import annotations

from typing import Any, Final

import torch

import planq
from harness.formulas import dynamic
from harness.formulas.segments import Operands, four_bits, wide

Results = tuple[torch.Tensor, ...]

MOST_WIDENED: Final = 1 << 26  # codes that are held as doubles at a time
OUTLIER: Final = 20.0  # standard deviations of the elements of an outlier column
MOST_INLIER: Final = 5.0  # the others stay below this, and any threshold above it finds no other


def accumulators(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The sums of products in int32. Doubles hold them exactly: none leaves int32."""
    wide_input = x.double()
    step = max(1, MOST_WIDENED // max(1, weight.shape[1]))
    parts = [wide_input @ part.double().t() for part in weight.split(step)]
    return torch.cat([part.to(torch.int32) for part in parts], 1)


def _require(desc: Any, *conditions: bool) -> None:
    four = [four_bits(desc.input_dtype), four_bits(desc.weight_dtype)]
    if (
        any(four)
        or len(desc.input_shape) != 2
        or len(desc.weight_shape) != 2
        or not all(conditions)
    ):
        raise ValueError(f"no torch formula for {desc}")


class MatmulInt8:
    """The sums themselves."""

    def __init__(self, desc: Any) -> None:
        _require(desc, not desc.transpose_input, not desc.transpose_weight)
        self.clamps = desc.output_dtype is planq.DType.INT8

    def __call__(self, given: Operands) -> Results:
        """The sums, clamped for int8."""
        sums = accumulators(given["input"], given["weight"])
        return (sums.clamp(-128, 127).to(torch.int8) if self.clamps else sums,)


class LinearW8A8:
    """Sums, zero points, scales, bias, residual, one rounding a line."""

    def __init__(self, desc: Any) -> None:
        _require(desc, desc.convention is planq.Convention.PLANQ)
        self.output = getattr(torch, desc.output_dtype.value)
        self.compute = torch.float64 if self.output is torch.float64 else torch.float32

    def __call__(self, given: Operands) -> Results:
        """The output."""
        t = self.sums(given).to(self.compute) * given["input_scale"].view(-1, 1)
        return (self.finished(t, given),)

    def sums(self, given: Operands) -> torch.Tensor:
        """The sums without the part of the zero points, modulo 2^32."""
        x, weight = given["input"], given["weight"]
        sums = accumulators(x, weight)
        za, zw = given.get("input_zero_point"), given.get("weight_zero_point")
        if za is not None:
            sums -= za.view(-1, 1) * given["weight_sum"]
        if zw is not None:
            sums -= given["input_sum"].view(-1, 1) * zw
        if za is not None and zw is not None:
            sums += x.shape[1] * za.view(-1, 1) * zw
        return sums

    def finished(self, t: torch.Tensor, given: Operands) -> torch.Tensor:
        """What follows the scales of the rows."""
        t = t * given["weight_scale"]
        for name in ("bias", "residual"):
            if name in given:
                t = t + given[name].to(self.compute)
        return t.to(self.output)


class LinearW8A8Dynamic:
    """The codes and scales of the rows, then the same."""

    def __init__(self, desc: Any) -> None:
        self.layer = LinearW8A8(desc)
        self.quantize = dynamic.DynamicRangeQuantize(
            planq.DynamicRangeQuantizeDescriptor(
                shape=desc.input_shape,
                input_dtype=desc.input_dtype,
                output_dtype=desc.code_dtype,
                scope=desc.input_scope,
                mode=desc.input_mode,
                quotient=desc.quotient,
            )
        )

    def __call__(self, given: Operands) -> Results:
        """The output."""
        names = ("input", "input_scale", "input_zero_point")
        made = dict(zip(names, self.quantize(given), strict=False))
        return self.layer({**given, **made})


class LinearLlmInt8(LinearW8A8):
    """The same with columns of the input that are no codes, in the order of their list."""

    def __init__(self, desc: Any) -> None:
        super().__init__(desc)
        if desc.accumulation is not planq.Accumulation.SEQUENTIAL:
            raise ValueError(f"no torch formula for {desc}")

    def __call__(self, given: Operands) -> Results:
        """The output."""
        t = self.sums(given).to(self.compute) * given["input_scale"].view(-1, 1)
        outlier, index = given["outlier"].float(), given["index"].long()
        for place in range(min(int(given["count"]), len(index))):
            # Exact products of 16 and 8 bits: the sum's rounding is the only one, as in fma.
            t = t + outlier[:, place : place + 1] * given["weight"][:, index[place]].float()
        return (self.finished(t, given),)


class LlmInt8Quantize:
    """Codes of rows over their inliers, and the columns that hold outliers."""

    def __init__(self, desc: Any) -> None:
        if desc.quotient is not planq.Quotient.DIVIDE or len(desc.shape) != 2:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc
        self.names = [name for name, spec in desc.operands().items() if spec.role == "output"]

    def __call__(self, given: Operands) -> Results:
        """Every output, in the order of the descriptor."""
        x = wide(given["input"])
        large = (x.abs() >= self.desc.threshold) & (self.desc.threshold > 0)
        columns = large.any(0).nonzero().flatten()
        listed = columns[: self.desc.capacity]
        largest = torch.where(large, 0.0, x.abs()).amax(1)
        scale = (largest / torch.full_like(largest, 127.0)).clamp(min=torch.finfo(x.dtype).tiny)
        scale = torch.where(largest == 0, 1.0, scale)
        codes = (torch.round(x / scale[:, None]) + 0.0).clamp(-127, 127).to(torch.int8)
        codes[:, listed] = 0
        index = torch.full((self.desc.capacity,), -1, dtype=torch.int32, device=x.device)
        index[: len(listed)] = listed.to(torch.int32)
        outlier = torch.zeros(
            (len(x), self.desc.capacity), dtype=given["input"].dtype, device=x.device
        )
        outlier[:, : len(listed)] = given["input"][:, listed]
        count = torch.tensor([len(columns)], device=x.device)
        found = {"output": codes, "scale": scale, "index": index, "count": count}
        found["outlier"] = outlier
        return tuple(found[name] for name in self.names)


class CodeSum:
    """Sums of codes along the last axis."""

    def __init__(self, desc: Any) -> None:
        if four_bits(desc.input_dtype) or desc.axis not in (-1, len(desc.shape) - 1):
            raise ValueError(f"no torch formula for {desc}")

    def __call__(self, given: Operands) -> Results:
        """The sums."""
        return (given["input"].sum(-1, dtype=torch.int32),)


# --- operands ---------------------------------------------------------------------------------


def complete(operands: Operands, outliers: int | None) -> None:
    """Makes the operands that follow from others: sums of codes, and outlier columns."""
    for side, other in (("input", "weight_zero_point"), ("weight", "input_zero_point")):
        if f"{side}_sum" in operands and other in operands:
            operands[f"{side}_sum"].copy_(operands[side].sum(-1, dtype=torch.int32))
    if outliers is None:
        return
    x = operands["input"]
    places = _columns(x.shape[1], outliers, x.device)
    if "index" in operands and "weight" in operands:
        operands["index"].fill_(-1)[:outliers] = places.to(torch.int32)
        operands["count"].fill_(outliers)
        operands["outlier"].normal_(0.0, OUTLIER)[:, outliers:] = 0
        x[:, places] = 0
    else:
        x.clamp_(-MOST_INLIER, MOST_INLIER)
        x[:, places] *= OUTLIER


def _columns(extent: int, count: int, device: torch.device) -> torch.Tensor:
    """So many columns, in steps that no tile's width divides."""
    return torch.arange(count, device=device) * (extent // max(1, count) - 1)
