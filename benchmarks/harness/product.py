"""Matrix products as problems: what is multiplied, and the floor that a machine sets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


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
