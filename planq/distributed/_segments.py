"""Which memory launches use for the groups of a row: the tensors' own if possible, or copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from planq.distributed._layout import Piece
from planq.distributed._plans import Spot
from planq.distributed._shards import Shards

DIRECT_ELEMENTS = 8192
"""The fewest elements of a rank's part for which a tensor in a list is used directly. Smaller
tensors are copied to rows, so that one launch takes many."""
ROWS: Final = 0
"""The number of the memory of copies. The tensors that are used directly follow, in their order."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Whole groups that are contiguous in every row and lie in one memory.

    Attributes:
        first: The first element in a row.
        elements: How many elements.
        memory: The number of the memory.
        at: Where rank 0's first element lies in the memory, in elements.
        step: The distance from one rank to the next, in elements.
    """

    first: int
    elements: int
    memory: int
    at: int
    step: int


class Run(NamedTuple):
    """The part of a segment that is in a piece.

    Attributes:
        offset: The first element in the piece.
        elements: How many elements.
        memory: The number of the memory.
        at: Where rank 0's first element lies in the memory, in elements.
        step: The distance from one rank to the next, in elements.
    """

    offset: int
    elements: int
    memory: int
    at: int
    step: int

    def spot(self, memories: int, rank: int, size: int) -> Spot:
        """The place of a rank's first element, with elements of ``size`` bytes.

        ``memories`` is added to the number of the memory.
        """
        return Spot(memories + self.memory, (self.at + rank * self.step) * size)


class Segments:
    """How a row is composed of parts of tensors.

    Attributes:
        direct: The indices of the tensors that launches read and write directly.
        copied: The indices of the tensors that are copied to rows.
        rows: The layout of the copied rows.
        all: All segments in the order of a row.
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
        """Adds a copied part; it is merged with a copied part before it."""
        if self.all and self.all[-1].memory == ROWS:
            last = self.all.pop()
            first, elements, at = last.first, last.elements + elements, last.at
        self.all.append(Segment(first, elements, ROWS, at, self.rows.width))

    def runs(self, piece: Piece) -> list[Run]:
        """The parts of all segments that are in a piece."""
        return list(_runs(self.all, piece))


def whole_rows(piece: Piece, width: int) -> list[Run]:
    """The part of a piece in rows that lie one after another."""
    return [Run(0, piece.elements, ROWS, piece.first, width)]


def directly(shards: Shards) -> list[int]:
    """The tensors that consist of whole groups on every rank, and are large or the only one."""
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
