"""The header of a safetensors file.

The safetensors library is the judge of a header, but it maps the file to look at it, and a file
that shrinks under a mapping kills the process. So the header is read once, and the library is shown
a file in memory that has this header and the size of the true one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

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
LARGEST_HEADER = 100_000_000


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
    _check(text, payload_bytes)
    header = parse(text)
    metadata = header.pop("__metadata__", None) or {}
    return metadata, [_place(name, facts) for name, facts in header.items()]


def _check(text: bytes, payload_bytes: int) -> None:
    """Lets the library judge."""
    fd = os.memfd_create("header", os.MFD_CLOEXEC)
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(len(text).to_bytes(LENGTH_BYTES, "little") + text)
        os.ftruncate(fd, LENGTH_BYTES + len(text) + payload_bytes)
        with safe_open(f"/proc/self/fd/{fd}", framework="numpy"):
            pass
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    finally:
        with suppress(OSError):
            os.close(fd)


def _place(name: str, facts: Any) -> Place:
    """Takes an entry apart; the library also takes spellings that no writer uses, as a list."""
    match facts:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end]}:
            return Place(name, dtype, tuple(shape), start, end)
        case _:
            raise ValueError(f"tensor {name!r}: expected a dtype, a shape and two data_offsets")
