"""One plan for every number of rows: every host kernel, at several extents."""

from __future__ import annotations

import pytest

import planq
from planq.audit import dims, kernels
from planq.audit.memory import Host
from planq.audit.operators import name_of
from support.alike import representatives

HOST = Host()
KERNELS = [
    pytest.param(operator, name_of(kernel), id=name_of(kernel))
    for operator, kernel in kernels.kernels(planq.Backend.HOST)
]
WHOLE = representatives(str(param.id) for param in KERNELS)


@pytest.mark.parametrize(("operator", "name"), KERNELS)
def test_one_plan_gives_the_bytes_of_the_plans_of_its_extents(operator: str, name: str) -> None:
    """At 0, 1, 2, 7 and the maximum, pinned and not, run and bound."""
    most = dims.MOST_CASES if name in WHOLE else 1
    tried = dims.check_dims(HOST, operator, name, most)
    assert tried or not dims.admits(operator, name), "no case has a Dim that the kernel takes"
