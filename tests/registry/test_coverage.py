"""The cases reach every CUDA row, as selection for a GPU that need not be there says."""

from __future__ import annotations

from collections import defaultdict

import planq
from support import rows
from support.operators import OPERATORS

DEVICE = "sm_90"
HANDFUL = 4


def test_every_cuda_row_takes_a_handful_of_cases_of_every_variety() -> None:
    """A gap here would be a row whose promises nothing tests on a GPU."""
    taken: dict[str, list[str]] = defaultdict(list)
    for operator, tests in OPERATORS.items():
        for case in tests.cases():
            for sku in rows.takers(operator, case.problem, DEVICE):
                taken[sku].append(tests.variety(case.problem))
    skus = [kernel.sku for _, kernel in rows.rows(planq.Backend.CUDA)]
    # Rows that differ in the dtypes alone (the last part of a SKU) go with the same varieties.
    possible: dict[str, set[str]] = defaultdict(set)
    for sku in skus:
        possible[sku.rpartition("/")[2]].update(taken[sku])
    few = {sku: len(taken[sku]) for sku in skus if len(taken[sku]) < HANDFUL}
    assert not few, f"rows with fewer than {HANDFUL} cases: {few}"
    missing = {sku: possible[sku.rpartition("/")[2]] - set(taken[sku]) for sku in skus}
    assert not any(missing.values()), {sku: gap for sku, gap in missing.items() if gap}
