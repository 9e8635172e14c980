"""Matrix products as problems: what is multiplied, and the floor that a machine sets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import planq

# Of the operations a second that products of 8 bits reach on paper: of 16 bits half; of float32,
# which has no tensor cores' sums, what the data sheets of sm_90 say beside it.
LESS: Final = {planq.MathPrecision.F32: 67 / 1979}
HALF: Final = (planq.MathPrecision.TENSOR_CORE_F16, planq.MathPrecision.TENSOR_CORE_BF16)


@dataclass(frozen=True, slots=True)
class Product:
    """``y[m, n] = sum over k of input[m, k] * weight[n, k]``."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k


def product_of(desc: Any) -> Product | None:
    """The product that a descriptor asks for, if it asks for one with a single weight."""
    weight = getattr(desc, "weight_shape", None)
    if weight is None or not hasattr(desc, "input_shape"):
        return None
    turned = [getattr(desc, f"transpose_{side}", False) for side in ("input", "weight")]
    if any(turned) or len(weight) != 2:
        raise ValueError(f"neither transposed nor batched products are measured: {desc}")
    return Product(math.prod(desc.input_shape[:-1]), *weight)


def share_of_peak(math_of: planq.MathPrecision) -> float:
    """How much of the peak of 8-bit products is a product's whose factors meet like this."""
    return LESS.get(math_of, 0.5 if math_of in HALF else 1.0)
