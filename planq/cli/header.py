"""The header of a safetensors file, by the rules of the format.

The safetensors library maps a file to check it, and a file that shrinks under a mapping kills the
process. So the header is read once, and what was read is what is checked here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from planq.cli.strict_json import parse

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
LARGEST_HEADER = 100_000_000
_LARGEST_COUNT = (1 << 63) - 1


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
        payload_bytes: How much of the file follows it.

    Raises:
        ValueError: It breaks a rule of the format, or does not go with the size of the file.
    """
    header = parse(text.decode(), _count)
    if not isinstance(header, dict):
        raise ValueError("the header is no JSON object")
    metadata = _strings(header.pop("__metadata__", None))
    places = [_place(name, facts) for name, facts in header.items()]
    at = 0
    for place in sorted(places, key=lambda place: (place.start, place.end)):
        if place.start != at:
            raise ValueError(f"tensor {place.name!r} starts at {place.start}, expected {at}")
        at = place.end
    if at != payload_bytes:
        raise ValueError(f"the tensors have {at} bytes, the file has {payload_bytes} for them")
    return metadata, places


def _strings(metadata: object) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("__metadata__ is no JSON object of strings")
    _check_unicode(metadata)
    _check_unicode(metadata.values())
    return metadata


def _place(name: str, facts: Any) -> Place:
    _check_unicode([name])
    match facts:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end], **rest} if (
            not rest and all(type(number) is int for number in (*shape, start, end))
        ):
            bits = _elements(name, shape) * _bits(name, dtype)
        case _:
            raise ValueError(f"tensor {name!r}: expected a dtype, a shape and two data_offsets")
    if bits != 8 * (end - start):
        raise ValueError(f"tensor {name!r}: its shape takes {bits} bits, not {end - start} bytes")
    return Place(name, dtype, tuple(shape), start, end)


def _bits(name: str, dtype: str) -> int:
    if dtype not in BITS:
        raise ValueError(f"tensor {name!r}: no dtype is called {dtype!r}")
    return BITS[dtype]


def _elements(name: str, shape: list[int]) -> int:
    """The product of the extents, which a count of 64 bits holds also if one of them is 0."""
    product = 1
    for extent in shape:
        product *= extent or 1
        if product > _LARGEST_COUNT // 64:
            raise ValueError(f"tensor {name!r}: its shape overflows")
    return 0 if 0 in shape else product


def _count(digits: str) -> int:
    """Reads an integer: a header has none below zero, nor beyond a size."""
    number = int(digits) if len(digits) < 20 and not digits.startswith("-") else -1
    if not 0 <= number <= _LARGEST_COUNT:
        raise ValueError(f"{digits[:20]} is no count of anything")
    return number


def _check_unicode(texts: Iterable[str]) -> None:
    """Raises for half a surrogate pair, which JSON can spell and UTF-8 cannot."""
    for text in texts:
        text.encode()
