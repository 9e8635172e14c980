"""The host backend still produces what an H200 produced: the digests in tests/golden/h200.json."""

from __future__ import annotations

import json
from typing import Any

import pytest

import planq
from support import golden, kernels
from support.memory import Host
from support.operators import OPERATORS

SHARES = 8


def recorded() -> dict[str, Any]:
    """The recorded operators by name."""
    content: dict[str, Any] = json.loads(golden.H200.read_text())
    operators: dict[str, Any] = content["operators"]
    return operators


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_the_host_reproduces_every_digest_of_the_gpu(operator: str, share: int) -> None:
    """Case by case, with the default host kernel."""
    digests = recorded()[operator]["cases"]
    cases = golden.all_cases(operator)
    assert [name for name, _ in digests] == [case.id for case in cases]
    for case, (name, wanted) in list(zip(cases, digests, strict=True))[share::SHARES]:
        assert golden.run_digest(Host(), operator, case, kernels.promise_of(operator)) == wanted, (
            name
        )


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_recorded_row_ran_and_every_case_was_run_by_a_row(operator: str) -> None:
    """A kernel without cases proves nothing, and a case without a kernel cannot have a digest."""
    entry = recorded()[operator]
    ran = {sku: golden.numbers(record["cases"]) for sku, record in entry["rows"].items()}
    assert all(ran.values())
    everything = set().union(*(set(taken) for taken in ran.values()))
    assert everything == set(range(len(entry["cases"])))


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_the_digests_belong_to_the_rows_of_this_build(operator: str) -> None:
    """A new or revised GPU kernel asks for a new recording."""
    built = {k.sku: k.revision for o, k in kernels.kernels(planq.Backend.CUDA) if o == operator}
    entry = recorded()[operator]
    ran = {sku: record["revision"] for sku, record in entry["rows"].items()}
    assert built == (ran if planq.build_info().cuda else {})


def test_spans_and_numbers_are_inverse() -> None:
    """The compressed case lists lose nothing."""
    for listed in ([0], [0, 1, 2, 7], [3, 5, 6], list(range(40))):
        assert golden.numbers(golden.spans(listed)) == listed
