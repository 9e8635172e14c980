"""How much of a weight its codes keep: noise ratio, largest error, values that are not finite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import planq
from planq.checkpoint.schemes import GROUP_SIZE, Scaling

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from planq.checkpoint.schemes import Quantizing
    from planq.executors import Bytes

Float64 = npt.NDArray[np.float64]

# A weight may hold anything, also signaling NaNs. What is not finite is counted, not warned of.
_quietly = np.errstate(all="ignore")

# Float64 copies of a piece of this size fit into the cache. Pieces end at whole groups and bytes.
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
    planq.DType.UINT4: np.uint8,
    planq.DType.FLOAT8_E4M3FN: np.uint8,
}


@_quietly
def signal_to_noise_db(desc: Quantizing, weight: Bytes, made: Mapping[str, Bytes]) -> float:
    """Returns ``10 log10(sum x^2 / sum (x - y)^2)`` of a quantization, in dB.

    ``y`` is the dequantized value: ``s (q - z)``, or ``v[q] a`` with the codebook v and the absmax
    a of the block. It is computed in float64, piece by piece, in little memory.

    Args:
        desc: The quantization, of a weight with two axes. Scales are per tensor, per row, per group
            along the last axis (of 32, 64 or 128), or per block of `GROUP_SIZE` rows and columns.
            A codebook has flat blocks of 8-bit codes, or of 4-bit codes, of which the first of two
            has the high nibble.
        weight: The bytes of x.
        made: The bytes of the outputs of the quantization and of given parameters, by operand.

    Returns:
        The ratio in dB: infinite if nothing was lost, NaN if x is all zero or has a value that is
        not finite.
    """
    if not weight.size:
        return math.nan
    if isinstance(desc, Scaling):
        pieces = _scaled(desc, weight, made)
    else:
        pieces = _looked_up(desc, weight, made)
    return _ratio_db(pieces)


@_quietly
def restored_to_noise_db(dtype: planq.DType, weight: Bytes, restored: Bytes) -> float:
    """Returns the same of values that are dequantized already.

    Args:
        dtype: The type of the weight.
        weight: The bytes of x.
        restored: The bytes of y, float32.
    """
    pairs = zip(_pieces(dtype, weight), _pieces(planq.DType.FLOAT32, restored), strict=True)
    return _ratio_db(pairs)


def _ratio_db(pieces: Iterable[tuple[Float64, Float64]]) -> float:
    """Returns the ratio of original and dequantized values, which come piece by piece."""
    signal = noise = 0.0
    for wanted, error in pieces:
        error -= wanted
        signal += _energy(wanted)
        noise += _energy(error)
    if not signal or not noise:
        return math.inf if signal else math.nan
    return 10.0 * math.log10(signal / noise)


@_quietly
def count_spoiled(desc: Quantizing, made: Mapping[str, Bytes]) -> int:
    """Counts the segments (values with one scale) that dequantize to NaN.

    Args:
        desc: The quantization.
        made: The bytes of its outputs, by operand.
    """
    if isinstance(desc, Scaling):
        scales = widened(made["scale"].view(_VIEWS[desc.scale_dtype]), desc.scale_dtype)
        return int(np.isnan(scales).sum())
    (blocks,) = desc.operands()["absmax"].extents
    starts = range(0, blocks, _BLOCK_ELEMENTS)
    pieces = (_absmax(desc, made, at, at + _BLOCK_ELEMENTS) for at in starts)
    return sum(int(np.isnan(piece).sum()) for piece in pieces)


@_quietly
def count_non_finite(values: Bytes, dtype: planq.DType) -> int:
    """Counts the values that are NaN or infinite."""
    return sum(int((~np.isfinite(piece)).sum()) for piece in _pieces(dtype, values))


@_quietly
def largest_error(
    dtype: planq.DType, weight: Bytes, restored: Bytes, restored_dtype: planq.DType | None = None
) -> float:
    """Returns the largest ``|x - y|``, in float64.

    Args:
        dtype: The type of x.
        weight: The bytes of x.
        restored: The bytes of y.
        restored_dtype: The type of y, if another one.

    Returns:
        The largest error: 0 without values; NaN or infinite if a value of x or y is.
    """
    errors = [0.0]
    pairs = zip(_pieces(dtype, weight), _pieces(restored_dtype or dtype, restored), strict=True)
    for wanted, got in pairs:
        errors.append(float(np.abs(wanted - got).max()))
    return float(np.max(errors))


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How like what was meant what is read is: sums over elements, in float64.

    Elements are those of a weight x and of the weight y that its codes restore, or of the outputs
    that a layer makes with each.

    Attributes:
        signal: ``sum x^2``.
        restored: ``sum y^2``.
        product: ``sum x y``.
        noise: ``sum (x - y)^2``.
    """

    signal: float
    restored: float
    product: float
    noise: float

    @property
    def cosine(self) -> float:
        """``sum x y / sqrt(sum x^2 sum y^2)``; NaN if x or y is all zero."""
        length = math.sqrt(self.signal) * math.sqrt(self.restored)
        return self.product / length if length else math.nan

    @property
    def relative_error(self) -> float:
        """``sqrt(sum (x - y)^2 / sum x^2)``; NaN if x is all zero."""
        return math.sqrt(self.noise / self.signal) if self.signal else math.nan


def total(parts: Iterable[Fidelity]) -> Fidelity:
    """Returns the fidelity of all weights together: of their elements in one vector."""
    sums = [(part.signal, part.restored, part.product, part.noise) for part in parts]
    return Fidelity(*(math.fsum(column) for column in zip(*sums, strict=True)))


@_quietly
def fidelity(
    dtype: planq.DType, weight: Bytes, restored: Bytes, restored_dtype: planq.DType | None = None
) -> Fidelity:
    """Compares a weight with what its codes restore.

    Args:
        dtype: The type of x.
        weight: The bytes of x.
        restored: The bytes of y.
        restored_dtype: The type of y, if another one.
    """
    sums = []
    pairs = zip(_pieces(dtype, weight), _pieces(restored_dtype or dtype, restored), strict=True)
    for wanted, got in pairs:
        product = float((wanted * got).sum())
        noise = _energy(got - wanted)
        sums.append(Fidelity(_energy(wanted), _energy(got), product, noise))
    return total(sums or [Fidelity(0.0, 0.0, 0.0, 0.0)])


@_quietly
def output_fidelity(
    dtype: planq.DType, shape: tuple[int, ...], weight: Bytes, restored: Bytes, gram: Float64
) -> Fidelity:
    """Compares what a layer makes of its inputs, without a bias, with what its codes make of them.

    With ``H = X^T X``, a sum over all outputs ``sum (X x)(X y)`` is ``sum x H y`` over the rows.

    Args:
        dtype: The type of the weight.
        shape: Its shape.
        weight: The bytes of the weight, rows x.
        restored: The bytes of what is restored of it, rows y.
        gram: H.
    """
    sums = []
    height = max(1, _BLOCK_ELEMENTS // max(shape[1], 1))
    x, y = (each.view(_VIEWS[dtype]).reshape(shape) for each in (weight, restored))
    for top in range(0, shape[0], height):
        wanted, got = (widened(each[top : top + height], dtype) for each in (x, y))
        error, made = got - wanted, wanted @ gram
        pairs = ((made, wanted), (got @ gram, got), (made, got), (error @ gram, error))
        sums.append(Fidelity(*(float((first * second).sum()) for first, second in pairs)))
    return total(sums or [Fidelity(0.0, 0.0, 0.0, 0.0)])


@_quietly
def group_errors(desc: planq.QuantizeDescriptor, weight: Bytes, restored: Bytes) -> Float64:
    """Returns ``sum (x - y)^2`` of each group along a row, added in one fixed order.

    The second half of a group is added to its first half, and so on with what remains; see
    `planq.checkpoint.groups`.

    Args:
        desc: The quantization, in groups whose size is a power of two.
        weight: The bytes of x, in the descriptor's type.
        restored: The bytes of y, likewise.
    """
    rows, columns = desc.shape
    x, y = (each.view(_VIEWS[desc.input_dtype]).reshape(desc.shape) for each in (weight, restored))
    size = desc.scope.size
    groups = -(-columns // size)
    errors = np.empty((rows, groups))
    height = max(1, _BLOCK_ELEMENTS // max(columns, 1))
    for top in range(0, rows if columns else 0, height):
        band = slice(top, min(top + height, rows))
        squares = np.zeros((band.stop - band.start, groups * size))
        part = squares[:, :columns]
        np.subtract(
            widened(x[band], desc.input_dtype), widened(y[band], desc.input_dtype), out=part
        )
        np.square(part, out=part)
        sums = squares.reshape(-1, groups, size)
        while sums.shape[-1] > 1:
            half = sums.shape[-1] // 2
            sums = sums[..., :half] + sums[..., half:]
        errors[band] = sums[..., 0]
    return errors.reshape(-1)


def _pieces(dtype: planq.DType, values: Bytes) -> Iterator[Float64]:
    """Decodes an array to float64, piece by piece."""
    view = values.view(_VIEWS[dtype])
    for at in range(0, view.size, _BLOCK_ELEMENTS):
        yield widened(view[at : at + _BLOCK_ELEMENTS], dtype)


def _scaled(
    desc: Scaling, weight: Bytes, made: Mapping[str, Bytes]
) -> Iterator[tuple[Float64, Float64]]:
    """Yields original and dequantized values of a scheme with scales, piece by piece."""
    rows, columns = desc.shape
    x = _grid(weight, desc.input_dtype, rows)
    q = _grid(made["output"], desc.output_dtype, rows)
    s = _parameters(desc, made["scale"], desc.scale_dtype)
    z = _parameters(desc, made["zero_point"], planq.DType.INT32) if "zero_point" in made else None
    size = desc.scope.size if desc.scope.kind == "group" else GROUP_SIZE
    for row, column in _blocks(rows, columns):
        got = _codes(q, desc.output_dtype, row, column)
        if z is not None:
            got -= _spread(z, row, column, size)
        got *= _spread(s, row, column, size)
        yield widened(x[row, column], desc.input_dtype), got


def _looked_up(
    desc: planq.BlockwiseQuantizeDescriptor, weight: Bytes, made: Mapping[str, Bytes]
) -> Iterator[tuple[Float64, Float64]]:
    """Yields the same for codebooks, whose blocks run on over the ends of rows."""
    values = getattr(planq.codebooks, desc.codebook.value)().astype(np.float64)
    codes, size = made["output"], desc.block_size
    for number, wanted in enumerate(_pieces(desc.input_dtype, weight)):
        start = number * _BLOCK_ELEMENTS
        stop = start + wanted.size
        if desc.output_dtype is planq.DType.UINT4:
            packed = codes[start // 2 : (stop + 1) // 2]
            got = _pairs(values[:, None], values).take(packed).view(np.float64)[: wanted.size]
        else:
            got = values.take(codes[start:stop])
        first, last = start // size, -(-stop // size)
        ends = np.minimum(np.arange(first + 1, last + 1) * size, stop)
        got *= np.repeat(_absmax(desc, made, first, last), np.diff(ends, prepend=start))
        yield wanted, got


def _absmax(
    desc: planq.BlockwiseQuantizeDescriptor, made: Mapping[str, Bytes], first: int, last: int
) -> Float64:
    """The absmax of blocks ``first`` to ``last``; nested ones are dequantized as kernels do."""
    operands = desc.operands()
    held = {
        name: made[name].view(operands[name].storage)
        for name in ("absmax", "nested_absmax", "nested_offset")
        if name in operands
    }
    found = held["absmax"][first:last]
    if desc.nested_block_size is None:
        return found.astype(np.float64)
    largest = held["nested_absmax"]
    values = _nested_codebook().astype(largest.dtype).take(found)
    values *= largest.take(np.arange(first, first + found.size) // desc.nested_block_size)
    values += held["nested_offset"]
    return values.astype(np.float64)


def _parameters(desc: Scaling, raw: Bytes, dtype: planq.DType) -> Float64:
    if desc.scope.kind == "block":  # repeated for each row, so that they read like groups
        bands = -(-desc.shape[0] // GROUP_SIZE)
        found = decoded(raw, dtype, bands)
        return np.repeat(found, GROUP_SIZE, axis=0)[: desc.shape[0]]
    rows = 1 if desc.scope.kind == "tensor" else desc.shape[0]
    return decoded(raw, dtype, rows)


def _blocks(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    width = min(columns, _BLOCK_COLUMNS)
    height = max(1, _BLOCK_ELEMENTS // width)
    for top in range(0, rows, height):
        for left in range(0, columns, width):
            yield slice(top, top + height), slice(left, min(left + width, columns))


def _grid(raw: Bytes, dtype: planq.DType, rows: int) -> npt.NDArray[Any]:
    return raw.view(_VIEWS[dtype]).reshape(rows, -1)


def decoded(raw: Bytes, dtype: planq.DType, rows: int) -> Float64:
    """Returns the bytes of a matrix as float64."""
    return widened(_grid(raw, dtype, rows), dtype)


def widened(values: npt.NDArray[Any], dtype: planq.DType) -> Float64:
    """Widens values to float64; bfloat16 comes as the upper half of a float32."""
    if dtype is planq.DType.BFLOAT16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def _codes(q: npt.NDArray[Any], dtype: planq.DType, row: slice, column: slice) -> Float64:
    """Reads one block of codes as numbers."""
    if dtype in (planq.DType.INT4, planq.DType.UINT4):
        packed = q[row, column.start // 2 : (column.stop + 1) // 2]
        pairs = _nibble_pairs(dtype).take(packed).view(np.float64)
        return pairs[:, : column.stop - column.start]
    if dtype is planq.DType.FLOAT8_E4M3FN:
        return _float8_e4m3fn().take(q[row, column])
    return q[row, column].astype(np.float64)


def _spread(p: Float64, row: slice, column: slice, size: int) -> Float64:
    """Returns the parameters of a piece, of groups of a size, so that they broadcast over it."""
    if len(p) > 1:
        p = p[row]
    if p.shape[1] == 1:
        return p
    groups = p[:, column.start // size : -(-column.stop // size)]
    return np.repeat(groups, size, axis=1)[:, : column.stop - column.start]


def _energy(values: Float64) -> float:
    return float(np.square(values, out=values).sum())


@cache
def _nibble_pairs(dtype: planq.DType) -> npt.NDArray[np.complex128]:
    """The two codes of every byte, the low nibble first."""
    numbers = np.arange(16.0)
    if dtype is planq.DType.INT4:
        numbers[8:] -= 16
    return _pairs(numbers, numbers[:, None])


def _pairs(first: Float64, second: Float64) -> npt.NDArray[np.complex128]:
    """The two values of every byte, as one complex number, so that one lookup yields both.

    Args:
        first: The first value by its nibble, along axis 0 if that is the high one, else axis 1.
        second: The second value by the other nibble, along the other axis.
    """
    pairs = np.stack(np.broadcast_arrays(first, second), axis=-1)
    return pairs.view(np.complex128).reshape(256)


@cache
def _nested_codebook() -> npt.NDArray[np.float32]:
    return planq.codebooks.dynamic()


@cache
def _float8_e4m3fn() -> Float64:
    """The value of every code: a sign, four exponent bits with bias 7, three fraction bits."""
    code = np.arange(256)
    exponent, fraction = (code >> 3) & 15, code & 7
    magnitude = np.where(
        exponent > 0, np.ldexp(1 + fraction / 8, exponent - 7), np.ldexp(fraction / 8, -6)
    )
    magnitude[(code & 0x7F) == 0x7F] = math.nan
    return np.where(code & 0x80, -magnitude, magnitude)
