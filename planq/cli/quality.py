"""How much of a weight its codes keep: noise ratio, largest error, values that are not finite."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import planq
from planq.cli.schemes import GROUP_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planq.cli.checkpoint import Bytes
    from planq.cli.schemes import Quantizing

Float64 = npt.NDArray[np.float64]

# A block's float64 copies stay in the processor's cache; columns are cut at whole groups and bytes.
_BLOCK_ELEMENTS = 1 << 16
_BLOCK_COLUMNS = 1 << 14

_VIEWS = {
    planq.DType.FLOAT16: np.float16,
    planq.DType.BFLOAT16: np.uint16,
    planq.DType.FLOAT32: np.float32,
    planq.DType.FLOAT64: np.float64,
    planq.DType.INT8: np.int8,
    planq.DType.UINT8: np.uint8,
    planq.DType.INT32: np.int32,
    planq.DType.INT4: np.uint8,
    planq.DType.FLOAT8_E4M3FN: np.uint8,
}


def signal_to_noise_db(desc: Quantizing, weight: Bytes, parts: Mapping[str, Bytes]) -> float:
    """Returns ``10 log10(sum x^2 / sum (x - s (q - z))^2)`` of a quantization, in dB.

    Computed in float64, block by block, so that it takes no memory to speak of.

    Args:
        desc: What was quantized: two axes, one scale for the tensor, for each row, or for each
            group of `planq.cli.schemes.GROUP_SIZE` along the last axis.
        weight: The bytes of x.
        parts: The bytes of q, s and, where there is one, z, by operand.

    Returns:
        The ratio: infinite where nothing was lost, NaN where x has no signal or a value that is
        not finite.
    """
    if not weight.size:
        return math.nan
    rows, columns = desc.shape
    x = _grid(weight, desc.input_dtype, rows)
    q = _grid(parts["output"], desc.output_dtype, rows)
    s = _parameters(desc, parts["scale"], desc.scale_dtype)
    z = _parameters(desc, parts["zero_point"], planq.DType.INT32) if "zero_point" in parts else None
    signal = noise = 0.0
    for row, column in _blocks(rows, columns):
        wanted = _decode(x[row, column], desc.input_dtype)
        error = _codes(q, desc.output_dtype, row, column)
        if z is not None:
            error -= _spread(z, row, column)
        error *= _spread(s, row, column)
        error -= wanted
        signal += _energy(wanted)
        noise += _energy(error)
    if not signal or not noise:
        return math.inf if signal else math.nan
    return 10.0 * math.log10(signal / noise)


def count_nan(scale: Bytes, dtype: planq.DType) -> int:
    """Counts the scales that are NaN: the segments that held a value that is not finite."""
    return int(np.isnan(_decode(scale.view(_VIEWS[dtype]), dtype)).sum())


def count_non_finite(values: Bytes, dtype: planq.DType) -> int:
    """Counts the values that are a NaN or an infinity."""
    return sum(int((~np.isfinite(piece)).sum()) for (piece,) in _pieces(dtype, values))


def largest_error(dtype: planq.DType, weight: Bytes, restored: Bytes) -> float:
    """Returns the largest ``|x - y|``, in float64.

    Args:
        dtype: The type of both.
        weight: The bytes of x.
        restored: The bytes of y.

    Returns:
        The largest error: 0 without values; NaN or infinite where a value of x or y is.
    """
    errors = [0.0]
    for wanted, got in _pieces(dtype, weight, restored):
        with np.errstate(invalid="ignore"):  # an infinity less itself
            errors.append(float(np.abs(wanted - got).max()))
    return float(np.max(errors))


def _pieces(dtype: planq.DType, *arrays: Bytes) -> Iterator[tuple[Float64, ...]]:
    """Reads arrays of one length together, piece by piece."""
    views = [array.view(_VIEWS[dtype]) for array in arrays]
    for at in range(0, views[0].size, _BLOCK_ELEMENTS):
        yield tuple(_decode(view[at : at + _BLOCK_ELEMENTS], dtype) for view in views)


def _parameters(desc: Quantizing, raw: Bytes, dtype: planq.DType) -> Float64:
    rows = 1 if desc.scope.kind == "tensor" else desc.shape[0]
    return _decode(_grid(raw, dtype, rows), dtype)


def _blocks(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    width = min(columns, _BLOCK_COLUMNS)
    height = max(1, _BLOCK_ELEMENTS // width)
    for top in range(0, rows, height):
        for left in range(0, columns, width):
            yield slice(top, top + height), slice(left, min(left + width, columns))


def _grid(raw: Bytes, dtype: planq.DType, rows: int) -> npt.NDArray[Any]:
    return raw.view(_VIEWS[dtype]).reshape(rows, -1)


def _decode(values: npt.NDArray[Any], dtype: planq.DType) -> Float64:
    """Widens values, bfloat16 being stored as the upper half of a float32."""
    if dtype is planq.DType.BFLOAT16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def _codes(q: npt.NDArray[Any], dtype: planq.DType, row: slice, column: slice) -> Float64:
    """Reads one block of codes as numbers."""
    if dtype is planq.DType.INT4:
        packed = q[row, column.start // 2 : (column.stop + 1) // 2]
        pairs = _int4_pairs().take(packed).view(np.float64)
        return pairs[:, : column.stop - column.start]
    if dtype is planq.DType.FLOAT8_E4M3FN:
        return _float8_e4m3fn().take(q[row, column])
    return q[row, column].astype(np.float64)


def _spread(p: Float64, row: slice, column: slice) -> Float64:
    """Returns the parameters of a block in a shape that broadcasts over it."""
    if len(p) > 1:
        p = p[row]
    if p.shape[1] == 1:
        return p
    groups = p[:, column.start // GROUP_SIZE : -(-column.stop // GROUP_SIZE)]
    return np.repeat(groups, GROUP_SIZE, axis=1)[:, : column.stop - column.start]


def _energy(values: Float64) -> float:
    return float(np.square(values, out=values).sum())


@cache
def _int4_pairs() -> npt.NDArray[np.complex128]:
    """The two codes of every byte, the low nibble first: a complex number is a pair to NumPy."""
    byte = np.arange(256)
    nibbles = np.stack([byte & 15, byte >> 4], axis=1)
    codes = np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.float64)
    return codes.view(np.complex128).reshape(256)


@cache
def _float8_e4m3fn() -> Float64:
    """The value of every code: sign, four exponent bits of bias 7, three fraction bits."""
    code = np.arange(256)
    exponent, fraction = (code >> 3) & 15, code & 7
    magnitude = np.where(
        exponent > 0, np.ldexp(1 + fraction / 8, exponent - 7), np.ldexp(fraction / 8, -6)
    )
    magnitude[(code & 0x7F) == 0x7F] = math.nan
    return np.where(code & 0x80, -magnitude, magnitude)
