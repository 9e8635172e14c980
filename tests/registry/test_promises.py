"""What judges a kernel by its promise refuses what is beyond it."""

from __future__ import annotations

import numpy as np
import pytest

import planq
from planq.audit import kernels
from planq.audit.memory import Host
from planq.audit.promises import Sums, ulp_apart, within_bound, within_ulp
from planq.audit.reference.formats import Array

ONE = np.ones(1, np.float32)
NEXT = np.nextafter(ONE, np.float32(2))
TINY = np.array([1e-45], np.float32)
BOUND = planq.ErrorBound(
    constant=1.0,
    per_term=0.5,
    terms=4,
    epsilon=2.0**-23,
    least_factor=0.0,
    output_rounding=False,
)


@pytest.mark.parametrize(
    ("got", "wanted", "apart"),
    [
        (ONE, ONE, 0),
        (NEXT, ONE, 1),
        (-NEXT, -ONE, 1),
        (TINY, -TINY, 2),
        (np.zeros(1, np.float32), -np.zeros(1, np.float32), 0),
        (np.array([np.nan]), -np.array([np.nan]), 0),
        (np.array([65504], np.float16), np.array([np.inf], np.float16), 1),
    ],
)
def test_ulp_are_steps_from_number_to_number(got: Array, wanted: Array, apart: int) -> None:
    """Across zero too; all NaN are one."""
    assert ulp_apart(got, wanted) == apart


def test_an_error_in_ulp_is_at_most_what_is_promised() -> None:
    """One more is refused; so are codes, which have no ulp."""
    within_ulp(1)("output", NEXT, ONE)
    with pytest.raises(AssertionError, match="2 ulp, promised are 1"):
        within_ulp(1)("output", np.nextafter(NEXT, np.float32(2)), ONE)
    with pytest.raises(AssertionError, match="has no ulp"):
        within_ulp(1)("output", np.ones(1, np.int8), np.ones(1, np.int8))
    with pytest.raises(AssertionError):
        within_ulp(1)("output", np.array([np.nan]), np.ones(1))


def test_an_error_of_a_sum_is_within_the_bound() -> None:
    """Three epsilon of the magnitude here; what is no sum is held to its bits."""
    sums = {"output": Sums(np.ones(1), np.full(1, 2.0))}
    judge = within_bound(BOUND, sums)
    judge("a case: output", ONE + np.float32(6 * 2.0**-23), ONE)
    with pytest.raises(AssertionError, match="beyond the bound"):
        judge("a case: output", ONE + np.float32(7 * 2.0**-23), ONE)
    with pytest.raises(AssertionError, match="beyond the bound"):
        judge("a case: output", np.array([np.nan]), ONE)
    with pytest.raises(AssertionError, match="differs"):
        judge("a case: count", NEXT, ONE)


def test_a_promise_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generated tests hold both of the kernels that promise less than bits to something."""
    for name, other in (
        ("thirds/host/products:elements", within_ulp(0)),
        ("matmul3/host/by_fours:rows", within_ulp(0)),
    ):
        operator = name.partition("/")[0]
        kernels.check_bits(Host(), operator, name)
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "judge_of", lambda *_, judge=other: judge)
            with pytest.raises(AssertionError, match="promised are 0"):
                kernels.check_bits(Host(), operator, name)
