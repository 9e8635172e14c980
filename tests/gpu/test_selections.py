"""A plan on a GPU takes the kernel that `explain` names, which reads every kernel's reason."""

from __future__ import annotations

import pytest

import planq
from planq.audit import kernels, selections
from planq.audit.operators import OPERATORS, all_cases
from support.gpu import Cuda

GPU = Cuda(0)


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_a_plan_has_the_kernel_that_explain_names(operator: str) -> None:
    """By cases that have every answer between them; twice, since answers are remembered."""
    cases = tuple(selections.cover(operator, "sm_90")) or all_cases(operator)
    stream = GPU.stream()
    for case in (*cases, *reversed(cases)):
        desc = OPERATORS[operator].descriptor(case.problem)
        chosen = planq.explain(desc, device=stream).chosen
        assert chosen is not None
        plan = planq.Plan.select(stream, desc)
        assert kernels.running(plan) == selections.name_of(chosen), case.id
