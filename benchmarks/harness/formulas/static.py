"""The elementwise affine operators as torch operations, for elements without special values."""

from __future__ import annotations

from typing import Any

import torch

import planq
from harness.formulas.segments import (
    Operands,
    codes_of,
    four_bits,
    segmented,
    shifted,
    unpacked,
    wide,
)
from planq.audit.reference import philox


class Static:
    """What they share: elements and parameters in shapes that broadcast."""

    def __init__(self, desc: Any) -> None:
        divides = getattr(desc, "quotient", planq.Quotient.DIVIDE) is planq.Quotient.DIVIDE
        order = getattr(desc, "nibble_order", planq.NibbleOrder.LOW_FIRST)
        if not divides or order is not planq.NibbleOrder.LOW_FIRST:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc
        self.shape, self.aligned = segmented(desc.scope, desc.shape)

    def elements(self, given: Operands, name: str = "input") -> torch.Tensor:
        """Elements in the compute type."""
        return wide(given[name]).view(self.shape)

    def scale(self, given: Operands) -> torch.Tensor:
        """The scales."""
        scale: torch.Tensor = given["scale"].view(self.aligned)
        return scale

    def zero_point(self, given: Operands) -> torch.Tensor | None:
        """The zero points, if there are any."""
        found: torch.Tensor | None = given.get("zero_point")
        return None if found is None else found.view(self.aligned)

    def steps(self, codes: torch.Tensor, given: Operands) -> torch.Tensor:
        """``scale * (code - zero_point)``."""
        zero_point = self.zero_point(given)
        return self.scale(given) * (codes if zero_point is None else codes - zero_point)

    def inside(self, given: Operands) -> torch.Tensor:
        """Where the code before clamping is one."""
        code = shifted(self.elements(given) / self.scale(given), self.zero_point(given))
        inside: torch.Tensor = (code >= self.desc.q_min) & (code <= self.desc.q_max)
        return inside

    def result(self, values: torch.Tensor, dtype: planq.DType) -> tuple[torch.Tensor]:
        """The one result, in its type."""
        return (values.to(getattr(torch, dtype.value)).reshape(self.desc.shape),)


class Quantize(Static):
    """Codes."""

    def __init__(self, desc: Any) -> None:
        super().__init__(desc)
        self.stored = desc.operands()["output"].shape

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The codes as stored."""
        quotient = self.elements(given) / self.scale(given)
        codes = codes_of(self.desc, quotient, self.zero_point(given))
        return (codes.reshape(self.stored),)


class Dequantize(Static):
    """Values of codes, and of the accumulators of a product."""

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The values."""
        codes, kind = given["input"], self.desc.input_dtype
        if four_bits(kind):
            codes = unpacked(codes, kind)
        elif kind.value.startswith("float8"):
            codes = codes.view(getattr(torch, kind.value))
        values = self.steps(codes.to(given["scale"].dtype).view(self.shape), given)
        for name, combine in (("column_scale", torch.mul), ("bias", torch.add)):
            if name in given:
                values = combine(values, given[name].to(values.dtype))
        return self.result(values, self.desc.output_dtype)


class FakeQuantize(Static):
    """Both, one after the other."""

    def __init__(self, desc: Any) -> None:
        super().__init__(desc)
        if desc.dynamic:
            raise ValueError(f"no torch formula for {desc}")

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The values."""
        quotient = self.elements(given) / self.scale(given)
        if self.desc.rounding is planq.Rounding.STOCHASTIC:
            drawn = _uniform(given["seed"], given["offset"], self.desc.shape)
            quotient = torch.floor(quotient + drawn.to(quotient).view(self.shape))
        code = shifted(quotient, self.zero_point(given)).clamp(self.desc.q_min, self.desc.q_max)
        return self.result(self.steps(code, given), self.desc.input_dtype)


def _uniform(seed: int, offset: int, shape: tuple[int, ...]) -> torch.Tensor:
    """The uniform numbers of the tests' reference."""
    return torch.from_numpy(philox.uniform(seed, offset, shape))


class QuantizeBackward(Static):
    """The gradient of integer codes."""

    def __init__(self, desc: Any) -> None:
        super().__init__(desc)
        if desc.output_dtype.value.startswith("float8"):
            raise ValueError(f"no torch formula for {desc}")

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The gradient of the elements."""
        gradient = self.elements(given, "grad_output") / self.scale(given)
        masked = torch.where(self.inside(given), gradient, 0.0)
        return self.result(masked, self.desc.input_dtype)


class DequantizeBackward(Static):
    """The gradient of codes as real numbers."""

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The gradient of the codes."""
        gradient = self.elements(given, "grad_output") * self.scale(given)
        return self.result(gradient, self.desc.output_dtype)


class FakeQuantizeBackward(Static):
    """The gradient where nothing was clamped."""

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The gradient of the elements."""
        gradient = given["grad_output"].view(self.shape)
        return self.result(torch.where(self.inside(given), gradient, 0.0), self.desc.input_dtype)
