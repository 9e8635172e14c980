"""Operands that share memory, which collectives refuse before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch

from planq import _core
from planq.distributed._checks import Tensors, name_of
from planq.errors import ArgumentError, WorkspaceError

_WORKSPACE: Final = -1
_INPUT: Final = 0
_OUTPUT: Final = 1

# (first byte, end byte, whether it is written, one of the kinds above, index in a list) of an
# operand or of a part of it. Plain tuples are fast: a list may have hundreds of tensors.
Span: TypeAlias = tuple[int, int, bool, int, int]


@dataclass(frozen=True, slots=True)
class Operands:
    """What a collective reads and writes.

    Attributes:
        tensors: The argument ``tensors`` of the call.
        given: The tensors in it.
        outs: An output for each.
        places: The elements ``[begin, end)`` that are this rank's, in the larger of input and
            output. There, input and output may share memory.
        gathers: Whether the outputs are larger than the inputs.
    """

    tensors: Tensors
    given: Sequence[torch.Tensor]
    outs: Sequence[torch.Tensor]
    places: Sequence[tuple[int, int]]
    gathers: bool

    def check(self, workspace: torch.Tensor | None, needed: int) -> None:
        """Refuses memory that is written and belongs to another operand as well.

        Raises:
            ArgumentError: An output overlaps an input or another output.
            WorkspaceError: The workspace overlaps an operand.
        """
        if workspace is None and self._apart():
            return
        spans = self._spans()
        if workspace is not None:
            first = workspace.data_ptr()
            spans.append((first, first + needed, True, _WORKSPACE, 0))
        # Sorted by their begin, a span overlaps an earlier one exactly if it overlaps the earlier
        # one that ends last.
        anything: Span | None = None
        written: Span | None = None
        for span in sorted(each for each in spans if each[0] < each[1]):
            first, end, is_written, _, _ = span
            before = anything if is_written else written  # two reads may overlap
            if before is not None and before[1] > first:
                raise self._error(before, span, needed, workspace)
            if anything is None or anything[1] < end:
                anything = span
            if is_written and (written is None or written[1] < end):
                written = span

    def _apart(self) -> bool:
        """Whether a single input and its output are disjoint, or the same memory: the fast case."""
        if len(self.given) != 1:
            return False
        [x], [y], [place] = self.given, self.outs, self.places
        first, other = x.data_ptr(), y.data_ptr()
        if first + x.nbytes <= other or other + y.nbytes <= first:
            return True
        return first == other and x.nbytes == y.nbytes and place == (0, x.numel())

    def _spans(self) -> list[Span]:
        """All spans, without the part that an input may share with its output."""
        found: list[Span] = []
        gathers = self.gathers
        for i, (x, y, place) in enumerate(zip(self.given, self.outs, self.places, strict=True)):
            read, written = x.data_ptr(), y.data_ptr()
            read_end, written_end = read + x.nbytes, written + y.nbytes
            found.append((written, written_end, True, _OUTPUT, i))
            whole = written if gathers else read
            part = whole + place[0] * x.itemsize, whole + place[1] * x.itemsize
            if gathers and (read, read_end) == part:
                continue
            if not gathers and (written, written_end) == part:
                found.append((read, part[0], False, _INPUT, i))
                found.append((part[1], read_end, False, _INPUT, i))
                continue
            found.append((read, read_end, False, _INPUT, i))
        return found

    def _name(self, span: Span) -> str:
        """The name of an operand in error messages."""
        return name_of("out" if span[3] == _OUTPUT else "tensors", self.tensors, span[4])

    def _error(self, a: Span, b: Span, needed: int, workspace: torch.Tensor | None) -> Exception:
        """The error for two overlapping operands, of which at least one is written."""
        for span, other in ((a, b), (b, a)):
            if span[3] == _WORKSPACE and workspace is not None:
                problem = f"it overlaps {self._name(other)}"
                return WorkspaceError(needed, workspace.nbytes, _core.WORKSPACE_ALIGNMENT, problem)
        span, other = (b, a) if b[2] else (a, b)
        expected, actual = "memory of its own", f"memory that overlaps {self._name(other)}"
        return ArgumentError(self._name(span), expected, actual)
