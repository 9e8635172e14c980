"""Random inputs that exercise a tensor core: named classes of numbers, as bits of any format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from planq import _core

if TYPE_CHECKING:
    from collections.abc import Callable

Bits = npt.NDArray[np.unsignedinteger[Any]]
Shape = tuple[int, ...]

FLOOR: Final = -133  # the least exponent that tensor cores align a group of products to


@dataclass(frozen=True, slots=True)
class Format:
    """How the bits of an element are divided: a sign, an exponent, a mantissa.

    Attributes:
        bits: Bits of an element.
        mantissa: Bits of the mantissa. The exponent field lies between mantissa and sign.
        bias: The exponent bias: the exponent field of 1.0.
        infinities: Whether the largest exponent field encodes infinity and NaNs. Otherwise it
            encodes numbers, and a single NaN whose bits (but the sign) are all set.
    """

    bits: int
    mantissa: int
    bias: int
    infinities: bool

    @property
    def storage(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The unsigned integer type that holds the bits of an element."""
        return np.dtype(f"u{self.bits // 8}")

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        """The largest exponent field with mantissa 0: infinity, in formats that have it."""
        return self.sign - (1 << self.mantissa)

    @property
    def nan(self) -> int:
        """The bits that turn any number into a NaN when they are or-ed into it."""
        return self.infinity | 1 if self.infinities else self.sign - 1

    @property
    def largest(self) -> int:
        """The bits of the largest finite number."""
        return (self.infinity if self.infinities else self.nan) - 1

    @property
    def top(self) -> int:
        """The exponent field of the largest finite number."""
        return self.largest >> self.mantissa

    def compose(self, rng: np.random.Generator, shape: Shape, low: int, high: int) -> Bits:
        """Random sign and mantissa; exponent fields from ``low`` to ``high``, clipped to finite."""
        field = rng.integers(max(low, 0), min(high, self.top) + 1, shape)
        rest = rng.integers(0, 1 << (self.mantissa + 1), shape)
        sign, mantissa = rest >> self.mantissa, rest & ((1 << self.mantissa) - 1)
        return self._made(sign, field << self.mantissa | mantissa)

    def round(self, values: npt.NDArray[np.float64]) -> Bits:
        """The nearest numbers of the format; ties go to even."""
        sizes = np.abs(values)
        exponent = np.frexp(np.maximum(sizes, 2.0 ** (1 - self.bias)))[1] - 1
        # Adding to the bits may carry into the exponent field: that is the next larger number.
        steps = np.rint(np.ldexp(sizes, self.mantissa - exponent)).astype(np.int64)
        return self._made(np.signbit(values), ((exponent + self.bias - 1) << self.mantissa) + steps)

    def _made(self, sign: npt.NDArray[Any], magnitude: npt.NDArray[np.int64]) -> Bits:
        """The bits of a sign (0 or 1) and a magnitude, which is clamped to the largest number."""
        bits: Bits = (sign * self.sign | np.minimum(magnitude, self.largest)).astype(self.storage)
        return bits


def _formats() -> dict[str, Format]:
    """The formats that tensor cores multiply, read from the native table of formats."""
    multiplied = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    return {
        name: Format(bits, mantissa, bias, infinities)
        for name, _, bits, _, _, mantissa, bias, _, _, infinities, _ in _core.formats()
        if name in multiplied
    }


FORMATS: Final = _formats()


def _normal(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    return format_.round(rng.standard_normal(shape))


def _wide(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    return format_.compose(rng, shape, format_.bias - 24, format_.bias + 14)


def _any_bits(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    return rng.integers(0, 1 << format_.bits, shape).astype(format_.storage)


def _cancelling(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    """The products of a row's second half nearly cancel those of its first half.

    Both halves have the same magnitudes but for a few last bits.
    """
    x = format_.compose(rng, shape, format_.bias - 3, format_.bias + 3)
    half = shape[1] // 2
    x[:, half : 2 * half] = x[:, :half]
    # Both operands flip every second row. A product changes its sign where one of them did.
    x[::2, half : 2 * half] ^= format_.storage.type(format_.sign)
    near = rng.random((shape[0], half)) < 0.1
    x[:, half : 2 * half][near] ^= 1
    return x


def _subnormal(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    small = format_.compose(rng, shape, 0, 1)
    large = format_.compose(rng, shape, format_.bias, format_.top)
    return np.where(rng.random(shape) < 0.6, small, large)


def _huge(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    return format_.compose(rng, shape, format_.top - 3, format_.top)


def _floor(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    """Products below the least alignment exponent ``FLOOR``, and zeros of both signs.

    Most formats cannot go that low. Theirs are the smallest products that they have.
    """
    last = max(format_.bias + FLOOR // 2, 12)
    x = format_.compose(rng, shape, last - 12, last)
    zero = rng.random(shape) < 0.45
    return np.where(zero, x & format_.sign, x)


def _special(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    """Numbers and zeros; some rows have a NaN, or an infinity in formats that have it."""
    x = _wide(rng, shape, format_)
    drawn = rng.random(shape)
    x = np.where(drawn < 0.03, x & format_.sign, x)
    # So few per row that many sums stay finite, however long the rows are.
    drawn = rng.random(shape) * shape[-1]
    x = np.where(drawn < 0.25, x | format_.nan, x)
    if format_.infinities:
        x = np.where((drawn > 0.25) & (drawn < 0.75), (x & format_.sign) | format_.infinity, x)
    return x


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
