"""The cases reach every CUDA kernel, as selection for a GPU that need not be there says.

The answers are the recorded ones: test_selections.py compares them with selection itself.
"""

from __future__ import annotations

from collections import defaultdict

import planq
from support import kernels, selections
from support.operators import OPERATORS

DEVICE = "sm_90"
HANDFUL = 4


def test_every_cuda_row_takes_a_handful_of_cases_of_every_variety() -> None:
    """A gap here would be a kernel whose promises nothing tests on a GPU."""
    taken: dict[str, list[str]] = defaultdict(list)
    for operator, tests in OPERATORS.items():
        recorded = selections.recorded(operator, DEVICE)
        for case in tests.cases():
            for sku in recorded[selections.key(case)].takers:
                taken[sku].append(tests.variety(case.problem))
    # An operator's kernels of the same dtypes (the last part of a SKU) go with the same varieties.
    group = {
        kernel.sku: (operator, kernel.sku.rpartition("/")[2])
        for operator, kernel in kernels.kernels(planq.Backend.CUDA)
    }
    possible: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sku, key in group.items():
        possible[key].update(taken[sku])
    few = {sku: len(taken[sku]) for sku in group if len(taken[sku]) < HANDFUL}
    assert not few, f"rows with fewer than {HANDFUL} cases: {few}"
    missing = {sku: possible[key] - set(taken[sku]) for sku, key in group.items()}
    assert not any(missing.values()), {sku: gap for sku, gap in missing.items() if gap}
