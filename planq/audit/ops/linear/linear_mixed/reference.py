"""`linear_mixed` in NumPy: codes or another reference's weights, and sums of the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planq.audit.ops.linear.float_layers import CodedLayer, scaled
from planq.audit.promises import Sums
from planq.audit.reference.formats import FLOATS, Array, Arrays


@dataclass(frozen=True)
class MixedProblem(CodedLayer):
    """One linear layer of weights of 8 bits, or of int4."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, int]
    input_dtype: str = "bfloat16"
    output_dtype: str = "float32"
    code_dtype: str = "int8"
    weight_dtype: str | None = None
    weight_scope: tuple[Any, ...] = ("channel", 0)
    weight_mode: str = "symmetric"
    nibble_order: str = "low_first"
    weight_layout: str = "row_major"
    accumulation: str = "tensor_sm90"
    bias_dtype: str | None = None
    residual_dtype: str | None = None
    scale_dtype: str = "float32"
    zero_point_dtype: str = "int32"

    def numbers(self, given: Arrays) -> Array:
        """w: of channels the codes themselves."""
        if self.weight_scope[0] == "group":
            return super().numbers(given)
        return self.code_values(given["weight"]).astype(FLOATS[self.values].dtype)

    @property
    def scales_sums(self) -> bool:
        """Whether scales of channels multiply whole sums."""
        return self.weight_scope[0] != "group" and not self.has_runs

    def exact_products(self, given: Arrays, least: float) -> Sums:
        """Under the scales of channels."""
        made = super().exact_products(given, least)
        return scaled(made, self.scale_values(given)) if self.scales_sums else made

    def sums(self, given: Arrays) -> Array:
        """t, which meets the scales of channels."""
        t = super().sums(given)
        return t * self.scale_values(given) if self.scales_sums else t
