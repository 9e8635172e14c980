"""A fixed amount of host memory, lent out one piece after another."""

from __future__ import annotations

import mmap
import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

ALIGNMENT: Final = 64
"""Of each piece, and of each operand in it."""


def rounded_up(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(slots=True)
class Piece:
    """Memory that was taken.

    Attributes:
        start: Where it begins in the ring.
        end: Where the next one may begin.
        memory: Its bytes.
        returned: Whether it was given back; those before it may still be in use.
    """

    start: int
    end: int
    memory: Bytes
    returned: bool = False


class Ring:
    """Hands out memory of one allocation, whose pages the system provides when they are used.

    Attributes:
        memory: All of it.
        is_pinned: Whether a GPU can copy to it without waiting.
    """

    def __init__(self, nbytes: int) -> None:
        """Reserves addresses for so many bytes."""
        pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory: Bytes = np.frombuffer(pages, np.uint8)
        self.is_pinned = False
        self._taken: deque[Piece] = deque()
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Piece | None:
        """Memory of so many bytes in one piece; None if there is no room. It never waits."""
        size = rounded_up(max(nbytes, 1))
        with self._lock:
            start = self._place(size)
            if start is None:
                return None
            piece = Piece(start, start + size, self.memory[start : start + nbytes])
            self._taken.append(piece)
            return piece

    def give_back(self, piece: Piece) -> None:
        """Takes memory back. Room is reused in the order in which it was taken."""
        with self._lock:
            piece.returned = True
            while self._taken and self._taken[0].returned:
                self._taken.popleft()

    def _place(self, size: int) -> int | None:
        """Where a piece of this size can begin."""
        end = self.memory.size
        if not self._taken:
            return 0 if size <= end else None
        first, last = self._taken[0], self._taken[-1]
        if last.start < first.start:  # the last ones went round
            return last.end if size <= first.start - last.end else None
        if size <= end - last.end:
            return last.end
        return 0 if size <= first.start else None
