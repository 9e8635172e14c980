"""Codebooks: the values that the codes of the codebook operators stand for, as NumPy arrays.

A code is an index into one of these tables. The maps (:func:`dynamic`, :func:`linear`,
:func:`normal`, :func:`fp8`, :func:`quantile`) ascend. They may be given to any operator of the
family as its ``codebook`` operand, with ``planq.Codebook.GIVEN``: 2 to 256 values, at most 16 for
4-bit codes. The 4-bit tables (:func:`nf4`, :func:`fp4`, :func:`int4`, :func:`af4`) and
``dynamic()`` are also compiled in, and chosen by name. :func:`fp4`, :func:`int4` and :func:`af4` do
not ascend: quantizing takes them by name alone, dequantizing also as a ``codebook``.

They are the maps of bitsandbytes without its padding. A map of ``total_bits`` has at most
``2 ** total_bits`` entries here; bitsandbytes adds zeros up to 256 entries. So below 8 bits, the
codes differ from those of bitsandbytes, and the values do not. A file holds its own map
(:class:`planq.QuantState`), and is read with that one.
"""

from __future__ import annotations

import operator
from statistics import NormalDist
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planq.errors import ArgumentError

__all__ = [
    "af4",
    "dynamic",
    "fp4",
    "fp8",
    "int4",
    "linear",
    "nf4",
    "normal",
    "quantile",
    "validate",
]

Values: TypeAlias = npt.NDArray[np.float32]

_FEWEST: Final = 2
_MOST: Final = 256


def dynamic(signed: bool = True, max_exponent_bits: int = 7, total_bits: int = 8) -> Values:
    """The dynamic map: cells that halve in number from decade to decade, for values of all sizes.

    When to use:
        8-bit weights and optimizer states; the signed map of 8 bits is the default of bitsandbytes,
        and what planq codes nested statistics with.

    Formula:
        With ``n = total_bits - 1`` and ``e = max_exponent_bits``, decade ``i = 0 ... e - 1`` spans
        ``10^(i - e + 1) * [0.1, 1]`` in ``2^(n - e + i)`` equal cells (twice as many if unsigned),
        and the map holds the middle of each; where ``e < n``, also those of ``2^(n - e) - 1`` cells
        of ``[0.1, 1]``; if signed, all of them negated; and 0 and 1.

        So -1 is not in the map: the lowest value of the default is -0.99296875.

    Exactness:
        The edges of cells are ``fl(start + step * i)`` in the lower half of the range and
        ``fl(end - step * j)`` in the upper half, with ``j`` counted from the end. Each is rounded
        once, as by a fused multiply-add. Middles and products are float32.
        These are the bits of ``bitsandbytes.functional.create_dynamic_map`` where PyTorch's
        ``linspace`` fuses (x86 with AVX2 or AVX-512). Where it does not, up to a sixth of
        bitsandbytes' own values lie 1 or 2 units in the last place beside these.

    Args:
        signed: Whether the map has negative values.
        max_exponent_bits: The number of decades; the lowest begins at ``10^-max_exponent_bits``.
        total_bits: 2 to 8: the map has ``2 ** total_bits`` values.

    Returns:
        The values in float32, ascending, of shape ``(2 ** total_bits,)``. bitsandbytes adds zeros
        up to 256, which are left out here.

    Raises:
        ArgumentError: ``total_bits`` outside of 2 to 8; ``max_exponent_bits`` outside of 1 to
            ``total_bits - 1`` (exactly that if unsigned: only then is there a value for each code).

    Source:
        bitsandbytes ``create_dynamic_map``; Dettmers, "8-Bit Approximations for Parallelism in Deep
        Learning" (arXiv 1511.04561).
    """
    bits = _integer("total_bits", total_bits, 2, 8)
    lowest = 1 if signed else bits - 1
    decades = _integer("max_exponent_bits", max_exponent_bits, lowest, bits - 1)
    spare = bits - 1 - decades
    cells = [2 ** (i + spare) * (1 if signed else 2) for i in range(decades)]
    means = [_middles(n) * np.float32(10.0 ** (i - decades + 1)) for i, n in enumerate(cells)]
    if spare:
        means.append(_middles(2**spare - 1))
    parts = [*means, *(-m for m in means)] if signed else means
    return np.sort(np.concatenate([np.array([0, 1], np.float32), *parts]))


def linear(signed: bool = True, total_bits: int = 8, add_zero: bool = True) -> Values:
    """The linear map: equal steps from -1 (or 0) to 1.

    Formula:
        Unsigned: ``2^total_bits`` values in equal steps from 0 to 1. Signed: one value less, in
        equal steps from -1 to 1, and 0 a second time in the middle, so that all codes have a value
        and zero is exact; without ``add_zero``, ``2^total_bits`` values, among them no zero.

    Exactness:
        As in :func:`dynamic`, each value is rounded once. Signed maps are antisymmetric to the bit.

        The bits are those of ``bitsandbytes.functional.create_linear_map``, but for three things.
        The middle of its signed maps is a rounding error (3.7e-9 with 8 bits); here it is 0. Its
        maps below 8 bits have their padding zeros inside; so the unsigned and most of the signed
        ones do not ascend, and a search goes wrong. Here they ascend. Below 8 bits, it adds zeros
        even without ``add_zero``; here ``add_zero`` decides.

    Args:
        signed: Whether the map has negative values.
        total_bits: 2 to 8: the map has ``2 ** total_bits`` values.
        add_zero: Whether a signed map has an exact 0; an unsigned map always begins with 0.

    Returns:
        The values, ascending.

    Raises:
        ArgumentError: ``total_bits`` outside of 2 to 8.

    Source:
        bitsandbytes ``create_linear_map``.
    """
    count = 2 ** _integer("total_bits", total_bits, 2, 8)
    if not signed:
        return _steps(0, 1, count)
    if not add_zero:
        return _steps(-1, 1, count)
    values, middle = _steps(-1, 1, count - 1), count // 2 - 1
    values[middle] = 0
    return np.insert(values, middle, np.float32(0))


def normal(offset: float = 0.9677083, use_extra_value: bool = True) -> Values:
    """The normal map: codes that normally distributed numbers use about equally often.

    Formula:
        With Φ⁻¹ the inverse of the standard normal distribution function: ``Φ⁻¹(p)`` for 8
        probabilities ``p`` in equal steps from ``offset`` towards 0.5 (7 without
        ``use_extra_value``), ``-Φ⁻¹(p)`` for 7 such, and 0; all divided by the largest.

    Exactness:
        Probabilities are float32, each rounded once as in :func:`dynamic`; Φ⁻¹ is that of
        ``statistics.NormalDist``, in float64 and rounded to float32; the quotient is float32.
        These are the bits of ``bitsandbytes.functional.create_normal_map`` (whose Φ⁻¹ is SciPy's)
        without its zeros, and with the defaults those of :func:`nf4`.

    Args:
        offset: The outermost probability, above 0.5 and below 1.
        use_extra_value: Whether there is one positive value more than negative ones.

    Returns:
        16 values, ascending; 15 without ``use_extra_value``.

    Raises:
        ArgumentError: ``offset`` outside of the open interval from 0.5 to 1.

    Source:
        bitsandbytes ``create_normal_map``; Dettmers et al., "QLoRA: Efficient Finetuning of
        Quantized LLMs" (arXiv 2305.14314).
    """
    if not 0.5 < np.float32(offset) < 1:
        raise ArgumentError("offset", "a float32 above 0.5 and below 1", repr(offset))
    inverse = NormalDist().inv_cdf
    upper = [inverse(float(p)) for p in _steps(offset, 0.5, 9 if use_extra_value else 8)[:-1]]
    lower = [-inverse(float(p)) for p in _steps(offset, 0.5, 8)[:-1]]
    values: Values = np.sort(np.array([*lower, 0, *upper], np.float32))
    values /= values.max()
    return values


def fp8(
    signed: bool = True, exponent_bits: int = 5, precision_bits: int = 2, total_bits: int = 8
) -> Values:
    """A map of floating point numbers with few bits, divided by the largest.

    This is not an OCP or IEEE format. Its subnormal numbers are four times smaller than theirs,
    which leaves a gap below the smallest normal number. It has neither NaN nor infinity. For
    float8_e4m3fn and float8_e5m2 use the affine operators.

    Formula:
        With ``b = 2^(exponent_bits - 1)``, field ``f = 0 ... 2^exponent_bits - 1`` and fraction
        ``m = 0 ... 2^precision_bits - 1``: ``m * 2^-precision_bits * 2^-b`` where ``f = 0``, else
        ``(1 + m * 2^-precision_bits) * 2^(b + 1 - f)``; if signed, also negated; all divided by
        the largest.

        ``fp8(True, 2, 1, 4)`` is not :func:`fp4`, whose smallest magnitude is a quarter of this
        one's.

    Exactness:
        Each value is one float32 division of exact numbers: the bits of
        ``bitsandbytes.functional.create_fp8_map``, but for the sign of zero. A signed map has 0
        twice, and both are +0 here; bitsandbytes' second one is -0.

    Args:
        signed: Whether the map has negative values; one bit is then the sign.
        exponent_bits: Bits of the exponent, 1 to 7.
        precision_bits: Bits of the fraction, 0 to 7.
        total_bits: 2 to 8; the sum of sign, exponent and fraction bits. The map has
            ``2 ** total_bits`` values.

    Returns:
        The values, ascending. bitsandbytes adds zeros up to 256, which are left out here.

    Raises:
        ArgumentError: Bits outside of these ranges, or with another sum than ``total_bits``.

    Source:
        bitsandbytes ``create_fp8_map``.
    """
    bits = _integer("total_bits", total_bits, 2, 8)
    exponents = _integer("exponent_bits", exponent_bits, 1, 7)
    precision = _integer("precision_bits", precision_bits, 0, 7)
    if exponents + precision + bool(signed) != bits:
        expected = f"the sum of {exponents} exponent, {precision} precision and {int(signed)} sign"
        raise ArgumentError("total_bits", f"{expected} bits", str(bits))
    bias = 2 ** (exponents - 1)
    fields, fractions = np.arange(2**exponents)[:, None], np.arange(2**precision) / 2**precision
    normal_sizes = (1 + fractions) * 2.0 ** (bias + 1 - fields)
    sizes = np.where(fields == 0, fractions * 2.0**-bias, normal_sizes)
    values = sizes.astype(np.float32).ravel()
    if signed:
        values = np.concatenate([values, -values])
    return np.sort(values / values.max()) + np.float32(0)


def quantile(values: Any, total_bits: int = 8) -> Values:
    """A map of a tensor's own quantiles, whose codes its elements use about equally often.

    Formula:
        With ``k = 2^total_bits - 1`` and the ``n`` elements sorted: element number
        ``floor((t + j * (1 - 2 * t) / (k - 1)) * (n - 1) + 1/2)`` for ``j = 0 ... k - 1``, where
        ``t = 1 / (2 * k)``; these, and 0, divided by the largest magnitude.

    Exactness:
        Positions are computed in float64, the quantiles are order statistics of all elements (those
        of :class:`planq.EstimateQuantilesDescriptor` with ``k`` of them, which also runs on a GPU),
        and each quotient is rounded to float32 once.

        ``bitsandbytes.functional.create_quantile_map`` (up to 0.43) averaged over chunks of 4096
        elements, left out the last one and skipped a quantile, in an order that changed from run to
        run; its values lie near these.

    Args:
        values: At least one number, all finite, of any shape; read on the host.
        total_bits: 2 to 8: the map has ``2 ** total_bits`` values.

    Returns:
        The values, ascending; all zero for a tensor of zeros.

    Raises:
        ArgumentError: ``total_bits`` outside of 2 to 8; no values, or a value that is no finite
            number.

    Source:
        bitsandbytes ``create_quantile_map`` and ``estimate_quantiles``; Dettmers et al., "8-bit
        Optimizers via Block-wise Quantization" (arXiv 2110.02861).
    """
    count = 2 ** _integer("total_bits", total_bits, 2, 8) - 1
    flat = _numbers("values", values).ravel()
    if not flat.size:
        raise ArgumentError("values", "at least one number", "none")
    _refuse_nonfinite("values", flat)
    tail = 1 / (2 * count)
    exact = (tail + np.arange(count) * (1 - 2 * tail) / (count - 1)) * (flat.size - 1)
    below = np.floor(exact)
    positions = (below + (exact - below >= 0.5)).astype(np.int64)
    found = np.partition(flat, np.unique(positions))[positions]
    largest = np.abs(found).max()
    scaled = found / largest if largest else found
    return np.sort(np.append(scaled, 0)).astype(np.float32) + np.float32(0)


def nf4() -> Values:
    """The 4-bit NormalFloat of QLoRA, in the order of its codes, which ascends.

    Formula:
        :func:`normal` with its defaults.

    Exactness:
        The bits of bitsandbytes' table on every backend.

    Source:
        bitsandbytes ``get_4bit_type("nf4")``; "QLoRA" (arXiv 2305.14314).
    """
    return normal()


def fp4() -> Values:
    """The 4-bit float of bitsandbytes, in the order of its codes: bit 3 is the sign.

    Formula:
        Magnitudes of the codes 0 to 7: 0, 1/16, 8, 12, 4, 6, 2 and 3, divided by 12; codes 8 to 15
        are their negatives, -0 first. The values do not ascend. To quantize with them as a GIVEN
        codebook, sort them first.

    Exactness:
        One float32 division each: the bits of bitsandbytes' table, whose code 8 is +0, and of what
        its CUDA kernels decode, where code 8 is -0 as here.

    Source:
        bitsandbytes ``get_4bit_type("fp4")``.
    """
    magnitudes = np.array([0, 0.0625, 8, 12, 4, 6, 2, 3], np.float32) / np.float32(12)
    return np.concatenate([magnitudes, -magnitudes])


def int4() -> Values:
    """Sevenths from 1 down to -1, in the order of their codes, which descends.

    Formula:
        ``(7 - code) / 7`` for the codes 0 to 7, ``(8 - code) / 7`` for the codes 8 to 15. So 0 has
        the codes 7 and 8 (which is -0); planq writes 7.

    Exactness:
        One float32 division each. ``get_4bit_type("int4")`` describes the same values, but raises
        in bitsandbytes 0.50. No kernel of bitsandbytes has this type.

    Source:
        bitsandbytes ``get_4bit_type("int4")``.
    """
    sevenths = np.arange(7, -1, -1).astype(np.float32) / np.float32(7)
    return np.concatenate([sevenths, -sevenths[::-1]])


def af4() -> Values:
    """The 4-bit AbnormalFloat for blocks of 64, in the order of its codes, which descends.

    Formula:
        The published values for a block size of 64, from 1 down to -1. Other block sizes have other
        values, which neither planq nor bitsandbytes has.

    Exactness:
        The bits of bitsandbytes' table; no kernel of bitsandbytes has this type.

    Source:
        bitsandbytes ``get_4bit_type("af4")``; Yoshida, "NF4 Isn't Information Theoretically Optimal
        (and that's Good)" (arXiv 2306.06965).
    """
    upper = [1, 0.72424863, 0.55496234, 0.42563882, 0.31675666, 0.21961274, 0.12934483, 0.04273164]
    lower = [-0.04934812, -0.14982478, -0.25607552, -0.3736951, -0.51243739, -0.69441008, -1]
    return np.array([*upper, 0, *lower], np.float32)


def validate(values: Any, *, decode_only: bool = False) -> Values:
    """Checks a codebook of your own for what operators require of the operand ``codebook``.

    The operators read the operand in device memory, and cannot check it without waiting for the
    device. The checks are, in this order: numbers on the host; one axis; 2 to 256 values; each
    finite in float32; and, unless ``decode_only``, none below the one before it. Not checked are
    the sign of zeros, equal neighbours, the largest magnitude, and the limit of 16 values for 4-bit
    codes.

    Quantizing searches the values, and finds wrong codes in a table that does not ascend.
    Dequantizing takes any order. So :func:`fp4`, :func:`int4` and :func:`af4`, which do not ascend,
    pass only with ``decode_only``. Sorted, they pass without it, but are other codebooks with other
    codes. To quantize with these three, name them, as ``planq.Codebook.FP4``; the error for one of
    them says so.

    Args:
        values: 2 to 256 finite numbers in one axis; read on the host.
        decode_only: Whether the codebook is for dequantizing alone, and may be in any order.

    Returns:
        The values in float32, in the same order, as an array of their own.

    Raises:
        ArgumentError: A check failed; its ``operand`` is ``"codebook"``.
    """
    array = _numbers("codebook", values)
    if array.ndim != 1:
        raise ArgumentError("codebook", "one axis", f"shape {array.shape}")
    if not _FEWEST <= len(array) <= _MOST:
        raise ArgumentError("codebook", f"{_FEWEST} to {_MOST} values", str(len(array)))
    with np.errstate(over="ignore"):
        table = array.astype(np.float32)
    _refuse_nonfinite("codebook", table)
    falls = np.flatnonzero(table[1:] < table[:-1])
    if len(falls) and not decode_only:
        before, after = table[falls[0]], table[falls[0] + 1]
        came = f"{after} after {before} at index {falls[0] + 1}"
        raise ArgumentError("codebook", "values in ascending order", came, _order_hint(table))
    return table


def _order_hint(table: Values) -> str:
    """What to do about a table that does not ascend."""
    unordered = {"FP4": fp4, "INT4": int4, "AF4": af4}
    for name, make in unordered.items():
        if np.array_equal(table, make()):
            named = f"planq.Codebook.{name}"
            alone = "to dequantize alone, validate it with decode_only=True"
            return f"to quantize, name this one: {named}; {alone}"
    return "sort them, or validate with decode_only=True what only dequantizes"


def _steps(start: float, end: float, count: int) -> Values:
    """``count`` values in equal steps, each rounded to float32 once: float64 sums are exact."""
    first, last = np.float32(start), np.float32(end)
    step = float((last - first) / np.float32(count - 1))
    i = np.arange(count)
    values = np.where(i < count // 2, first + step * i, last - step * (count - 1 - i))
    return values.astype(np.float32)


def _middles(cells: int) -> Values:
    """The middles of ``cells`` equal cells of [0.1, 1]."""
    edges = _steps(0.1, 1, cells + 1)
    return (edges[:-1] + edges[1:]) / np.float32(2)


def _integer(name: str, value: int, lowest: int, highest: int) -> int:
    if lowest <= operator.index(value) <= highest:
        return operator.index(value)
    expected = str(lowest) if lowest == highest else f"{lowest} to {highest}"
    raise ArgumentError(name, expected, str(value))


def _numbers(operand: str, values: Any) -> npt.NDArray[np.float64]:
    """The values in float64, which holds all types exactly; types of ml_dtypes have kind V."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "fiuV":
            return array.astype(np.float64)
    except (TypeError, ValueError):
        pass
    came = f"{type(values).__name__} of {getattr(values, 'dtype', 'objects')}"
    raise ArgumentError(operand, "an array of numbers on the host", came)


def _refuse_nonfinite(operand: str, array: npt.NDArray[Any]) -> None:
    where = np.flatnonzero(~np.isfinite(array))
    if len(where):
        came = f"{array[where[0]]} at index {where[0]}"
        raise ArgumentError(operand, "finite numbers", came)
