"""Large tables of which every test takes a share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

SHARES = 3


def share(number: int, *choices: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """A third of all combinations of one choice of each, by the sum of their numbers.

    Three tests with consecutive numbers have every combination between them. Each alone has every
    choice with every other, if the rest of the choices are enough for three sums.
    """
    for numbers in itertools.product(*(range(len(each)) for each in choices)):
        if (sum(numbers) + number) % SHARES == 0:
            yield tuple(each[n] for each, n in zip(choices, numbers, strict=True))
