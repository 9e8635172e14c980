"""The tensors that a layer is stored as, and what their bits stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import planq
from planq.checkpoint.failure import TensorError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from planq.checkpoint.files import PartSource, TensorEntry

Array = npt.NDArray[Any]
Codes = npt.NDArray[np.uint8]

FLOATS = ("F16", "BF16", "F32")
WORD = 32
"""Bits of the integers that codes are packed in."""
# In NumPy's terms; those without a type of their own are read as the integers of their bits.
_NUMPY = {
    "U8": "u1",
    "I8": "i1",
    "I32": "<i4",
    "I64": "<i8",
    "F8_E4M3": "u1",
    "F8_E5M2": "u1",
    "F8_E8M0": "u1",
    "F16": "<f2",
    "BF16": "<u2",
    "F32": "<f4",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor of a layer, not read yet.

    Attributes:
        shards: The files.
        entry: The tensor.
        index: Its place along the first axis, where each layer has one; else None.
    """

    shards: PartSource
    entry: TensorEntry
    index: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the layer's own part."""
        return self.entry.shape if self.index is None else self.entry.shape[1:]

    @property
    def nbytes(self) -> int:
        """The size of the layer's own part."""
        return self.entry.nbytes if self.index is None else self.entry.nbytes // self.entry.shape[0]

    def read(self) -> Array:
        """Returns the values, in new memory."""
        data = self.shards.piece(self.entry, (self.index or 0) * self.nbytes, self.nbytes)
        return data.view(_NUMPY[self.entry.dtype]).reshape(self.shape)

    def floats(self) -> npt.NDArray[np.float32]:
        """Returns the values of one of `FLOATS`, widened to float32."""
        values = self.read()
        if self.entry.dtype == "BF16":
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)

    def scales(self) -> Array:
        """Returns the values of one of `FLOATS`; bfloat16, which NumPy lacks, as float32."""
        return self.read() if self.entry.dtype == "F16" else self.floats()

    def refused(self, expected: str, found: str) -> TensorError:
        """Returns the error of values that the format does not have."""
        name = self.entry.name
        return TensorError(self.shards.home(name), name, expected, found)

    def of_layer(self, index: int) -> Part:
        """Returns the part of one of the layers that the tensor is of."""
        return Part(self.shards, self.entry, index)


def find(
    shards: PartSource, name: str, dtypes: Sequence[str], shape: Sequence[int | None] | None = None
) -> Part:
    """Returns a tensor that a layer has to have.

    Args:
        shards: The files.
        name: Its name.
        dtypes: The types that it may have.
        shape: Its extents; None for one that may be any. Without it the rank is any, too.

    Raises:
        TensorError: There is none, or it has another type or shape.
    """
    entry = shards.by_name.get(name)
    expected = " or ".join(dtypes)
    if shape is not None:
        expected += f" [{', '.join('any' if n is None else str(n) for n in shape)}]"
    if entry is None:
        raise TensorError(shards.path, name, expected, None)
    part = Part(shards, entry)
    fits = shape is None or (
        len(shape) == len(entry.shape)
        and all(want in (None, n) for want, n in zip(shape, entry.shape, strict=True))
    )
    if entry.dtype not in dtypes or not fits:
        raise part.refused(expected, entry.words)
    return part


def with_bias(shards: PartSource, module: str, rows: int) -> dict[str, Part]:
    """Returns the bias of a module, where it has one."""
    name = f"{module}.bias"
    return {"bias": find(shards, name, FLOATS, (rows,))} if name in shards.by_name else {}


def scale_dtype(scales: Part) -> planq.DType:
    """Returns the type of what `Part.scales` returns."""
    return planq.DType.FLOAT16 if scales.entry.dtype == "F16" else planq.DType.FLOAT32


def group_size(scales: Part, columns: int, groups: int, told: Collection[int]) -> int:
    """Returns how many columns share a scale.

    Args:
        scales: The scales, for errors.
        columns: The columns of the weight.
        groups: The scales of a row.
        told: The sizes that the config has; without any, groups have to divide the columns.

    Raises:
        TensorError: No size fits.
    """
    fitting = {size for size in told if -(-columns // size) == groups}
    even = groups > 0 and columns % groups == 0
    if even and (not told or columns // groups in fitting):
        return columns // groups
    if len(fitting) == 1:
        return min(fitting.pop(), max(columns, 1))
    sizes = " or ".join(map(str, sorted(told))) or "equal size"
    raise scales.refused(
        f"scales for groups of {sizes} along {columns} columns", f"{groups} scales a row"
    )


def check_order(order: Part, columns: int, size: int) -> None:
    """Refuses columns whose groups are not one after another.

    Raises:
        TensorError: A column belongs to another group.
    """
    found = order.read()
    trivial = np.array_equal(found, np.arange(columns) // size)
    if trivial or (order.entry.name.endswith("weight_g_idx") and np.all(found == -1)):
        return
    raise order.refused(
        f"column i in group i // {size}",
        "columns in another order (act-order, desc_act): the columns of a group lie apart, and "
        "planq's layers read groups of neighbours; quantize without act-order",
    )


def bits_of(words: Array, bits: int) -> Codes:
    """Returns the codes of int32 words, one a byte: those of a row of words in one row."""
    data = np.ascontiguousarray(words).view(np.uint8)
    return data if bits == 8 else split(data)


def words_of(codes: Codes, bits: int) -> Array:
    """Returns int32 words of codes that lie one a byte: the inverse of `bits_of`.

    A row that fills no whole number of words ends with zeros.
    """
    spare = -codes.shape[-1] % (WORD // bits)
    padded: Codes = np.pad(codes, ((0, 0), (0, spare)))
    if bits == 4:
        padded = padded[:, 0::2] | padded[:, 1::2] << np.uint8(4)
    return np.ascontiguousarray(padded).view("<i4")


def split(data: Codes) -> Codes:
    """Returns the two codes of each byte, one a byte, the low nibble first."""
    codes = np.empty((*data.shape[:-1], 2 * data.shape[-1]), np.uint8)
    codes[..., 0::2] = data & 0x0F
    codes[..., 1::2] = data >> 4
    return codes


def _e4m3() -> npt.NDArray[np.float32]:
    codes = np.arange(256)
    exponent, fraction = (codes >> 3) & 15, codes & 7
    normal = np.ldexp(1 + fraction / 8, exponent - 7)
    values = np.where(exponent == 0, np.ldexp(fraction / 8, -6), normal)
    values[(codes & 0x7F) == 0x7F] = np.nan
    return np.where(codes & 0x80, -values, values).astype(np.float32)


def _e8m0() -> npt.NDArray[np.float32]:
    values = np.ldexp(1.0, np.arange(256) - 127)
    values[-1] = np.nan
    return values.astype(np.float32)


# The values of scales that are bytes: of float8_e4m3fn, and of E8M0 (powers of two, of which the
# smallest is a subnormal number of float32).
SCALE_VALUES = {planq.DType.FLOAT8_E4M3FN: _e4m3(), planq.DType.FLOAT8_E8M0FNU: _e8m0()}
