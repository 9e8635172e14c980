"""GGUF files made byte by byte, sound and hostile, and a reader that trusts what it reads."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planq.checkpoint.gguf_header import Header

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = dict(enumerate("BbHhIif?")) | {U64: "Q", I64: "q", F64: "d"}
# Elements and bytes of a block, by the number of a type.
BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    30: (1, 2),
    28: (1, 8),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    29: (256, 56),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
    42: (64, 18),
}


class Of(NamedTuple):
    """An array: the type of its elements, and these."""

    kind: int
    items: Sequence[Any]


class Info(NamedTuple):
    """A tensor, its extents as a file has them: that of a row first."""

    name: bytes
    extents: tuple[int, ...]
    kind: int
    offset: int


def text(content: bytes) -> bytes:
    """A text with its length."""
    return struct.pack("<Q", len(content)) + content


def value(kind: int, given: Any) -> bytes:
    """A value without its type."""
    if kind == STRING:
        return text(given)
    if kind == ARRAY:
        start = struct.pack("<IQ", given.kind, len(given.items))
        return start + b"".join(value(given.kind, item) for item in given.items)
    return struct.pack(f"<{CODES[kind]}", given)


def pair(key: bytes, kind: int, given: Any) -> bytes:
    """A key and its value."""
    return text(key) + struct.pack("<I", kind) + value(kind, given)


def described(info: Info) -> bytes:
    """What a header has of a tensor."""
    axes = struct.pack(f"<I{len(info.extents)}Q", len(info.extents), *info.extents)
    return text(info.name) + axes + struct.pack("<IQ", info.kind, info.offset)


def file(
    pairs: Sequence[bytes] = (),
    infos: Sequence[bytes] = (),
    payload: bytes = b"",
    *,
    start: bytes = b"GGUF\3\0\0\0",
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    """A file of these parts.

    Args:
        pairs: Keys with their values.
        infos: What the header has of tensors.
        payload: What follows.
        start: The magic and the version.
        counts: How many tensors and pairs the file claims to have, if not those.
        alignment: Where the payload begins.
    """
    claimed = counts or (len(infos), len(pairs))
    header = start + struct.pack("<2Q", *claimed) + b"".join((*pairs, *infos))
    return header + bytes(-len(header) % alignment) + payload


class Trusting:
    """Reads a file that is known to be sound.

    Attributes:
        version: Its version.
        metadata: Its values; arrays are lists.
        infos: Its tensors.
        end: Where its header ends.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.end = 4
        self.version = self._next("I")
        tensors, pairs = self._next("Q"), self._next("Q")
        self.metadata = {self._text(): self._value(self._next("I")) for _ in range(pairs)}
        self.infos = [self._info() for _ in range(tensors)]

    def _next(self, code: str) -> Any:
        (found,) = struct.unpack_from(f"<{code}", self._content, self.end)
        self.end += struct.calcsize(f"<{code}")
        return found

    def _text(self) -> str:
        length = self._next("Q")
        self.end += length
        return self._content[self.end - length : self.end].decode()

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._text()
        if kind == ARRAY:
            inner, count = self._next("I"), self._next("Q")
            return [self._value(inner) for _ in range(count)]
        return self._next(CODES[kind])

    def _info(self) -> Info:
        name = self._text().encode()
        extents = tuple(self._next("Q") for _ in range(self._next("I")))
        return Info(name, extents, self._next("I"), self._next("Q"))


def plain(found: Any) -> Any:
    """A value with lists in place of arrays."""
    if isinstance(found, list):
        return [plain(each) for each in found]
    return found.tolist() if isinstance(found, np.ndarray) else found


def check_header(header: Header, content: bytes) -> None:
    """A header that was read is what stands in the file."""
    wanted = Trusting(content)
    assert header.version == wanted.version
    # A NaN is no NaN, but has the same words.
    assert repr({key: plain(each) for key, each in header.metadata.items()}) == repr(
        wanted.metadata
    )
    alignment = wanted.metadata.get("general.alignment", 32)
    assert header.payload == wanted.end + -wanted.end % alignment
    end = 0
    for place, info in zip(header.places, wanted.infos, strict=True):
        elements, nbytes = BLOCKS[info.kind]
        count = 1
        for extent in info.extents:
            count *= extent
        assert count % elements == 0
        assert (place.name.encode(), place.shape[::-1]) == (info.name, info.extents)
        assert place.start == info.offset
        assert place.start % alignment == 0
        assert place.end == info.offset + count // elements * nbytes
        assert header.payload + place.end <= len(content)
    for place in sorted(header.places, key=lambda each: (each.start, each.end)):
        if place.start < place.end:
            assert place.start >= end
            end = place.end
