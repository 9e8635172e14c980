"""Where in memory the messages of an exchange lie: offsets, which need no memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from planq.distributed._codes import Codes, Message
from planq.distributed._plans import Place

PIECE_BYTES = 32 << 20
"""What a rank sends at least in a piece: smaller ones took longer than they hid, on two H100s."""
MOST_PIECES: Final = 2


@dataclass(frozen=True)
class Piece:
    """Some whole groups of every row, which are sent together.

    Attributes:
        codes: How elements become codes.
        nodes: How many there are.
        devices: Likewise, in each node.
        first: The first element of a row that is in it.
        elements: How many of each row.
        offset: Where its messages begin in an area of memory, in bytes.
    """

    codes: Codes
    nodes: int
    devices: int
    first: int
    elements: int
    offset: int

    @cached_property
    def message(self) -> Message:
        """To a rank."""
        return Message(self.codes, self.elements)

    @cached_property
    def bundle(self) -> Message:
        """To a device, in the first of two levels: a part for every node."""
        return Message(self.codes, self.nodes * self.elements)

    @cached_property
    def size(self) -> int:
        """Bytes of an area that it takes."""
        ranks = self.nodes * self.devices
        return max(self.devices * self.bundle.size, ranks * self.message.size)

    def in_bundle(self, memory: int, rank: int) -> Place:
        """The part of a rank, where bundles lie by devices."""
        node, device = divmod(rank, self.devices)
        first = self.offset + device * self.bundle.size
        place = Place(memory, first, first + self.bundle.offset)
        return place.behind(node * self.elements, self.codes)

    def in_message(self, memory: int, slot: int) -> Place:
        """Those of one message among some that lie one after another."""
        first = self.offset + slot * self.message.size
        return Place(memory, first, first + self.message.offset)

    def slot(self, rank: int) -> int:
        """The message of a rank among those that are gathered: between nodes first."""
        node, device = divmod(rank, self.devices)
        return device * self.nodes + node


def pieces(codes: Codes, nodes: int, devices: int, width: int, most: int) -> list[Piece]:
    """Cuts rows of so many elements into ``most`` pieces, or fewer if they would be small.

    It depends on what all ranks know alike, as the messages do.
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
    """Parts of a whole, as equal as may be."""
    ends = [whole * part // parts for part in range(parts + 1)]
    yield from itertools.pairwise(ends)
