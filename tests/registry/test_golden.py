"""References still give what GPUs produced: the digests in planq/audit/golden.

Every host kernel that promises bits has the reference's in all cases: tests/registry/test_kernels.
So the host produces what GPUs produced, and each digest is one of an array that NumPy made.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import planq
from planq.audit import golden_files, kernels
from planq.audit.digests import digest, run_digest
from planq.audit.memory import Host
from planq.audit.operators import OPERATORS, all_cases, expected, name_of
from support import golden

EVERY = 20


@cache
def recorded() -> dict[str, Any]:
    """The recorded operators by name."""
    operators: dict[str, Any] = golden.latest()["operators"]
    return operators


def waiting(operator: str) -> set[str]:
    """The operator's kernels that no GPU has digested."""
    return {name for name in golden.undigested() if golden.operator_of(name) == operator}


def undigested(operator: str) -> list[str]:
    """The names of the operator's cases without a digest, whose kernels do not wait."""
    if waiting(operator):
        return []
    digests = dict(recorded()[operator]["cases"])
    return [case.id for case in all_cases(operator) if case.id not in digests]


DIGESTED = sorted(recorded())


@pytest.mark.parametrize("operator", DIGESTED)
def test_the_reference_reproduces_every_digest_of_the_gpu(operator: str) -> None:
    """Case by case; those that wait, and those of kernels that do, have no digest yet."""
    digests = dict(recorded()[operator]["cases"])
    cases = [case for case in all_cases(operator) if case.id in digests]
    assert [case.id for case in cases] == list(digests)
    for case in cases:
        assert digest(expected(case)) == digests[case.id], case.id


@pytest.mark.parametrize("operator", DIGESTED)
def test_every_case_without_a_digest_waits_for_one(operator: str) -> None:
    """By a word in its name; and a word that no such case has is taken out."""
    words = [word for name, word in golden.undigested_cases() if name == operator]
    left = undigested(operator)
    assert all(any(word in name for word in words) for name in left)
    assert all(any(word in name for name in left) for word in words)


@pytest.mark.parametrize("operator", DIGESTED)
def test_the_host_reproduces_digests_of_the_gpu(operator: str) -> None:
    """A case in so many, by the kernel that is selected."""
    digests = dict(recorded()[operator]["cases"])
    for case in [case for case in all_cases(operator) if case.id in digests][::EVERY]:
        assert run_digest(Host(), operator, case, kernels.PROMISE) == digests[case.id], case.id


@pytest.mark.parametrize("operator", DIGESTED)
def test_every_recorded_kernel_ran_and_every_case_was_run_by_one(operator: str) -> None:
    """A kernel without cases proves nothing, and a case without a kernel cannot have a digest."""
    entry = recorded()[operator]
    bodies = [body for record in entry["skus"].values() for body in record["bodies"].values()]
    ran = [set(golden_files.numbers(taken)) for taken in bodies]
    assert all(ran)
    everything = set().union(*ran)
    assert everything == set(range(len(entry["cases"])))


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_the_digests_belong_to_the_kernels_of_this_build(operator: str) -> None:
    """A new or revised GPU kernel asks for a new recording, or waits for one by name."""
    built = {name_of(k): k.revision for o, k in golden_files.digested_kernels() if o == operator}
    ran = {
        f"{sku}:{body}": record["revision"]
        for sku, record in recorded().get(operator, {"skus": {}})["skus"].items()
        for body in record["bodies"]
    }
    assert not waiting(operator) & ran.keys()
    ran |= {name: built.get(name, 0) for name in waiting(operator)}
    assert built == (ran if planq.build_info().cuda else {})


def test_spans_and_numbers_are_inverse() -> None:
    """The compressed case lists lose nothing."""
    for listed in ([0], [0, 1, 2, 7], [3, 5, 6], list(range(40))):
        assert golden_files.numbers(golden_files.spans(listed)) == listed


def test_gpus_agree_on_every_case() -> None:
    """Of kernels whose revisions are equal, which those of this version are."""
    digests = [
        {
            (operator, case): digest
            for operator, entry in file["operators"].items()
            for case, digest in entry["cases"]
        }
        for file in golden.files()
    ]
    assert len(digests) > 1
    shared = set.intersection(*(set(each) for each in digests))
    assert len(shared) > 10_000
    assert all(len({each[case] for each in digests}) == 1 for case in shared)
