"""Truth values as operands: by value, in memory, and written."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.reference.formats import Array

TALLY: Any = importlib.import_module("operators.tally")
ROWS = np.array([[1, -2, 3], [-4, -5, 6]], np.float32)


def make_operands(**changes: Any) -> dict[str, Any]:
    """Results that nothing has written yet."""
    made = {"rows": ROWS, "count": np.array(-1), "size": np.array(-1), "found": np.array(True)}
    return {"negative": True, **made, **changes}


def make_plan(shape: tuple[Any, ...] = ROWS.shape) -> planq.Plan:
    """A plan of the small shape."""
    return planq.Plan.select(planq.HOST, TALLY.TallyDescriptor(shape=shape))


def run(operands: dict[str, Any]) -> tuple[int, bool]:
    """What a run counts, the same as by a bound launch."""
    for launch in (
        lambda plan, args: plan.run(planq.HOST, None, args),
        lambda plan, args: plan.bind(None, args)(planq.HOST),
    ):
        operands["count"][...] = -1
        launch(make_plan(operands["rows"].shape), TALLY.TallyArgs(**operands))
    return int(operands["count"]), bool(operands["found"])


TRUE, FALSE = np.array(True), np.array([False])
BUFFER = memoryview(np.array([True]))


class Interface:
    """Memory that only the array interface describes."""

    def __init__(self, array: Array) -> None:
        """Keeps the array."""
        self.array = array
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize(
    ("negative", "value"),
    [
        *[(True, True), (False, False), (np.True_, True), (np.False_, False)],
        *[(TRUE, True), (FALSE, False), (np.array(2, np.uint8).view(bool), True)],
        *[(torch.tensor(True), True), (torch.tensor([False]), False)],
        *[(BUFFER, True), (Interface(TRUE), True), (Interface(FALSE), False)],
        ((TRUE.ctypes.data, (), None, "bool", "host"), True),
        ((FALSE.ctypes.data, (1,), None, "bool", "host"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_truth_value_by_value_and_in_memory(negative: Any, value: bool) -> None:
    """In every way to give it."""
    rows = ROWS[:, :2]
    assert run(make_operands(rows=rows, negative=negative)) == (3 if value else 1, True)
    nothing = np.full((1, 3), -1 if not value else 1, np.float32)
    assert run(make_operands(rows=nothing, negative=negative)) == (0, False)


def test_a_bound_launch_reads_memory_again() -> None:
    """And freezes values."""
    flag = np.array(True)
    for given, counts in ((flag, (2, 1)), (True, (2, 2))):
        operands = make_operands(rows=np.array([[-1, -1, 0]], np.float32), negative=given)
        flag[...] = True
        launch = make_plan((1, 3)).bind(None, TALLY.TallyArgs(**operands))
        launch(planq.HOST)
        assert operands["count"] == counts[0]
        flag[...] = False
        launch(planq.HOST)
        assert operands["count"] == counts[1]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("negative", 1, "True or False, or shape () bool on host"),
        ("negative", 1.0, "True or False, or shape () bool on host"),
        ("negative", np.int64(1), "True or False, or shape () bool on host"),
        ("negative", "True", "True or False, or shape () bool on host"),
        ("negative", None, "True or False, or shape () bool on host"),
        ("negative", np.array(1, np.uint8), "True or False, or shape () bool on host"),
        ("negative", np.zeros(2, bool), "True or False, or shape () bool on host"),
        ("negative", np.zeros((1, 1), bool), "True or False, or shape () bool on host"),
        ("found", True, "shape () bool on host"),
        ("found", np.array(0, np.int8), "shape () bool on host"),
        ("count", np.array(True), "shape () int64 on host"),
        ("rows", np.zeros((2, 3), bool), "shape (2, 3) float32 or None on host"),
    ],
    ids=repr,
)
def test_other_operands_are_refused(name: str, value: Any, expected: str) -> None:
    """By what they have to be; nothing is written."""
    operands = make_operands(**{name: value})
    with pytest.raises(planq.ArgumentError) as caught:
        make_plan().run(planq.HOST, None, TALLY.TallyArgs(**operands))
    assert (caught.value.operand, caught.value.expected) == (name, expected)
    assert operands["size"] == -1


def test_a_tensor_of_truth_values_says_so() -> None:
    """By the name of the type."""
    status = make_plan().can_implement(TALLY.TallyArgs(**make_operands(rows=ROWS < 0)))
    assert status.reason.endswith("got (2, 3) bool on host")


@pytest.mark.parametrize(
    "dtype", [planq.DType.BOOL, "bool", bool, np.bool_, np.dtype(bool), torch.bool], ids=repr
)
def test_the_type_has_the_names_of_others(dtype: Any) -> None:
    """Python's, NumPy's and torch's; operators take it for numbers nowhere."""
    assert planq.DType.parse(dtype) is planq.DType.BOOL
    with pytest.raises(planq.DescriptorError, match="expected one of"):
        planq.QuantizeDescriptor(shape=(4,), input_dtype=dtype, output_dtype="int8")


def test_outputs_are_made_of_it() -> None:
    """By either library."""
    libraries: list[tuple[Any, Any]] = [(np, np.dtype(bool)), (torch, torch.bool)]
    for library, dtype in libraries:
        made = make_plan().empty_outputs(library)
        assert made["found"].dtype == dtype
        assert made["found"].shape == ()
