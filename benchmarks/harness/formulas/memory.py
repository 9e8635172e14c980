"""The memory family as torch operations."""

from __future__ import annotations

from typing import Any

import torch

from harness.formulas.segments import Operands


class Fill:
    """One number, in types that torch fills."""

    def __init__(self, desc: Any) -> None:
        if desc.output_dtype.value.startswith("float8"):
            raise ValueError(f"no torch formula for {desc}")

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """Everywhere."""
        return (torch.full_like(given["output"], given["value"]),)


class Multiply:
    """Products of floats, which torch rounds as planq does."""

    def __init__(self, desc: Any) -> None:
        if desc.input_dtype not in ("float16", "bfloat16", "float32", "float64"):
            raise ValueError(f"no torch formula for {desc}")

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """Element by element."""
        return (given["input"] * given["other"],)


class PipelineCopy:
    """A copy."""

    def __init__(self, desc: Any) -> None:
        self.desc = desc

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The same bytes."""
        return (given["input"].clone(),)
