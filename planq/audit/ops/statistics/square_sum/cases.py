"""The fixed problems and inputs of `square_sum`."""

from __future__ import annotations

from functools import cache

from planq.audit.ops.statistics import sums
from planq.audit.ops.statistics.sums import Case

ORDERS = (None,)


@cache
def sampled_cases() -> tuple[Case, ...]:
    """Every input dtype, order and shape."""
    return sums.sampled_cases(ORDERS)


@cache
def empty_cases() -> tuple[Case, ...]:
    """Tensors without elements."""
    return sums.empty_cases(ORDERS)
