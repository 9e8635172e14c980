"""Norms of the statistics family as torch operations, in planq's order of sums."""

from __future__ import annotations

from typing import Any

import torch

import planq
from harness.formulas.segments import Operands, wide


def tree_sum(terms: torch.Tensor) -> torch.Tensor:
    """Neighbours in pairs, then pairs of sums: a sum without a neighbour goes up as it is."""
    while terms.numel() > 1:
        even = terms.numel() // 2 * 2
        terms = torch.cat((terms[0:even:2] + terms[1:even:2], terms[even:]))
    return terms


class Norm:
    """A norm of all elements, or without a `p` their square sum."""

    def __init__(self, desc: Any) -> None:
        self.p = getattr(desc, "p", None)

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The one number."""
        x = wide(given["input"]).flatten()
        if self.p is planq.NormOrder.INFINITY:
            return (x.abs().amax().reshape(1),)
        total = tree_sum(x.abs() if self.p is planq.NormOrder.ONE else x * x)
        if self.p is planq.NormOrder.TWO:  # on processors that of float32 is not always the nearest
            total = total.double().sqrt().to(total.dtype)
        return (total,)
