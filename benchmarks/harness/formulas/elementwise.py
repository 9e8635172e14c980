"""The elementwise and activation families as torch operations, where torch has their bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import functional

import planq
from harness.formulas.segments import Operands

Function = Callable[[torch.Tensor], torch.Tensor]


class Add:
    """Sums, whose products are rounded first."""

    def __init__(self, desc: Any) -> None:
        self.output = getattr(torch, desc.output_dtype.value)

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """Element by element, in float32."""
        alpha = torch.tensor(given.get("alpha", 1.0), dtype=torch.float32).item()
        return ((given["input"].float() * alpha + given["other"].float()).to(self.output),)


def sides(desc: Any, given: Operands) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The gate and the up side."""
    x = given["input"]
    if not desc.gated:
        return x, None
    if desc.layout is planq.GateLayout.SEPARATE:
        return x, given["up"]
    if desc.layout is planq.GateLayout.INTERLEAVED:
        return x[..., 0::2], x[..., 1::2]
    first, second = x.chunk(2, -1)
    return (first, second) if desc.layout is planq.GateLayout.HALVES else (second, first)


class Activation:
    """Those of ReLU: torch has other bits of the other functions."""

    def __init__(self, desc: Any) -> None:
        self.desc, self.output = desc, getattr(torch, desc.output_dtype.value)
        if desc.function.value not in ("relu", "relu_squared") or self.output.itemsize == 1:
            raise ValueError(f"no torch formula for {desc}")

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """In float32."""
        gate, up = sides(self.desc, given)
        value = functional.relu(gate.float())
        if self.desc.function is planq.ActivationFunction.RELU_SQUARED:
            value = value * value
        return ((value if up is None else value * up.float()).to(self.output),)


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


def _relu_squared(x: torch.Tensor) -> torch.Tensor:
    return functional.relu(x).square()


# torch's own, whose bits are others.
FUNCTIONS: Final[dict[str, Function]] = {
    "silu": functional.silu,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": functional.gelu,
    "relu": functional.relu,
    "relu_squared": _relu_squared,
    "erf": torch.special.erf,
    **{name: getattr(torch, name) for name in ("sigmoid", "exp", "exp2", "log", "log2")},
    **{name: getattr(torch, name) for name in ("rsqrt", "tanh")},
}


def of_torch(desc: Any) -> Callable[[Operands], tuple[torch.Tensor]]:
    """The same by torch's own operations: a gated layer is two of them, the first rounded."""

    def compute(given: Operands) -> tuple[torch.Tensor]:
        if desc.operator == "add":
            return (torch.add(given["other"], given["input"], alpha=given.get("alpha", 1.0)),)
        if desc.operator == "unary":
            return (FUNCTIONS[desc.function.value](given["input"]),)
        gate, up = sides(desc, given)
        value = FUNCTIONS[desc.function.value](gate)
        return (value if up is None else value * up,)

    return compute
