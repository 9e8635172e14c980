"""The header of a GGUF file, read once and judged by the rules of the format.

Versions 2 and 3, little-endian. Counts and lengths are compared with the size of the file before
anything is made of them, so memory and time are bounded by the bytes that are there.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from planq.checkpoint.header import LARGEST_HEADER, Place

if TYPE_CHECKING:
    from collections.abc import Callable

Value: TypeAlias = "int | float | bool | str | npt.NDArray[np.generic] | list[Value]"
"""A value of the metadata. Arrays of numbers are NumPy's; those of texts and arrays are lists."""

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT, _DEFAULT_ALIGNMENT = "general.alignment", 32
_LONGEST_NAME = 2**16 - 1
_MOST_AXES = 4
_DEEPEST = 8
# The least that a pair of a key and a value takes, and that a tensor without axes takes.
_PAIR_BYTES, _TENSOR_BYTES = 13, 24
# ggml counts elements and bytes in 64 signed bits.
_SIZES = 2**63
_PIECE = 1 << 20
_SHOWN = 64

_UINT32, _BOOL, _STRING, _ARRAY = 4, 7, 8, 9
_NUMBERS = {
    number: np.dtype(name).newbyteorder("<")
    for number, name in {
        0: "u1",
        1: "i1",
        2: "u2",
        3: "i2",
        _UINT32: "u4",
        5: "i4",
        6: "f4",
        _BOOL: "u1",
        10: "u8",
        11: "i8",
        12: "f8",
    }.items()
}
# The least that an element of an array takes.
_LEAST = {number: dtype.itemsize for number, dtype in _NUMBERS.items()} | {_STRING: 8, _ARRAY: 12}
_U32, _U64 = Struct("<I"), Struct("<Q")


class BlockType(NamedTuple):
    """A type of tensors: so many bytes for so many elements of a row."""

    name: str
    elements: int
    nbytes: int


TYPES = {
    number: BlockType(name, elements, nbytes)
    for number, name, elements, nbytes in (
        *((0, "F32", 1, 4), (1, "F16", 1, 2), (30, "BF16", 1, 2), (28, "F64", 1, 8)),
        *((24, "I8", 1, 1), (25, "I16", 1, 2), (26, "I32", 1, 4), (27, "I64", 1, 8)),
        *((2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20), (6, "Q5_0", 32, 22), (7, "Q5_1", 32, 24)),
        *((8, "Q8_0", 32, 34), (9, "Q8_1", 32, 36), (15, "Q8_K", 256, 292)),
        *((10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110), (12, "Q4_K", 256, 144)),
        *((13, "Q5_K", 256, 176), (14, "Q6_K", 256, 210)),
        *((16, "IQ2_XXS", 256, 66), (17, "IQ2_XS", 256, 74), (22, "IQ2_S", 256, 82)),
        *((18, "IQ3_XXS", 256, 98), (21, "IQ3_S", 256, 110)),
        *((19, "IQ1_S", 256, 50), (29, "IQ1_M", 256, 56)),
        *((20, "IQ4_NL", 32, 18), (23, "IQ4_XS", 256, 136)),
        *((34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66)),
        *((39, "MXFP4", 32, 17), (40, "NVFP4", 64, 36)),
        *((41, "Q1_0", 128, 18), (42, "Q2_0", 64, 18)),
    )
}
"""The types of tensors, by the number that a file has for each."""


class Header(NamedTuple):
    """What stands before the tensors of a file.

    Attributes:
        version: 2 or 3.
        alignment: What the offsets of tensors are multiples of, in bytes.
        metadata: The values, by key.
        places: The tensors; `start` and `end` count bytes of the payload.
        payload: Where the payload starts, in bytes from the start of the file.
    """

    version: int
    alignment: int
    metadata: dict[str, Value]
    places: list[Place]
    payload: int


def parse_gguf_header(read: Callable[[int, int], bytes], size: int) -> Header:
    """Returns the header of a file.

    Args:
        read: Returns bytes of the file: at this offset, so many. It is asked for none beyond it.
        size: How many bytes the file has.

    Raises:
        ValueError: It breaks a rule of the format, or contradicts the size of the file.
    """
    cursor = _Cursor(read, size)
    version = _version(cursor)
    tensors, pairs = cursor.u64(), cursor.u64()
    cursor.where = "count of metadata"
    cursor.expect(pairs, _PAIR_BYTES)
    cursor.where = "count of tensors"
    cursor.expect(tensors, _TENSOR_BYTES)
    metadata, alignment = _metadata(cursor, pairs)
    places = _places(cursor, tensors, alignment)
    payload = -(-cursor.at // alignment) * alignment
    _check_places(places, payload, size)
    return Header(version, alignment, metadata, places, payload)


class _Cursor:
    """Goes through a header, and never beyond the file.

    Attributes:
        where: What is read now, as errors name it.
        at: How many bytes were passed.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._held = bytearray()
        self.where = "start"
        self.at = 0

    def wrong(self, expected: str, got: object) -> ValueError:
        """Returns the error of what is read now."""
        return ValueError(f"{self.where}: expected {expected}, got {got}")

    def expect(self, count: int, least: int) -> None:
        """Refuses a count of parts, of so many bytes each or more, if the file has no room."""
        rest = min(self._size, LARGEST_HEADER) - self.at
        if count * least <= rest:
            return
        if count * least <= self._size - self.at:
            raise self.wrong(f"a header of at most {LARGEST_HEADER} bytes", "a longer one")
        parts = "bytes" if least == 1 else f"parts of {least} bytes or more"
        raise self.wrong(f"at most {rest // least} {parts} up to the end of the file", count)

    def take(self, count: int) -> bytes:
        """Returns the next bytes."""
        start = self._pass(count)
        return bytes(self._held[start : self.at])

    def u32(self) -> int:
        """Returns the next number of 32 bits."""
        found: int = _U32.unpack_from(self._held, self._pass(4))[0]
        return found

    def u64(self) -> int:
        """Returns the next number of 64 bits."""
        found: int = _U64.unpack_from(self._held, self._pass(8))[0]
        return found

    def text(self) -> str:
        """Returns the next text."""
        content = self.take(self.u64())
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong("UTF-8", content[:_SHOWN]) from None

    def name(self) -> str:
        """Returns the next key, or name of a tensor."""
        start = self._pass(8)
        length: int = _U64.unpack_from(self._held, start)[0]
        if length > _LONGEST_NAME:
            raise self.wrong(f"a name of at most {_LONGEST_NAME} bytes", length)
        self.at = start
        return self.text()

    def _pass(self, count: int) -> int:
        """Goes on by so many bytes, which are then held, and returns where they start."""
        start, end = self.at, self.at + count
        if end > len(self._held):
            self.expect(count, 1)
            self._hold(end)
        self.at = end
        return start

    def _hold(self, end: int) -> None:
        while len(self._held) < end:
            at = len(self._held)
            piece = self._read(at, min(max(end - at, _PIECE), self._size - at))
            if not piece:
                raise ValueError("the file changed while it was read")
            self._held += piece


def _version(cursor: _Cursor) -> int:
    cursor.where = "magic"
    magic = cursor.take(len(_MAGIC))
    if magic != _MAGIC:
        raise cursor.wrong(repr(_MAGIC), magic)
    cursor.where = "version"
    version = cursor.u32()
    if version & 0xFFFF == 0 and version:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        raise cursor.wrong("a little-endian file", f"a big-endian one of version {swapped}")
    if version not in _VERSIONS:
        raise cursor.wrong("2 or 3", version)
    cursor.where = "counts"
    return version


def _metadata(cursor: _Cursor, count: int) -> tuple[dict[str, Value], int]:
    """Reads the pairs of keys and values, and which alignment they tell."""
    metadata: dict[str, Value] = {}
    alignment = _DEFAULT_ALIGNMENT
    for number in range(count):
        cursor.where = f"metadata {number} of {count}"
        key = cursor.name()
        cursor.where = f"metadata {_quoted(key)}"
        if key in metadata:
            raise cursor.wrong("one value", "a second one")
        kind = cursor.u32()
        value = _value(cursor, kind, 0)
        if key == _ALIGNMENT:
            if kind != _UINT32 or not isinstance(value, int) or value.bit_count() != 1:
                raise cursor.wrong("a power of two in 32 unsigned bits", _shown(value))
            alignment = value
        metadata[key] = value
    return metadata, alignment


def _value(cursor: _Cursor, kind: int, depth: int) -> Value:
    if kind in _NUMBERS:
        found: int | float | bool = _numbers(cursor, kind, 1)[0].item()
        return found
    if kind == _STRING:
        return cursor.text()
    if kind == _ARRAY:
        return _array(cursor, depth)
    raise _unknown(cursor, kind)


def _array(cursor: _Cursor, depth: int) -> Value:
    if depth == _DEEPEST:
        raise cursor.wrong(f"arrays in at most {_DEEPEST} arrays", "deeper ones")
    kind, count = cursor.u32(), cursor.u64()
    if kind not in _LEAST:
        raise _unknown(cursor, kind)
    cursor.expect(count, _LEAST[kind])
    if kind in _NUMBERS:
        return _numbers(cursor, kind, count)
    if kind == _STRING:
        return [cursor.text() for _ in range(count)]
    return [_array(cursor, depth + 1) for _ in range(count)]


def _numbers(cursor: _Cursor, kind: int, count: int) -> npt.NDArray[np.generic]:
    dtype = _NUMBERS[kind]
    numbers = np.frombuffer(cursor.take(count * dtype.itemsize), dtype)
    if kind != _BOOL:
        return numbers
    if count and int(numbers.max()) > 1:
        raise cursor.wrong("0 or 1 for a truth value", int(numbers.max()))
    return numbers.view(np.bool_)


def _unknown(cursor: _Cursor, kind: int) -> ValueError:
    return cursor.wrong("a type of values from 0 to 12", kind)


def _places(cursor: _Cursor, count: int, alignment: int) -> list[Place]:
    places: dict[str, Place] = {}
    for number in range(count):
        cursor.where = f"tensor {number} of {count}"
        name = cursor.name()
        cursor.where = f"tensor {_quoted(name)}"
        if name in places:
            raise cursor.wrong("one tensor of this name", "a second one")
        places[name] = _place(cursor, name, alignment)
    return list(places.values())


def _place(cursor: _Cursor, name: str, alignment: int) -> Place:
    axes = cursor.u32()
    if axes > _MOST_AXES:
        raise cursor.wrong(f"at most {_MOST_AXES} axes", axes)
    extents = [cursor.u64() for _ in range(axes)]
    number = cursor.u32()
    if number not in TYPES:
        raise cursor.wrong("a type that ggml has", f"number {number}")
    start = cursor.u64()
    if start % alignment:
        raise cursor.wrong(f"an offset that is a multiple of {alignment}", start)
    nbytes = _nbytes(cursor, TYPES[number], extents)
    return Place(name, TYPES[number].name, tuple(reversed(extents)), start, start + nbytes)


def _nbytes(cursor: _Cursor, block: BlockType, extents: list[int]) -> int:
    """The size of a tensor whose extents are given as a file has them, that of a row first."""
    row = extents[0] if extents else 1
    if row % block.elements:
        raise cursor.wrong(f"rows of a multiple of {block.elements} elements in {block.name}", row)
    nbytes = block.nbytes
    for extent in (row // block.elements, *extents[1:]):
        nbytes *= extent
        if max(nbytes, extent) >= _SIZES:  # even if a later extent is 0
            raise cursor.wrong("a size below 2^63 bytes", f"the shape {extents[::-1]}")
    return nbytes


def _check_places(places: list[Place], payload: int, size: int) -> None:
    """Refuses tensors that overlap, or that the file does not have in full."""
    before = Place("", "", (), 0, 0)
    for place in sorted(places, key=lambda place: (place.start, place.end)):
        where = f"tensor {_quoted(place.name)}"
        if payload + place.end > size:
            wanted = f"bytes {payload + place.start} to {payload + place.end} of the file"
            raise ValueError(f"{where}: expected {wanted}, which has {size}")
        if place.start == place.end:
            continue
        if place.start < before.end:
            ended = f"from {before.end} on, where {_quoted(before.name)} ends"
            raise ValueError(f"{where}: expected an offset {ended}, got {place.start}")
        before = place


def _quoted(name: str) -> str:
    return repr(name) if len(name) <= _SHOWN else f"{name[:_SHOWN]!r}..."


def _shown(value: Value) -> str:
    return repr(value) if isinstance(value, int | float) else f"a {type(value).__name__}"
