"""Where the elements of tensors lie in the rows that ranks send each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch

from planq.distributed._codes import Codes


class Copy(NamedTuple):
    """Copies between tensors and rows.

    Attributes:
        targets: Views that are written.
        sources: A view to read for each target.
        zeroed: Rows that are set to +0 first, as targets do not cover them.
    """

    targets: list[torch.Tensor]
    sources: list[torch.Tensor]
    zeroed: torch.Tensor | None = None

    @torch.no_grad()
    def run(self) -> None:
        """Enqueues the copies on torch's current stream."""
        if self.zeroed is not None:
            self.zeroed.zero_()
        if len(self.targets) > 1:
            torch._foreach_copy_(self.targets, self.sources)
        elif self.targets:
            self.targets[0].copy_(self.sources[0])


@dataclass(frozen=True)
class Shards:
    """Tensors cut for ranks: a row for each rank, with its part of every tensor, one after another.

    A part has ``length = ceil(n / ranks)`` elements; the last parts may be shorter, or empty. In a
    row, each part begins a new group and is padded with +0 to whole groups.
    """

    counts: tuple[int, ...]
    ranks: int
    codes: Codes

    @cached_property
    def lengths(self) -> list[int]:
        """The elements of a rank's part, for each tensor."""
        return [-(-count // self.ranks) for count in self.counts]

    @cached_property
    def width(self) -> int:
        """Elements of a row."""
        return sum(map(self.codes.padded, self.lengths))

    @cached_property
    def exact(self) -> bool:
        """Whether there is one tensor, and it is the rows without padding."""
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

    def filling(self, rows: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Copy:
        """Copies from tensors to the rows."""
        held, flat = self._pairs(rows, tensors)
        return Copy(held, flat, rows if sum(self.counts) != rows.numel() else None)

    def reading(self, rows: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Copy:
        """Copies from the rows to tensors."""
        held, flat = self._pairs(rows, tensors)
        return Copy(flat, held)

    def filling_part(self, row: torch.Tensor, rank: int, tensors: Sequence[torch.Tensor]) -> Copy:
        """Copies from a rank's parts of tensors to its row."""
        return Copy(
            self._parts(row, rank), [each.view(-1) for each in tensors if each.numel()], row
        )

    def reading_part(self, row: torch.Tensor, rank: int, tensors: Sequence[torch.Tensor]) -> Copy:
        """Copies from a rank's row to its parts of tensors."""
        return Copy([each.view(-1) for each in tensors if each.numel()], self._parts(row, rank))

    def _parts(self, row: torch.Tensor, rank: int) -> list[torch.Tensor]:
        """Views of the parts of tensors in a rank's row, without empty ones."""
        return _taken(row, self._cuts[rank])

    @cached_property
    def starts(self) -> list[int]:
        """Where the part of each tensor begins in a row."""
        return list(accumulate(map(self.codes.padded, self.lengths), initial=0))[:-1]

    @cached_property
    def _cuts(self) -> list[list[tuple[int, bool]]]:
        """How each row is cut: numbers of elements, and whether they are a tensor's or padding."""
        found = []
        for rank in range(self.ranks):
            spans = zip(self.own(rank), map(self.codes.padded, self.lengths), strict=True)
            cuts = [cut for own, held in spans for cut in ((own, True), (held - own, False))]
            found.append([cut for cut in cuts if cut[0]])
        return found

    def _pairs(
        self, rows: torch.Tensor, tensors: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Pairs of views, in the rows and in the tensors: all whole parts at once, then a rest.

        With many small tensors, making views takes most of the time. So there is not one per part.
        """
        width, base = self.width, rows.storage_offset()
        spans = zip(self.starts, self.lengths, self.counts, tensors, strict=True)
        held, flat = [], []
        for first, length, count, tensor in spans:
            whole, rest = divmod(count, length) if length else (0, 0)
            if whole:
                held.append(rows.as_strided((whole, length), (width, 1), base + first))
                flat.append(tensor.as_strided((whole, length), (length, 1)))
            if rest:
                held.append(rows.as_strided((rest,), (1,), base + whole * width + first))
                given = tensor.storage_offset() + whole * length
                flat.append(tensor.as_strided((rest,), (1,), given))
        return held, flat


def _taken(row: torch.Tensor, cuts: Sequence[tuple[int, bool]]) -> list[torch.Tensor]:
    """Views of the parts of a row that are a tensor's."""
    views = row.split_with_sizes([size for size, _ in cuts])
    return [view for view, (_, taken) in zip(views, cuts, strict=True) if taken]
