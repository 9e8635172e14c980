"""A Dim that only operands have which the caller may leave out."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import planq

TALLY: Any = importlib.import_module("operators.tally")
EVERY: Any = importlib.import_module("operators.every_kind")
M = planq.Dim("m", max=16)


def make_plan() -> planq.Plan:
    """Rows that are known at run, in two operands that may be left out."""
    return planq.Plan.select(planq.HOST, TALLY.TallyDescriptor(shape=(M, 3)))


def make_args(**changes: Any) -> Any:
    """Results that nothing has written yet, and no rows."""
    made = {name: np.array(-7) for name in ("count", "size")}
    return TALLY.TallyArgs(**{"negative": True, **made, "found": np.array(True), **changes})


@pytest.mark.parametrize("names", [("rows",), ("copy",), ("rows", "copy")])
def test_any_operand_that_has_it_tells_the_extent(names: tuple[str, ...]) -> None:
    """By run and by a bound launch, at every extent."""
    plan = make_plan()
    for m in (0, 1, 7, 16):
        tensors = {name: np.full((m, 3), -1, np.float32) for name in names}
        ran, bound = make_args(**tensors), make_args(**tensors)
        plan.run(planq.HOST, None, ran)
        assert ran.size == 3 * m
        assert ran.count == (3 * m if "rows" in names else 0)
        plan.bind(None, bound)(planq.HOST)
        assert bound.size == 3 * m


def test_a_call_without_any_of_them_is_refused() -> None:
    """By the first that would tell; nothing is written."""
    plan, args = make_plan(), make_args()
    sentence = (
        "rows: expected shape (m <= 16, 3) float32 on host, got None; "
        "no operand tells m: give rows or copy"
    )
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, args)
    assert (str(caught.value), caught.value.operand) == (sentence, "rows")
    assert plan.can_implement(args).reason == sentence
    with pytest.raises(planq.ArgumentError) as caught:
        plan.bind(None, args)
    assert str(caught.value) == sentence
    assert (args.size, args.count, bool(args.found)) == (-7, -7, True)


def test_a_plan_of_fixed_extents_takes_such_a_call() -> None:
    """It knows what nobody tells."""
    plan, args = planq.Plan.select(planq.HOST, TALLY.TallyDescriptor(shape=(5, 3))), make_args()
    plan.run(planq.HOST, None, args)
    assert (args.size, args.count) == (15, 0)


def test_a_dim_that_no_operand_has_is_refused() -> None:
    """No call could tell it."""
    with pytest.raises(planq.DescriptorError) as caught:
        EVERY.EveryKindDescriptor(shape=(4, 5), other=(M, 7), input_dtype="float32")
    assert str(caught.value) == (
        "other: Dim('m', max=16) is an axis of no operand, so that no call could tell it; "
        "give its extent"
    )
