"""A kernel of several launches, one of which some streams refuse."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.reference.formats import Array

STEPS: Any = importlib.import_module("operators.steps")
SHAPE = (5, 7)
ALONE, SEVERAL = planq.host_stream(threads=1), planq.host_stream(threads=2)


def workspace_of(nbytes: int) -> Array:
    """Aligned bytes, poisoned."""
    memory = np.full(nbytes + planq.WORKSPACE_ALIGNMENT, 0xFF, np.uint8)
    start = -memory.ctypes.data % planq.WORKSPACE_ALIGNMENT
    return memory[start : start + nbytes]


def make_args() -> Any:
    """An input with gaps between rows."""
    wide = np.arange(5 * 9, dtype=np.float32).reshape(5, 9)
    output = np.full((5, 8), np.nan, np.float32)[:, :7]
    return STEPS.StepsArgs(input=wide[:, 1:8], output=output, way=np.zeros(1, np.int32))


def assert_done(args: Any, way: int) -> None:
    """The output is right, and was reached so."""
    assert (args.output == 2 * args.input + 1).all()
    assert np.isnan(args.output.base[:, 7:]).all()
    assert args.way[0] == way


@pytest.mark.parametrize(("stream", "way"), [(SEVERAL, 1), (ALONE, 2)], ids=["taken", "refused"])
def test_run_and_bound_launch_do_the_same(stream: Any, way: int) -> None:
    """All steps, and the second choice where the first is refused."""
    plan = planq.Plan.select(stream, STEPS.StepsDescriptor(shape=SHAPE))
    workspace = workspace_of(plan.workspace_size())
    ran = make_args()
    plan.run(stream, workspace, ran)
    assert_done(ran, way)
    bound = make_args()
    launch = plan.bind(workspace_of(plan.workspace_size()), bound)
    assert np.isnan(bound.output).all()
    launch(stream)
    assert_done(bound, way)
    assert ran.output.tobytes() == bound.output.tobytes()


def test_each_stream_takes_its_own_way() -> None:
    """Of one bound launch, again and again, on inputs that change."""
    plan = planq.Plan.select(planq.HOST, STEPS.StepsDescriptor(shape=SHAPE))
    args = make_args()
    launch = plan.bind(workspace_of(plan.workspace_size()), args)
    for stream, way in ((ALONE, 2), (SEVERAL, 1), (ALONE, 2)):
        args.input += 1
        launch(stream)
        assert_done(args, way)


def test_a_workspace_is_enough_for_every_extent() -> None:
    """Odd numbers of rows take twice as much, so that the largest is not the hungriest."""
    dim = planq.Dim("m", 8)
    plan = planq.Plan.select(planq.HOST, STEPS.StepsDescriptor(shape=(dim, 64)))
    sizes = [plan.workspace_size(m=m) for m in range(9)]
    assert sizes == [m * 256 * (1 + m % 2) for m in range(9)]
    assert plan.workspace_size() == 7 * 512
    for m, size in enumerate(sizes):
        fixed = planq.Plan.select(planq.HOST, STEPS.StepsDescriptor(shape=(m, 64)))
        assert fixed.workspace_size() == size
    limit = planq.PlanPreference(max_workspace_bytes=7 * 512 - 1)
    with pytest.raises(planq.NoKernelError, match="needs 3584 bytes of workspace"):
        planq.Plan.select(planq.HOST, STEPS.StepsDescriptor(shape=(dim, 64)), limit)


def test_a_call_needs_what_its_own_extents_need() -> None:
    """A byte less is too little; none is enough for none."""
    plan = planq.Plan.select(planq.HOST, STEPS.StepsDescriptor(shape=(planq.Dim("m", 8), 64)))
    for m in range(9):
        source = np.arange(m * 64, dtype=np.float32).reshape(m, 64)
        way = np.zeros(1, np.int32)
        args = STEPS.StepsArgs(input=source, output=np.empty_like(source), way=way)
        size = plan.workspace_size(m=m)
        if size:
            for call in (
                lambda w, a=args: plan.run(SEVERAL, w, a),
                lambda w, a=args: plan.bind(w, a),
            ):
                with pytest.raises(planq.WorkspaceError) as caught:
                    call(workspace_of(size - 1))
                assert (caught.value.needed, caught.value.got) == (size, size - 1)
        plan.run(SEVERAL, workspace_of(size) if size else None, args)
        assert (args.output == 2 * source + 1).all()
