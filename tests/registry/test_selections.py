"""Selection answers what planq/audit/selections.json has: kernel, every reason, every workspace.

Recorded when PLANQ_RECORD_SELECTIONS names a file. Kernels that only a build with CUDA has are left
out where it has none.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import planq
from planq.audit import kernels, selections
from planq.audit.operators import OPERATORS, all_cases
from planq.audit.selections import Table

DEVICES = selections.DEVICES if planq.build_info().cuda else ("host",)
EVERY_CASE = "PLANQ_EVERY_SELECTION" in os.environ
# To explain one costs 10 us: an operator with more of them is asked about a part of its cases.
CANDIDATES = 50_000


@pytest.fixture(scope="module", autouse=True)
def _recorded() -> None:
    """Records first, where a file is named."""
    target = os.environ.get("PLANQ_RECORD_SELECTIONS")
    if target:
        selections.write(Path(target), selections.record())


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_case_and_every_kernel_is_recorded(operator: str) -> None:
    """A new case or kernel asks for a new recording; one that is gone or elsewhere is an error."""
    keys = [selections.key(case) for case in all_cases(operator)]
    assert len(set(keys)) == len(keys)
    assert set(keys) == set(selections.recorded(operator, "host"))
    assert tuple(selections.built_names(operator)) == selections.recorded_names(operator)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_reason_and_workspace_is_the_recorded_one(operator: str, device: str) -> None:
    """Case by case; where that takes minutes, by cases that have every answer between them."""
    cases = all_cases(operator)
    names = frozenset(selections.recorded_names(operator))
    if len(cases) * len(names) > CANDIDATES and not EVERY_CASE:
        cases = tuple(selections.cover(operator, device))
    recorded = selections.recorded(operator, device)
    for case in cases:
        desc = OPERATORS[operator].descriptor(case.problem)
        found = selections.explained(desc, device, names)
        differs = selections.difference(recorded[selections.key(case)], found)
        assert not differs, f"{operator}, {case.id} on {device}: {differs}"


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_plan_on_the_host_has_the_recorded_kernel_and_workspace(operator: str) -> None:
    """All cases: a plan costs little."""
    recorded = selections.recorded(operator, "host")
    for case in all_cases(operator):
        plan = planq.Plan.select(planq.HOST, OPERATORS[operator].descriptor(case.problem))
        found = (kernels.running(plan), f"chosen; {plan.workspace_size()} bytes")
        assert found == recorded[selections.key(case)].chosen, f"{operator}, {case.id} on host"


TABLE = Table((("a.b/cuda/f32:m", "chosen; 0 bytes"),), "12ab, 3 for another dtype", frozenset("x"))
CHANGED = [
    (Table((), TABLE.refused, TABLE.elsewhere), "a.b/cuda/f32:m chosen; 0 bytes\nnow: nothing"),
    (Table((("a.b/cuda/f32:m", "chosen; 8 bytes"),), "", frozenset()), "f32:m chosen; 8 bytes"),
    (Table(TABLE.lines, "34cd", frozenset(), "3 x dtype: no"), "now: 34cd\n3 x dtype: no"),
    (Table(TABLE.lines, TABLE.refused, frozenset("y")), "recorded: x\nnow: y"),
]


@pytest.mark.parametrize(("found", "words"), CHANGED, ids=range(len(CHANGED)))
def test_a_difference_is_put_in_words(found: Table, words: str) -> None:
    """And a build without kernels of the other backend differs in nothing."""
    assert words in selections.difference(TABLE, found)
    assert not selections.difference(TABLE, Table(TABLE.lines, TABLE.refused, frozenset()))


def test_only_recorded_kernels_and_the_chosen_one_are_compared() -> None:
    """A kernel that was appended changes no answer of the others, unless it is chosen."""
    operator = "min_max"
    desc = OPERATORS[operator].descriptor(all_cases(operator)[0].problem)
    whole = selections.explained(desc, "host", frozenset(selections.built_names(operator)))
    alone = selections.explained(desc, "host", frozenset())
    assert alone.lines == (whole.chosen,)
    assert selections.difference(whole, alone)
