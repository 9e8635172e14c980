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


SIDES: Final = ("input", "weight")


@dataclass(frozen=True, slots=True)
class Product:
    """``y[m, n] = sum over k of input[m, k] * weight[n, k]``.

    ``transposed`` are the sides that memory holds as ``[k, m]`` and ``[k, n]``. With ``experts``
    there are so many weights, and each row of the input meets one of them.
    """

    m: int
    n: int
    k: int
    transposed: tuple[str, ...] = ()
    experts: int = 0

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.m * self.n * self.k

    def row_axis(self, side: str) -> int:
        """Of a side in memory: that of m or n."""
        return 1 if side in self.transposed else 0

    def shape(self, side: str, rows: int) -> list[int]:
        """Of so many rows of a side in memory."""
        shape = [self.k, rows] if side in self.transposed else [rows, self.k]
        return [self.experts, *shape] if self.experts and side == "weight" else shape


def product_of(desc: Any) -> Product | None:
    """The product that a descriptor asks for, if it asks for one."""
    weight = getattr(desc, "weight_shape", None)
    if weight is None or not hasattr(desc, "input_shape"):
        return None
    if desc.operator == "grouped_linear":
        return Product(desc.input_shape[0], *weight[1:], experts=weight[0])
    transposed = transposed_sides(desc)
    if len(weight) != 2 or ("input" in transposed and len(desc.input_shape) != 2):
        raise ValueError(f"no batched products are measured: {desc}")
    n, k = reversed(weight) if "weight" in transposed else weight
    rows = desc.input_shape[1:] if "input" in transposed else desc.input_shape[:-1]
    return Product(math.prod(rows), n, k, transposed)


def transposed_sides(desc: Any) -> tuple[str, ...]:
    """Those of a product's two sides that lie transposed in memory."""
    return tuple(side for side in SIDES if getattr(desc, f"transpose_{side}", False))


def share_of_peak(math_of: planq.MathPrecision) -> float:
    """How much of the peak of 8-bit products is a product's whose factors meet like this."""
    return LESS.get(math_of, 0.5 if math_of in HALF else 1.0)
