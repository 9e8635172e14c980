"""A caller's thread that flushes subnormals to zero changes no bit of any host kernel."""

from __future__ import annotations

import pytest
import torch

import planq
from planq.audit import kernels
from planq.audit.memory import Host
from planq.audit.operators import expected, inputs_of, name_of
from planq.audit.promises import judge_of
from planq.audit.runner import Bench
from support.alike import representatives

ALONE = Host(1)  # the caller's own thread computes everything
KERNELS = [
    pytest.param(o, name_of(k), id=name_of(k)) for o, k in kernels.kernels(planq.Backend.HOST)
]
WHOLE = representatives(str(param.id) for param in KERNELS)


@pytest.mark.parametrize(("operator", "name"), KERNELS)
def test_a_caller_that_flushes_subnormals_changes_no_bit(operator: str, name: str) -> None:
    """Neither of a selection nor of a run; and the caller's setting is kept."""
    tests = kernels.ADAPTERS[operator]
    most = 4 if name in WHOLE else 2
    for case in kernels.spread(kernels.accepted(operator, name, ALONE.name), most):
        inputs, outputs = inputs_of(case), expected(case)
        desc, pref = tests.descriptor(case.problem), kernels.pinned(name)
        assert torch.set_flush_denormal(True)
        try:
            bench = Bench(ALONE, desc, pref=pref)
            bench.load(inputs)
            bench.run()
            kept = float(torch.tensor(1e-310, dtype=torch.float64) * 1) == 0
        finally:
            torch.set_flush_denormal(False)
        assert kept
        what = f"{name} on {case.id}, flushing"
        bench.check(inputs, outputs, what, judge_of(bench.plan, case, inputs))
