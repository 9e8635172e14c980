"""Products of codes as torch operations."""

from __future__ import annotations

from typing import Any, Final

import torch

import planq
from harness.segments import Operands, unpacked

# torch multiplies int8 matrices on a GPU only if they have more rows than this, and multiples of 8.
FEWEST_ROWS: Final = 17
INT8: Final = planq.DType.INT8


class _Product:
    """What products share: codes, and their sums in int32."""

    def __init__(self, desc: Any) -> None:
        if len(desc.input_shape) != 2 or getattr(desc, "transpose_input", False):
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc
        self.turned = getattr(desc, "transpose_weight", False)

    def codes(self, given: Operands, name: str) -> torch.Tensor:
        """The integers of a side."""
        dtype, stored = getattr(self.desc, f"{name}_dtype"), given[name]
        if dtype not in (planq.DType.INT4, planq.DType.UINT4):
            return stored
        codes = unpacked(stored, dtype)
        return codes.view(torch.int8) if codes.dtype is torch.uint8 else codes

    def sums(self, given: Operands) -> torch.Tensor:
        """The product. float64 holds every sum of other codes than int8 exactly."""
        a, w = self.codes(given, "input"), self.codes(given, "weight")
        w = w if self.turned else w.t()
        if a.dtype is not torch.int8 or w.dtype is not torch.int8:
            return (a.double() @ w.double()).to(torch.int32)
        rows = a.shape[0]
        if a.is_cuda and rows < FEWEST_ROWS:
            a = torch.nn.functional.pad(a, (0, 0, 0, 32 - rows))
        return torch._int_mm(a, w)[:rows]


class Matmul(_Product):
    """The sums themselves."""

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The sums, or the nearest int8."""
        sums = self.sums(given)
        if self.desc.output_dtype is INT8:
            sums = sums.clamp(-128, 127).to(torch.int8)
        return (sums,)


class Linear(_Product):
    """Sums under their scales."""

    def __init__(self, desc: Any) -> None:
        super().__init__(desc)
        if desc.convention is not planq.Convention.PLANQ:
            raise ValueError(f"no torch formula for {desc}")

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """One rounding after the other."""
        sums = self.sums(given)
        zero = given.get("input_zero_point")
        if zero is not None:
            sums = sums - zero.view(-1, 1) * given["weight_sum"]
        other = given.get("weight_zero_point")
        if other is not None:
            sums = sums - other * given["input_sum"].view(-1, 1)
        if zero is not None and other is not None:
            sums = sums + self.desc.input_shape[-1] * zero.view(-1, 1) * other
        values = sums.to(
            torch.float64 if self.desc.output_dtype is planq.DType.FLOAT64 else torch.float32
        )
        values = values * given["input_scale"].view(-1, 1) * given["weight_scale"]
        for name in ("bias", "residual"):
            if name in given:
                values = values + given[name].to(values.dtype)
        return (values.to(getattr(torch, self.desc.output_dtype.value)),)


class CodeSum:
    """Sums of codes that have a byte each."""

    def __init__(self, desc: Any) -> None:
        if desc.input_dtype not in (INT8, planq.DType.UINT8):
            raise ValueError(f"no torch formula for {desc}")
        self.axis = desc.axis

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The sums."""
        return (given["input"].sum(self.axis, dtype=torch.int32),)
