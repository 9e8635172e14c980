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
    """Elements on their way between tensors and rows.

    Attributes:
        targets: Where they go.
        sources: Where they are, one for each of those.
        zeroed: What becomes +0 before, if not all of it is a target.
    """

    targets: list[torch.Tensor]
    sources: list[torch.Tensor]
    zeroed: torch.Tensor | None = None

    @torch.no_grad()
    def run(self) -> None:
        """Copies each to its place."""
        if self.zeroed is not None:
            self.zeroed.zero_()
        if len(self.targets) > 1:
            torch._foreach_copy_(self.targets, self.sources)
        elif self.targets:
            self.targets[0].copy_(self.sources[0])


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

    def filling(self, rows: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Copy:
        """Of tensors to the rows."""
        held, flat = self._pairs(rows, tensors)
        return Copy(held, flat, rows if sum(self.counts) != rows.numel() else None)

    def reading(self, rows: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Copy:
        """Of the rows to tensors."""
        held, flat = self._pairs(rows, tensors)
        return Copy(flat, held)

    def filling_part(self, row: torch.Tensor, rank: int, tensors: Sequence[torch.Tensor]) -> Copy:
        """Of a rank's parts of tensors to its row."""
        return Copy(
            self._parts(row, rank), [each.view(-1) for each in tensors if each.numel()], row
        )

    def reading_part(self, row: torch.Tensor, rank: int, tensors: Sequence[torch.Tensor]) -> Copy:
        """Of a rank's row to its parts of tensors."""
        return Copy([each.view(-1) for each in tensors if each.numel()], self._parts(row, rank))

    def _parts(self, row: torch.Tensor, rank: int) -> list[torch.Tensor]:
        """Those of each tensor in a rank's row, which are not empty."""
        return _taken(row, self._cuts[rank])

    @cached_property
    def starts(self) -> list[int]:
        """Where the part of each tensor begins in a row."""
        return list(accumulate(map(self.codes.padded, self.lengths), initial=0))[:-1]

    @cached_property
    def _cuts(self) -> list[list[tuple[int, bool]]]:
        """How each row is cut: elements, and whether they are a tensor's or filling."""
        found = []
        for rank in range(self.ranks):
            spans = zip(self.own(rank), map(self.codes.padded, self.lengths), strict=True)
            cuts = [cut for own, held in spans for cut in ((own, True), (held - own, False))]
            found.append([cut for cut in cuts if cut[0]])
        return found

    def _pairs(
        self, rows: torch.Tensor, tensors: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """What lies in the rows, beside what it is of the tensors: whole parts, then a rest.

        Views take most of the time that many small tensors take: one for each part would be more.
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
    """Those parts of a row that are a tensor's."""
    views = row.split_with_sizes([size for size, _ in cuts])
    return [view for view, (_, taken) in zip(views, cuts, strict=True) if taken]
