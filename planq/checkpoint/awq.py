"""AWQ: scales of columns, by which codes err less where a layer's inputs are large.

Lin et al., arXiv 2306.00978. Layers that share an input have their columns multiplied by scales,
and what makes the input is divided by them, so the network computes what it computed. The codes of
the multiplied weights restore the columns of large inputs better.

**Powers of two.** The paper takes any scale. Here each is a power of two, since floating point
multiplies by these exactly. So the scaled network makes the same bits, and ``planq verify`` needs
no tolerance. `fitted` lowers an exponent where some type does not take it.

**The formula.** X has the rows that the layers were fed, and m the mean magnitudes of its columns,
as `planq.checkpoint.layer_inputs` has them. ``l_j`` is the binary logarithm of ``m_j``, cut off
after 16 fractional digits: ``m_j = 2^i y`` with y in [1, 2), and digit after digit y is squared
and rounded to float64, and halved if it has reached 2, which is the digit 1. Of the 21 exponents
``a = t / 20``, t from 0 to 20, each has the scales::

    s_j = 2^rne(a * (l_j - least l))

A column that is 0 in every row has the least ``l``. The error of an exponent is that of all outputs
of all layers of the group, ``sum (e X^T)^2 = sum e H e^T`` over the rows e of
``Q(w s) / s - w``: w is the weight, Q makes codes and restores them, in the weight's own type. The
least error wins, and among equal ones the least a.

**The sum.** H is `Hessian.gram`, n by n, and ``b = floor((53 - ceil(log2 n)) / 2)``. Each column of
H and each row e become integers, ``rne(x * 2^(b - p))``, p the least integer for which their
magnitudes are below ``2^p``. Then ``e H`` is an exact sum of integers of at most 2^53. Its elements
are multiplied by those of e. The products of a row are added in one order: those of the second half
to those of the first half, and so on with what remains; of an odd number the first half has one
more. The sums of all rows are added by `math.fsum`, which rounds once.

**The same bytes everywhere.** Plans are BIT_EXACT. The rest is IEEE float64 on single elements, one
rounding each, and sums that are exact or have the order above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import planq
from planq.checkpoint.groups import rounded
from planq.checkpoint.quality import widened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Float64 = npt.NDArray[np.float64]
Exponents = npt.NDArray[np.int64]

STEPS = 20
_DIGITS = 16
_BITS = 53
_BAND = 512  # rows of a weight at a time

_quietly = np.errstate(all="ignore")  # what overflows is refused where it is fitted


def exponents(means: Float64) -> Iterator[tuple[float, Exponents]]:
    """Yields each a of the grid, from 0 up, with the binary logarithms of its scales.

    Args:
        means: The mean magnitudes of the columns of the inputs; not all are 0.
    """
    known = means > 0
    logarithms = _binary_logarithms(np.where(known, means, 1.0))
    least = logarithms[known].min()
    above = np.where(known, logarithms - least, 0.0)
    for step in range(STEPS + 1):
        a = step / STEPS
        yield a, np.rint(a * above).astype(np.int64)


def _binary_logarithms(values: Float64) -> Float64:
    """Returns binary logarithms of positive numbers, cut off after 16 digits."""
    parts, found = np.frexp(values)
    parts, logarithms = parts * 2, found - 1.0
    for digit in range(1, _DIGITS + 1):
        parts = parts * parts
        over = parts >= 2
        parts = np.where(over, parts / 2, parts)
        logarithms += np.where(over, 2.0**-digit, 0.0)
    return logarithms


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor whose channels are scaled: their elements stand along axis 0.

    Attributes:
        values: Its elements, as float64.
        dtype: Their type.
        sign: 1 if they are multiplied by scales, -1 if they are divided by them.
        shift: What a network adds to them in float32, as Gemma adds 1 to a norm's weight, before it
            uses them; else 0.
    """

    values: Float64
    dtype: planq.DType
    sign: int
    shift: float = 0.0

    def takes(self, channels: npt.NDArray[np.intp], powers: Exponents) -> npt.NDArray[np.bool_]:
        """Whether each of these channels takes its scale exactly."""
        values = self.values[channels]
        by = self.sign * powers.reshape(-1, *(1,) * (values.ndim - 1))
        made = scaled(values, by, self.dtype, self.shift)
        if self.shift:
            made, values = (_shifted(each, self.shift) for each in (made, values))
        exact = np.isfinite(made) & (np.ldexp(made, -by) == values)
        kept: npt.NDArray[np.bool_] = exact.reshape(len(channels), -1).all(axis=1)
        return kept


@_quietly
def scaled(values: Float64, powers: Exponents, dtype: planq.DType, shift: float = 0.0) -> Float64:
    """Returns ``x 2^p`` of each element, in its type; with a shift h, ``fl(h + x) 2^p - h``.

    Where p is 0, x stays as it is.

    Args:
        values: The elements x.
        powers: The exponents p, of a shape that broadcasts.
        dtype: The type of the elements.
        shift: The shift h; ``fl`` rounds to float32.
    """
    made = np.ldexp(_shifted(values, shift), powers) - shift if shift else np.ldexp(values, powers)
    return np.where(powers == 0, values, widened(rounded(made, dtype), dtype))


def _shifted(values: Float64, shift: float) -> Float64:
    """What a network makes of values to which it adds a number in float32."""
    added: npt.NDArray[np.float32] = values.astype(np.float32) + np.float32(shift)
    return added.astype(np.float64)


@_quietly
def fitted(powers: Exponents, parts: Sequence[Part]) -> Exponents:
    """Returns exponents that every part takes exactly: the wanted ones, or the next lower.

    A part takes a scale if each number of the channel, times or divided by the scale, is a number
    of its type. Every part takes 1.

    Args:
        powers: The exponents that are wanted, from 0 up; one for each channel.
        parts: The tensors that are multiplied or divided.
    """
    found = powers.copy()
    left = np.flatnonzero(found)
    while left.size:
        kept = np.ones(len(left), bool)
        for part in parts:
            kept &= part.takes(left, found[left])
        left = left[~kept]
        found[left] -= 1
        left = left[found[left] > 0]
    return found


class Curvature:
    """What errors of a weight cost in the outputs on given inputs.

    Args:
        gram: ``H = X^T X`` of the inputs.
    """

    def __init__(self, gram: Float64) -> None:
        self._bits = (_BITS - max(len(gram) - 1, 0).bit_length()) // 2
        self._gram, self._ends = _whole(gram, self._bits, axis=0)

    @_quietly
    def energies(self, rows: Float64) -> list[float]:
        """Returns ``e H e^T`` of each row e of a matrix."""
        found: list[float] = []
        for top in range(0, len(rows), _BAND):
            band = rows[top : top + _BAND]
            integers, ends = _whole(band, self._bits, axis=1)
            products = np.ldexp(integers @ self._gram, ends + self._ends - 2 * self._bits)
            found += _row_sums(products * band).tolist()
        return found


def _whole(values: Float64, bits: int, axis: int) -> tuple[Float64, Any]:
    """Returns integers of so many bits along an axis, and the exponents of their full scales."""
    _, ends = np.frexp(np.abs(values).max(axis=axis, keepdims=True, initial=0.0))
    integers = np.ldexp(values, bits - ends)
    return np.rint(integers, out=integers), ends


def _row_sums(values: Float64) -> Float64:
    """Adds the elements of each row, the second half to the first half until one is left."""
    while (width := values.shape[1]) > 1:
        half = (width + 1) // 2
        part = values[:, :half].copy()
        part[:, : width - half] += values[:, half:]
        values = part
    sums: Float64 = values.sum(axis=1)
    return sums


def total(energies: Sequence[Sequence[float]]) -> float:
    """Returns the sum over the rows of all layers, rounded once; NaN if there is no such number."""
    try:
        return math.fsum(energy for each in energies for energy in each)
    except (OverflowError, ValueError):  # a sum beyond float64, infinities of both signs
        return math.nan
