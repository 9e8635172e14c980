"""The workspace is required exactly when it is needed, and checked when it is given."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

import planq
from support.samples import make_descriptor, make_sample

NEEDED = 1000
NOOP: Any = importlib.import_module("operators.noop")
DESC = NOOP.NoopDescriptor(shape=(8,), input_dtype="float32", output_dtype="int8")
PREF = planq.PlanPreference(sku="noop/host/exact", body="staged")


def aligned(nbytes: int, skew: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bytes at an address that is `skew` past a multiple of 256."""
    raw = np.full(nbytes + 512, 0xA5, np.uint8)
    start = -raw.ctypes.data % 256 + skew
    return raw[start : start + nbytes]


def make_args() -> Any:
    """Operands of the tests' own operator."""
    return NOOP.NoopArgs(
        input=np.zeros(8, np.float32),
        output=np.zeros(8, np.int8),
        scale=np.zeros(1, np.float32),
        zero_point=np.zeros(1, np.int32),
    )


def make_plan() -> planq.Plan:
    """A plan that needs 1000 bytes."""
    plan = planq.Plan.select(planq.HOST, DESC, PREF)
    assert plan.workspace_size() == NEEDED
    return plan


@pytest.mark.parametrize(
    "workspace",
    [
        aligned(NEEDED),
        aligned(NEEDED + 777),
        aligned(NEEDED).view(np.int8),
        torch.from_numpy(aligned(NEEDED)),
        (aligned(NEEDED).ctypes.data, NEEDED),
    ],
    ids=["exact", "larger", "int8", "torch", "pointer"],
)
def test_enough_aligned_bytes_are_taken(workspace: Any) -> None:
    """As a byte tensor of any library or as (pointer, bytes)."""
    make_plan().run(planq.HOST, workspace, make_args())
    make_plan().bind(workspace, make_args())(planq.HOST)


@pytest.mark.parametrize(
    ("workspace", "got"),
    [
        (None, 0),
        (aligned(NEEDED - 1), NEEDED - 1),
        (aligned(0), 0),
        (aligned(NEEDED, skew=1), NEEDED),
        (aligned(NEEDED, skew=128), NEEDED),
        ((aligned(NEEDED).ctypes.data + 64, NEEDED), NEEDED),
        ((aligned(NEEDED).ctypes.data, NEEDED - 256), NEEDED - 256),
        ((0, NEEDED), NEEDED),
    ],
    ids=["none", "small", "empty", "odd", "half", "pointer", "few bytes", "null"],
)
def test_too_little_or_misaligned_workspace_is_refused(workspace: Any, got: int) -> None:
    """With what was needed, what came and the alignment."""
    for attempt in (
        lambda: make_plan().run(planq.HOST, workspace, make_args()),
        lambda: make_plan().bind(workspace, make_args()),
    ):
        with pytest.raises(planq.WorkspaceError) as caught:
            attempt()
        error = caught.value
        assert (error.needed, error.got, error.alignment) == (NEEDED, got, 256)
        assert str(error).startswith("workspace: ")
        assert str(NEEDED) in str(error)


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, read-only."""
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "workspace",
    [
        aligned(4 * NEEDED).view(np.float32),
        aligned(NEEDED).reshape(10, 100),
        aligned(2 * NEEDED)[::2],
        frozen(aligned(NEEDED)),
        torch.empty(NEEDED, dtype=torch.uint8, device="meta"),
        "bytes",
        b"\0" * NEEDED,
        NEEDED,
        (1, 2, 3),
        ("pointer", NEEDED),
        (aligned(NEEDED).ctypes.data, -1),
    ],
    ids=[
        "floats",
        "two axes",
        "strided",
        "read-only",
        "meta",
        "text",
        "bytes",
        "number",
        "three",
        "no pointer",
        "negative",
    ],
)
def test_what_is_no_byte_tensor_is_refused(workspace: Any) -> None:
    """By the same error."""
    with pytest.raises(planq.WorkspaceError):
        make_plan().run(planq.HOST, workspace, make_args())


def test_a_workspace_over_an_operand_is_refused() -> None:
    """Its contents are undefined on exit."""
    plan, memory = make_plan(), aligned(NEEDED)
    args = make_args()
    args.input = memory[512:544].view(np.float32)
    with pytest.raises(planq.WorkspaceError, match="overlaps"):
        plan.run(planq.HOST, memory, args)


@pytest.mark.parametrize("workspace", [None, aligned(64), aligned(64, skew=3)])
def test_a_plan_that_needs_none_takes_none_or_ignores_it(workspace: Any) -> None:
    """And writes nothing to it."""
    sample = make_sample()
    plan = planq.Plan.select(planq.HOST, make_descriptor())
    assert plan.workspace_size() == 0
    plan.run(planq.HOST, workspace, sample.args())
    assert sample.right()
    assert workspace is None or (workspace == 0xA5).all()


def test_a_refused_workspace_leaves_the_outputs_alone() -> None:
    """Nothing is launched."""
    sample = make_sample()
    plan = planq.Plan.select(planq.HOST, make_descriptor())
    with pytest.raises(planq.WorkspaceError):
        plan.run(planq.HOST, "workspace", sample.args())
    assert sample.untouched()
