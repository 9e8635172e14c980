"""Which memory the groups of a row lie in: the tensors' own where they can, rows of copies else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from planq.distributed._layout import Piece
from planq.distributed._plans import Spot
from planq.distributed._shards import Shards

DIRECT_ELEMENTS = 8192
"""Of the parts of a tensor in a list; smaller ones are copied to rows, many for a launch."""
ROWS: Final = 0
"""The memory of copies; tensors that are read and written themselves follow, in their order."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Whole groups that lie together in every row, and in one memory.

    Attributes:
        first: The first element in a row.
        elements: How many.
        memory: Which one.
        at: The element of it that is the first of rank 0.
        step: Elements of it from one rank to the next.
    """

    first: int
    elements: int
    memory: int
    at: int
    step: int


class Run(NamedTuple):
    """What a piece has of a segment.

    Attributes:
        offset: Elements of the piece before it.
        elements: How many.
        memory: Which one.
        at: The element of it that is the first of rank 0.
        step: Elements of it from one rank to the next.
    """

    offset: int
    elements: int
    memory: int
    at: int
    step: int

    def spot(self, memories: int, rank: int, size: int) -> Spot:
        """The first element of a rank, where elements have ``size`` bytes.

        ``memories``: the number of the first of those that are counted here.
        """
        return Spot(memories + self.memory, (self.at + rank * self.step) * size)


class Segments:
    """How a row of tensors is put together.

    Attributes:
        direct: The tensors that are read and written themselves, by their numbers.
        copied: Those that are copied to rows.
        rows: The rows of copies.
        all: In the order of a row.
    """

    def __init__(self, shards: Shards, direct: Sequence[int]) -> None:
        others = [i for i, count in enumerate(shards.counts) if count and i not in set(direct)]
        self.direct, self.copied = list(direct), others
        self.rows = Shards(tuple([shards.counts[i] for i in others]), shards.ranks, shards.codes)
        self.all: list[Segment] = []
        memories = {tensor: memory for memory, tensor in enumerate(direct, ROWS + 1)}
        starts = dict(zip(others, self.rows.starts, strict=True))
        for tensor, (first, length) in enumerate(zip(shards.starts, shards.lengths, strict=True)):
            if tensor in memories:
                self.all.append(Segment(first, length, memories[tensor], 0, length))
            elif length:
                self._add_copied(first, shards.codes.padded(length), starts[tensor])

    def _add_copied(self, first: int, elements: int, at: int) -> None:
        """Those of neighbours are one segment."""
        if self.all and self.all[-1].memory == ROWS:
            last = self.all.pop()
            first, elements, at = last.first, last.elements + elements, last.at
        self.all.append(Segment(first, elements, ROWS, at, self.rows.width))

    def runs(self, piece: Piece) -> list[Run]:
        """What a piece has of each segment."""
        return list(_runs(self.all, piece))


def whole_rows(piece: Piece, width: int) -> list[Run]:
    """What it has of rows that lie one after another."""
    return [Run(0, piece.elements, ROWS, piece.first, width)]


def directly(shards: Shards) -> list[int]:
    """The tensors that are whole groups of every rank, and large, or the only one."""
    unit = shards.ranks * shards.codes.group_size
    fewest = DIRECT_ELEMENTS if len(shards.counts) > 1 else 1
    pairs = enumerate(zip(shards.counts, shards.lengths, strict=True))
    return [i for i, (count, part) in pairs if count % unit == 0 and part >= fewest]


def _runs(segments: Sequence[Segment], piece: Piece) -> Iterator[Run]:
    for each in segments:
        first = max(each.first, piece.first)
        elements = min(each.first + each.elements, piece.first + piece.elements) - first
        if elements > 0:
            at = each.at + first - each.first
            yield Run(first - piece.first, elements, each.memory, at, each.step)
