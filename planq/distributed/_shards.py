"""Where the elements of tensors lie in the rows that ranks send each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch

from planq.distributed._codes import Codes


@dataclass(frozen=True)
class Shards:
    """Tensors cut for ranks: a row for each, with its part of every tensor one after another.

    A part is ``length = ceil(n / ranks)`` elements; the last parts may be shorter, or empty. In a
    row each begins a group, and is filled up with +0 to whole groups.
    """

    counts: tuple[int, ...]
    ranks: int
    codes: Codes

    @cached_property
    def lengths(self) -> list[int]:
        """Elements of a part of each tensor."""
        return [-(-count // self.ranks) for count in self.counts]

    @cached_property
    def width(self) -> int:
        """Elements of a row."""
        return sum(map(self.codes.padded, self.lengths))

    @cached_property
    def exact(self) -> bool:
        """Whether one tensor is the rows, without a gap."""
        return len(self.counts) == 1 and self.counts[0] == self.ranks * self.width

    def own(self, rank: int) -> list[int]:
        """Elements of a rank's part of each tensor."""
        return [
            max(0, min(length, count - rank * length))
            for count, length in zip(self.counts, self.lengths, strict=True)
        ]

    def places(self, rank: int) -> list[tuple[int, int]]:
        """Where a rank's part of each tensor begins and ends."""
        begins = (min(rank * n, count) for n, count in zip(self.lengths, self.counts, strict=True))
        return [(begin, begin + own) for begin, own in zip(begins, self.own(rank), strict=True)]

    def fill(self, rows: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
        """Copies tensors to the rows."""
        if sum(self.counts) != rows.numel():
            rows.zero_()
        for row, flat in self._pairs(rows, tensors):
            row.copy_(flat)

    def read(self, rows: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
        """Copies the rows to tensors."""
        for row, flat in self._pairs(rows, tensors):
            flat.copy_(row)

    def parts(self, row: torch.Tensor, rank: int) -> list[torch.Tensor]:
        """Those of each tensor in a rank's row."""
        spans = zip(self._starts, self.own(rank), strict=True)
        return [row[first : first + count] for first, count in spans]

    @cached_property
    def _starts(self) -> list[int]:
        """Where the part of each tensor begins in a row."""
        return list(accumulate(map(self.codes.padded, self.lengths), initial=0))[:-1]

    def _pairs(
        self, rows: torch.Tensor, tensors: Sequence[torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """What lies in the rows beside what it is of the tensors: whole parts, then a rest.

        Slices would take most of the time that many small tensors take.
        """
        width, base = self.width, rows.storage_offset()
        spans = zip(self._starts, self.lengths, self.counts, tensors, strict=True)
        for first, length, count, tensor in spans:
            whole, rest = divmod(count, length) if length else (0, 0)
            if whole:
                held = rows.as_strided((whole, length), (width, 1), base + first)
                yield held, tensor.as_strided((whole, length), (length, 1))
            if rest:
                held = rows.as_strided((rest,), (1,), base + whole * width + first)
                given = tensor.storage_offset() + whole * length
                yield held, tensor.as_strided((rest,), (1,), given)
