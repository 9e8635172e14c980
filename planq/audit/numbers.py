"""Numbers of 16 bits that ask a tensor core questions, in classes with a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable

    from planq.dtypes import DType

Bits = npt.NDArray[np.uint16]
Shape = tuple[int, int]

FLOOR = -133  # of the exponent that a group of products is aligned to


@dataclass(frozen=True, slots=True)
class Format:
    """How the bits of an element are divided.

    Attributes:
        mantissa: Bits of the mantissa; the exponent has those between it and the sign.
    """

    mantissa: int

    @property
    def top(self) -> int:
        """The exponent field of infinities and NaNs."""
        return (1 << (15 - self.mantissa)) - 1

    @property
    def bias(self) -> int:
        """The exponent field of 1."""
        return self.top // 2

    def compose(
        self, rng: np.random.Generator, shape: Shape, low: float, high: float
    ) -> npt.NDArray[np.uint16]:
        """Any sign and mantissa, exponent fields from ``low`` to ``high``, both included."""
        first, last = max(int(low), 0), min(int(high), self.top - 1)
        field = rng.integers(min(first, last), last + 1, shape)
        rest = rng.integers(0, 1 << (self.mantissa + 1), shape)
        sign, mantissa = rest >> self.mantissa, rest & ((1 << self.mantissa) - 1)
        return (sign << 15 | field << self.mantissa | mantissa).astype(np.uint16)


FORMATS: Final = {"float16": Format(10), "bfloat16": Format(7)}


def format_of(dtype: DType) -> Format:
    """The format of float16 or bfloat16."""
    return FORMATS[dtype.value]


def _normal(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    values = rng.standard_normal(shape, np.float32)
    if format_.mantissa == FORMATS["float16"].mantissa:
        return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _wide(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    return format_.compose(rng, shape, format_.bias - 24, format_.bias + 14)


def _any_bits(rng: np.random.Generator, shape: Shape, _: Format) -> Bits:
    return rng.integers(0, 1 << 16, shape).astype(np.uint16)


def _cancelling(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    """Products of either side's halves nearly cancel: the second has the first's magnitudes."""
    x = format_.compose(rng, shape, format_.bias - 3, format_.bias + 3)
    half = shape[1] // 2
    x[:, half : 2 * half] = x[:, :half]
    # Signs of the two sides differ in the second half where this flips those of half the rows.
    x[::2, half : 2 * half] ^= 0x8000
    near = rng.random((shape[0], half)) < 0.1
    x[:, half : 2 * half][near] ^= 1
    return x


def _subnormal(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    small = format_.compose(rng, shape, 0, 1)
    large = format_.compose(rng, shape, format_.bias, format_.top - 1)
    return np.where(rng.random(shape) < 0.6, small, large)


def _huge(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    return format_.compose(rng, shape, format_.top - 4, format_.top - 1)


def _floor(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    """Products around the least exponent of an alignment, and zeros of both signs among them."""
    field = format_.bias + FLOOR / 2
    x = format_.compose(rng, shape, field - 4, field + 4)
    zero = rng.random(shape) < 0.45
    return np.where(zero, x & 0x8000, x)


def _special(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    """Numbers, and now and then a zero, an infinity or a NaN."""
    x = _wide(rng, shape, format_)
    infinity = np.uint16(format_.top << format_.mantissa)
    drawn = rng.random(shape)
    x = np.where(drawn < 0.004, (x & 0x8000) | infinity, x)
    x = np.where(drawn > 0.999, x | infinity | 1, x)
    return np.where((drawn > 0.9) & (drawn < 0.93), x & 0x8000, x)


CLASSES: Final[dict[str, Callable[[np.random.Generator, Shape, Format], Bits]]] = {
    "normal": _normal,
    "wide": _wide,
    "bits": _any_bits,
    "cancelling": _cancelling,
    "subnormal": _subnormal,
    "huge": _huge,
    "floor": _floor,
    "special": _special,
}
