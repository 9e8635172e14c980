"""Shapes of the family's cases: rows of whole blocks, few and many."""

from __future__ import annotations

# Rows, and how long one is: in blocks, or in runs of 256 elements, which are whole blocks of all.
BLOCKS = (((), 1), ((3,), 1), ((2, 3), 2), ((5,), 3), ((), 7), ((1, 9), 1))
RUNS = (((), 1), ((4,), 16), ((), 64), ((64,), 1), ((2, 3), 5), ((7,), 9), ((1,), 31))
EMPTY = ((0,), (0, 256), (3, 0), (2, 0, 512))


def shape_of(place: int, elements: int) -> tuple[int, ...]:
    """Of few blocks and of many in turn."""
    sizes, unit = (BLOCKS, elements) if place % 2 else (RUNS, 256)
    rows, count = sizes[place // 2 % len(sizes)]
    return (*rows, count * unit)
