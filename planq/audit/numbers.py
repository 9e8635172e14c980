"""Numbers that ask a tensor core questions, in classes with a name, as bits of any format."""

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

FLOOR: Final = -133  # of the exponent that a group of products is aligned to


@dataclass(frozen=True, slots=True)
class Format:
    """How the bits of an element are divided: a sign, an exponent, a mantissa.

    Attributes:
        bits: Of an element.
        mantissa: Bits of the mantissa; the exponent has those between it and the sign.
        bias: The exponent field of 1.
        infinities: Whether the last exponent has an infinity and NaNs. Otherwise it has numbers,
            and one NaN, whose bits are all set.
    """

    bits: int
    mantissa: int
    bias: int
    infinities: bool

    @property
    def storage(self) -> np.dtype[np.unsignedinteger[Any]]:
        """What holds the bits."""
        return np.dtype(f"u{self.bits // 8}")

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        """The last exponent alone: an infinity where there are any."""
        return self.sign - (1 << self.mantissa)

    @property
    def nan(self) -> int:
        """What makes a NaN of any number when it is added by or."""
        return self.infinity | 1 if self.infinities else self.sign - 1

    @property
    def largest(self) -> int:
        """The largest finite number."""
        return (self.infinity if self.infinities else self.nan) - 1

    @property
    def top(self) -> int:
        """The exponent field of the largest finite number."""
        return self.largest >> self.mantissa

    def compose(self, rng: np.random.Generator, shape: Shape, low: int, high: int) -> Bits:
        """Any sign and mantissa, exponent fields from ``low`` to ``high`` as far as there are."""
        field = rng.integers(max(low, 0), min(high, self.top) + 1, shape)
        rest = rng.integers(0, 1 << (self.mantissa + 1), shape)
        sign, mantissa = rest >> self.mantissa, rest & ((1 << self.mantissa) - 1)
        return self._made(sign, field << self.mantissa | mantissa)

    def round(self, values: npt.NDArray[np.float64]) -> Bits:
        """The nearest numbers, to even between two."""
        sizes = np.abs(values)
        exponent = np.frexp(np.maximum(sizes, 2.0 ** (1 - self.bias)))[1] - 1
        # Of one exponent, a number and its bits grow in the same steps, into the next one, too.
        steps = np.rint(np.ldexp(sizes, self.mantissa - exponent)).astype(np.int64)
        return self._made(np.signbit(values), ((exponent + self.bias - 1) << self.mantissa) + steps)

    def _made(self, sign: npt.NDArray[Any], magnitude: npt.NDArray[np.int64]) -> Bits:
        """Of a sign, 0 or 1, and the other bits; the largest number for what is beyond it."""
        bits: Bits = (sign * self.sign | np.minimum(magnitude, self.largest)).astype(self.storage)
        return bits


def _formats() -> dict[str, Format]:
    """Those that tensor cores multiply, of the table that the native layer keeps."""
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
    """Products of either side's halves nearly cancel: the second has the first's magnitudes."""
    x = format_.compose(rng, shape, format_.bias - 3, format_.bias + 3)
    half = shape[1] // 2
    x[:, half : 2 * half] = x[:, :half]
    # Signs of the two sides differ in the second half where this flips those of half the rows.
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
    """Products below the least exponent of an alignment, and zeros of both signs among them.

    Most formats end above it: then they are products of the format's own end.
    """
    last = max(format_.bias + FLOOR // 2, 12)
    x = format_.compose(rng, shape, last - 12, last)
    zero = rng.random(shape) < 0.45
    return np.where(zero, x & format_.sign, x)


def _special(rng: np.random.Generator, shape: Shape, format_: Format) -> Bits:
    """Numbers and zeros; in some rows a NaN or, where there are any, an infinity."""
    x = _wide(rng, shape, format_)
    drawn = rng.random(shape)
    x = np.where(drawn < 0.03, x & format_.sign, x)
    # Few enough for long rows to have sums that are numbers, too.
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
