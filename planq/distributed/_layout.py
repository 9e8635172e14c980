"""Where the messages of an exchange lie, as offsets in memory areas."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from planq.distributed._codes import Codes, Message
from planq.distributed._plans import Place

PIECE_BYTES = 32 << 20
"""The fewest bytes that a rank sends in a piece. Smaller pieces cost more time than their overlap
saved, measured on two H100."""
MOST_PIECES: Final = 2


@dataclass(frozen=True)
class Piece:
    """Some whole groups of every row, which are sent together.

    Attributes:
        codes: How elements become codes.
        nodes: How many nodes there are.
        devices: How many devices each node has.
        first: The first element of each row that is in the piece.
        elements: How many elements of each row are in the piece.
        offset: Where its messages begin in a memory area, in bytes.
    """

    codes: Codes
    nodes: int
    devices: int
    first: int
    elements: int
    offset: int

    @cached_property
    def message(self) -> Message:
        """The message for one rank."""
        return Message(self.codes, self.elements)

    @cached_property
    def bundle(self) -> Message:
        """The message for one device in the first level: it has a part for every node."""
        return Message(self.codes, self.nodes * self.elements)

    @cached_property
    def size(self) -> int:
        """Bytes that it takes in a memory area."""
        ranks = self.nodes * self.devices
        return max(self.devices * self.bundle.size, ranks * self.message.size)

    def in_bundle(self, memory: int, rank: int) -> Place:
        """The place of a rank's part in the bundles, which are ordered by device."""
        node, device = divmod(rank, self.devices)
        first = self.offset + device * self.bundle.size
        place = Place(memory, first, first + self.bundle.offset)
        return place.behind(node * self.elements, self.codes)

    def in_message(self, memory: int, slot: int) -> Place:
        """The place of one message among messages that lie one after another."""
        first = self.offset + slot * self.message.size
        return Place(memory, first, first + self.message.offset)

    def slot(self, rank: int) -> int:
        """The position of a rank's message among the gathered ones, which are device-major."""
        node, device = divmod(rank, self.devices)
        return device * self.nodes + node


def pieces(codes: Codes, nodes: int, devices: int, width: int, most: int) -> list[Piece]:
    """Cuts rows of ``width`` elements into ``most`` pieces, or fewer if they would be small.

    All ranks have to cut alike, so this depends only on values that all ranks share.
    """
    groups, others = codes.groups_of(width), nodes * devices - 1
    sent = others * Message(codes, width).size
    count = max(1, min(most, sent // PIECE_BYTES, groups))
    found, offset = [], 0
    for first, last in _spans(groups, count):
        elements = (last - first) * codes.group_size
        piece = Piece(codes, nodes, devices, first * codes.group_size, elements, offset)
        found.append(piece)
        offset += piece.size
    return found


def _spans(whole: int, parts: int) -> Iterator[tuple[int, int]]:
    """Cuts ``whole`` into ``parts`` ranges that are as equal as possible."""
    ends = [whole * part // parts for part in range(parts + 1)]
    yield from itertools.pairwise(ends)
