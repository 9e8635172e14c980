"""What FSDP2 gives each rank of gradients that were reduced as codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collectives.formulas import Problem
from planq.audit.reference.formats import Array


def padded(gradient: Array, ranks: int) -> Array:
    """As many rows as every rank gets as many of, zeros behind the others: a part for each rank."""
    rows = -(-len(gradient) // ranks) * ranks
    made = np.zeros((rows, *gradient.shape[1:]), gradient.dtype)
    made[: len(gradient)] = gradient
    return made.reshape(ranks, -1)


def expected(
    gradients: Sequence[Sequence[Array]], levels: tuple[int, ...], options: dict[str, Any]
) -> list[list[bytes]]:
    """Means of the rows that a rank has, which are fewer on the last, or none: of each parameter.

    ``gradients``: of every rank, those of all parameters.
    """
    ranks = len(gradients)
    given = [np.concatenate([padded(g, ranks) for g in whole], axis=1) for whole in gradients]
    problem = Problem(shape=given[0].shape, levels=levels, mean=True, **options)
    found = []
    for rank, part in enumerate(problem.reduce_scatter(given)):
        first, parts = 0, []
        for gradient in gradients[rank]:
            length = padded(gradient, ranks).shape[1]
            count = gradient.reshape(-1)[rank * length : (rank + 1) * length].size
            parts.append(part[first : first + count].tobytes())
            first += length
        found.append(parts)
    return found
