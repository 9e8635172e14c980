"""The cases reach every CUDA kernel, as selection for a GPU that need not be there says.

The answers are the recorded ones: test_selections.py compares them with selection itself.
"""

from __future__ import annotations

from collections import defaultdict

import planq
from planq.audit import kernels, selections
from planq.audit.operators import OPERATORS

DEVICE = "sm_90"
HANDFUL = 4


def test_every_cuda_row_takes_a_handful_of_cases_of_every_variety() -> None:
    """A gap here would be a kernel whose promises nothing tests on a GPU."""
    taken: dict[str, list[str]] = defaultdict(list)
    for operator, tests in OPERATORS.items():
        recorded = selections.recorded(operator, DEVICE)
        for case in tests.cases():
            for name in recorded[selections.key(case)].takers:
                taken[name].append(tests.variety(case.problem))
    # An operator's kernels of the same dtypes go with the same varieties; one of all has its own.
    group = {
        selections.name_of(kernel): (operator, kernel.dtypes or kernel.body)
        for operator, kernel in kernels.kernels(planq.Backend.CUDA)
    }
    possible: dict[tuple[str, object], set[str]] = defaultdict(set)
    for name, key in group.items():
        possible[key].update(taken[name])
    few = {name: len(taken[name]) for name in group if len(taken[name]) < HANDFUL}
    assert not few, f"rows with fewer than {HANDFUL} cases: {few}"
    missing = {name: possible[key] - set(taken[name]) for name, key in group.items()}
    assert not any(missing.values()), {name: gap for name, gap in missing.items() if gap}
