"""Pages of a cache of keys and values, which texts share.

All layers have one pool: a page has a number, and in each layer it is the same place. So a text has
one list of pages, and a step one block table.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np

from planq.errors import PlanqError

if TYPE_CHECKING:
    from collections.abc import Iterable

Array = np.ndarray[Any, Any]


class PagesError(PlanqError):
    """A cache has no free page.

    Attributes:
        needed: How many pages were asked for.
        free: How many there are.
    """

    code = "pages"

    def __init__(self, needed: int, free: int, total: int) -> None:
        told = f"expected {needed} free pages of the cache, got {free} of {total}"
        super().__init__(f"{told}; release texts, or make the network with more pages")
        self.needed, self.free = needed, free


class Pages:
    """The free pages of a cache. The lowest ones go first, so that every run has the same pages.

    Args:
        count: How many pages the cache has.
        size: How many tokens a page holds.
    """

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self._free = list(range(count))

    def __len__(self) -> int:
        """How many are free."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Takes so many pages, or none.

        Raises:
            PagesError: There are fewer.
        """
        if count > len(self._free):
            raise PagesError(count, len(self._free), self.count)
        return [heapq.heappop(self._free) for _ in range(count)]

    def give(self, pages: Iterable[int]) -> None:
        """Gives pages back."""
        for page in pages:
            heapq.heappush(self._free, page)

    def of(self, tokens: int) -> int:
        """How many pages so many tokens take."""
        return -(-tokens // self.size)

    def slots(self, pages: Array, first: int, count: int) -> Array:
        """Where so many tokens of a text go, from token `first` on, as `kv_cache_append` has it."""
        places = np.arange(first, first + count)
        return pages[places // self.size] * self.size + places % self.size
