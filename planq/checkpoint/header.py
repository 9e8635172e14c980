"""The header of a safetensors file, read once and judged by the rules of the format.

The safetensors library maps a file to look at it, and a file that shrinks under a mapping kills the
process. So this module checks a copy of the header and the size of the file, and reads nothing
else. Every header that it accepts, the library accepts too. The library also accepts duplicate
names, and spellings that no writer uses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from planq.checkpoint.strict_json import parse

# Bits of an element, by the format's name of its type.
BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
LENGTH_BYTES = 8
METADATA = "__metadata__"
LARGEST_HEADER = 100_000_000

_KEYS = {"dtype", "shape", "data_offsets"}
# Sizes in a header, and products of extents, have to fit into 64 unsigned bits.
_SIZES = 2**64


class Place(NamedTuple):
    """One tensor as the header names it; `start` and `end` count bytes of the payload."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def parse_header(text: bytes, payload_bytes: int) -> tuple[dict[str, str], list[Place]]:
    """Returns the free-form strings and the tensors of a header.

    Args:
        text: The header without its length.
        payload_bytes: How many bytes of the file follow the header.

    Raises:
        ValueError: It breaks a rule of the format, or contradicts the size of the file.
    """
    header = parse(text.decode("utf-8"), parse_int=_size)
    if not isinstance(header, dict):
        raise ValueError("the header is no JSON object")
    metadata = _strings(header.pop(METADATA, None))
    places = [_place(name, facts) for name, facts in header.items()]
    _check_places(places, payload_bytes)
    return metadata, places


def _size(digits: str) -> int:
    """Reads a size: decimal digits, without sign, fraction or exponent."""
    if not digits.isdecimal() or len(digits) > len(str(_SIZES)) or int(digits) >= _SIZES:
        raise ValueError(f"{digits[:24]} is no size")
    return int(digits)


def _strings(metadata: Any) -> dict[str, str]:
    found = {} if metadata is None else metadata
    if not isinstance(found, dict):
        raise ValueError(f"{METADATA}: expected an object of strings")
    for key, text in found.items():
        if not isinstance(text, str):
            raise ValueError(f"{METADATA}: {key!r} is no string")
        _check_text(key)
        _check_text(text)
    return found


def _check_text(text: str) -> None:
    """Refuses a lone surrogate: JSON can spell it, but UTF-8 cannot encode it."""
    if not text.isascii():
        text.encode("utf-8")


def _place(name: str, facts: Any) -> Place:
    """Reads one entry. Unlike the library, it refuses spellings that no writer uses."""
    _check_text(name)
    match facts:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end]}:
            if facts.keys() == _KEYS and all(type(size) is int for size in (*shape, start, end)):
                return Place(name, dtype, tuple(shape), start, end)
    raise ValueError(f"tensor {name!r}: expected a dtype, a shape and two data_offsets")


def _check_places(places: list[Place], payload_bytes: int) -> None:
    """Refuses payloads with gaps or overlaps, or whose sizes contradict types and shapes."""
    at = 0
    for place in sorted(places, key=lambda place: (place.start, place.end)):
        where = f"tensor {place.name!r}"
        if place.start != at or place.end < at:
            raise ValueError(f"{where}: expected bytes from {at} on, found {list(place[3:])}")
        at = place.end
        nbytes = _nbytes(where, place)
        if at - place.start != nbytes:
            found = at - place.start
            raise ValueError(f"{where}: expected {nbytes} bytes of its shape, found {found}")
    if at != payload_bytes:
        raise ValueError(f"expected {at} bytes of tensors, found {payload_bytes}")


def _nbytes(where: str, place: Place) -> int:
    if place.dtype not in BITS:
        raise ValueError(f"{where}: unknown type {place.dtype!r}")
    bits = 1
    for extent in (*place.shape, BITS[place.dtype]):
        bits *= extent
        if bits >= _SIZES:  # even if a later extent is 0
            raise ValueError(f"{where}: larger than any file")
    if bits % 8:
        raise ValueError(f"{where}: ends within a byte")
    return bits // 8
