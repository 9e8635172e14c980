"""Operands that share memory, which collectives refuse before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from planq import _core
from planq.distributed._checks import Tensors, name_of
from planq.errors import ArgumentError, WorkspaceError

_WORKSPACE: Final = "workspace"


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes ``[first, end)`` of a contiguous operand, or of a part of it."""

    name: str
    first: int
    end: int
    written: bool = False

    @staticmethod
    def of(name: str, tensor: torch.Tensor, *, written: bool = False) -> Span:
        """Of all of a tensor."""
        first = tensor.data_ptr()
        return Span(name, first, first + tensor.nbytes, written)

    def part(self, begin: int, end: int) -> Span:
        """Those of some bytes of it."""
        return Span(self.name, self.first + begin, self.first + end, self.written)

    def lies_on(self, other: Span) -> bool:
        """Whether the bytes are the same."""
        return (self.first, self.end) == (other.first, other.end)


@dataclass(frozen=True, slots=True)
class Operands:
    """What a collective reads and writes.

    Attributes:
        tensors: As they were given.
        given: The tensors.
        outs: An output for each.
        places: Of what is larger, the input or its output, the elements ``[begin, end)`` that are
            this rank's: there both may be one memory.
        gathers: Whether outputs are the larger ones.
    """

    tensors: Tensors
    given: Sequence[torch.Tensor]
    outs: Sequence[torch.Tensor]
    places: Sequence[tuple[int, int]]
    gathers: bool

    def check(self, workspace: torch.Tensor | None, needed: int) -> None:
        """Refuses memory that is written and that another operand has as well.

        Raises:
            ArgumentError: It is that of an output.
            WorkspaceError: It is that of the workspace.
        """
        if workspace is None and self._apart():
            return
        spans = list(self._spans())
        if workspace is not None:
            spans.append(Span.of(_WORKSPACE, workspace[:needed], written=True))
        spans = sorted((each for each in spans if each.first < each.end), key=lambda x: x.first)
        # Of all spans that begin before another, the one that ends last meets it, if one does.
        anything: Span | None = None
        written: Span | None = None
        for span in spans:
            before = anything if span.written else written  # reading what is read is no fault
            if before is not None and before.end > span.first:
                raise _error(before, span, needed, workspace)
            anything = _later(anything, span)
            written = _later(written, span) if span.written else written

    def _apart(self) -> bool:
        """Whether there is one input, and its output lies elsewhere or on all of it."""
        if len(self.given) != 1:
            return False
        [x], [y], [place] = self.given, self.outs, self.places
        first, other = x.data_ptr(), y.data_ptr()
        if first + x.nbytes <= other or other + y.nbytes <= first:
            return True
        return first == other and x.nbytes == y.nbytes and place == (0, x.numel())

    def _spans(self) -> Iterator[Span]:
        """All of them, without what an input may share with its output."""
        for i, (x, y, place) in enumerate(zip(self.given, self.outs, self.places, strict=True)):
            read = Span.of(name_of("tensors", self.tensors, i), x)
            out = Span.of(name_of("out", self.tensors, i), y, written=True)
            yield out
            begin, end = (each * x.itemsize for each in place)
            if self.gathers and read.lies_on(out.part(begin, end)):
                continue
            if not self.gathers and out.lies_on(read.part(begin, end)):
                yield read.part(0, begin)
                yield read.part(end, x.nbytes)
                continue
            yield read


def _later(held: Span | None, span: Span) -> Span:
    """The one that ends last."""
    return span if held is None or held.end < span.end else held


def _error(a: Span, b: Span, needed: int, workspace: torch.Tensor | None) -> Exception:
    """Of two operands, one of which at least is written."""
    for span, other in ((a, b), (b, a)):
        if span.name == _WORKSPACE and workspace is not None:
            problem = f"it overlaps {other.name}"
            return WorkspaceError(needed, workspace.nbytes, _core.WORKSPACE_ALIGNMENT, problem)
    span, other = (b, a) if b.written else (a, b)
    return ArgumentError(span.name, "memory of its own", f"memory that overlaps {other.name}")
