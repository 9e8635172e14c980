"""Lists of tensors as operands: three hundred of them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.reference.formats import Array

LISTS: Any = importlib.import_module("operators.list300")
# Ranks 0 to 3, some without elements.
SHAPES = tuple([(), (i % 7 + 1,), (i % 5, 3), (2, i % 3 + 1, 2)][i % 4] for i in range(300))
RATE = 0.375
Given = dict[str, Any]


def make_plan() -> planq.Plan:
    """A plan of the three hundred."""
    return planq.Plan.select(planq.HOST, LISTS.List300Descriptor(shapes=SHAPES))


def make_operands() -> Given:
    """Numbers that are exact in every sum, another for every member."""
    values = [
        (np.arange(math.prod(shape), dtype=np.float32) + i).reshape(shape)
        for i, shape in enumerate(SHAPES)
    ]
    gradient = [np.full(shape, i % 16, np.float32) for i, shape in enumerate(SHAPES)]
    return {
        "parameter": values,
        "gradient": gradient,
        "rate": RATE,
        "sums": np.full(len(SHAPES), np.nan),
    }


def assert_done(operands: Given, before: Given, steps: int = 1) -> None:
    """Every member, in its place."""
    for i, (now, then) in enumerate(zip(operands["parameter"], before["parameter"], strict=True)):
        last = then - np.float32(RATE * (i % 16)) * (steps - 1)
        assert np.array_equal(now, last - np.float32(RATE * (i % 16))), i
        assert operands["sums"][i] == last.sum(dtype=np.float64), i


def run(operands: Given) -> None:
    """At once."""
    make_plan().run(planq.HOST, None, LISTS.List300Args(**operands))


def bind(operands: Given) -> None:
    """By a bound launch."""
    make_plan().bind(None, LISTS.List300Args(**operands))(planq.HOST)


def test_a_list_has_the_bytes_of_its_members() -> None:
    specs, operands = make_plan().descriptor.operands(), make_operands()
    assert specs["parameter"].nbytes == sum(member.nbytes for member in operands["parameter"])
    assert specs["sums"].nbytes == operands["sums"].nbytes


@pytest.mark.parametrize("launch", [run, bind])
@pytest.mark.parametrize("sequence", [list, tuple, iter])
def test_members_are_taken_in_order(
    launch: Callable[[Given], None], sequence: Callable[[Iterable[Any]], Any]
) -> None:
    """From anything that can be walked through."""
    operands, before = make_operands(), make_operands()
    launch({**operands, "gradient": sequence(operands["gradient"])})
    assert_done(operands, before)


def test_a_generator_is_used_up_by_one_call() -> None:
    """The next one finds nothing in it."""
    operands = make_operands()
    args = LISTS.List300Args(**{**operands, "gradient": (g for g in operands["gradient"])})
    plan = make_plan()
    assert plan.can_implement(args)
    status = plan.can_implement(args)
    assert (status.operand, status.reason) == (
        "gradient",
        "gradient: expected a sequence of 300 tensors, got 0 of them",
    )


def test_a_bound_launch_keeps_the_members_it_was_given() -> None:
    """Whatever becomes of the list, and of who else held the members."""
    operands, before = make_operands(), make_operands()
    kept = {name: list(operands[name]) for name in ("parameter", "gradient")}
    launch = make_plan().bind(None, LISTS.List300Args(**operands))
    operands["gradient"].clear()
    operands["parameter"].reverse()
    del kept["gradient"]
    launch(planq.HOST)
    launch(planq.HOST)
    assert_done({**operands, "parameter": kept["parameter"]}, before, steps=2)


def refusal(**changes: Any) -> planq.ArgumentError:
    """What run, can_implement and bind say of operands, of which no member was touched."""
    operands = make_operands()
    for name, change in changes.items():
        operands[name] = change(operands[name]) if callable(change) else change
    plan, args = make_plan(), LISTS.List300Args(**operands)
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, args)
    status = plan.can_implement(args)
    assert (status.reason, status.operand) == (str(caught.value), caught.value.operand)
    with pytest.raises(planq.ArgumentError) as bound:
        plan.bind(None, args)
    assert str(bound.value) == str(caught.value)
    assert np.isnan(operands["sums"]).all()
    return caught.value


def put(index: int, member: Any) -> Callable[[list[Any]], list[Any]]:
    """A list with another member."""
    return lambda members: [*members[:index], member, *members[index + 1 :]]


@pytest.mark.parametrize(
    ("gradient", "expected", "actual"),
    [
        (lambda g: g[:299], "a sequence of 300 tensors", "299 of them"),
        (lambda g: [*g, g[0]], "a sequence of 300 tensors", "301 of them"),
        ([], "a sequence of 300 tensors", "0 of them"),
        (None, "a sequence of 300 tensors", "None"),
        (3, "a sequence of 300 tensors", "int"),
        (np.float32(3), "a sequence of 300 tensors", "numpy.float32"),
    ],
    ids=["too few", "too many", "none", "None", "an integer", "a number"],
)
def test_a_list_has_so_many_members(gradient: Any, expected: str, actual: str) -> None:
    """No more and no fewer."""
    error = refusal(gradient=gradient)
    assert (error.operand, error.expected, error.actual) == ("gradient", expected, actual)


@pytest.mark.parametrize(
    ("index", "member", "expected", "actual"),
    [
        (
            3,
            np.zeros((2, 1, 3), np.float32),
            "shape (2, 1, 2) float32 on host",
            "(2, 1, 3) float32 on host",
        ),
        (3, np.zeros((2, 1, 2)), "shape (2, 1, 2) float32 on host", "(2, 1, 2) float64 on host"),
        (0, np.zeros(1, np.float32), "shape () float32 on host", "(1,) float32 on host"),
        (0, 1.5, "shape () float32 on host", "float"),
        (299, None, "shape (2, 3, 2) float32 on host", "None"),
        (5, [0.0] * 6, "shape (6,) float32 on host", "list"),
        (
            2,
            np.zeros((2, 6), np.float32)[:, ::2],
            "an innermost stride of 1",
            "(2, 3) float32 on host with strides (6, 2)",
        ),
        (
            2,
            np.zeros((2, 4), np.float32)[:, :3],
            "elements that follow one another",
            "(2, 3) float32 on host with strides (4, 1)",
        ),
    ],
    ids=["shape", "dtype", "rank", "by value", "None", "a list", "inner stride", "gaps"],
)
def test_a_wrong_member_is_named(index: int, member: Any, expected: str, actual: str) -> None:
    """By the operand and its place."""
    error = refusal(gradient=put(index, member))
    assert error.operand == f"gradient[{index}]"
    assert (error.expected, error.actual) == (expected, actual)


def test_members_that_are_updated_may_not_be_read_only() -> None:
    """One of them is enough."""
    frozen = np.zeros((2, 2, 2), np.float32)
    frozen.flags.writeable = False
    error = refusal(parameter=put(7, frozen), gradient=put(7, frozen))
    assert error.operand == "parameter[7]"
    assert "read-only" in str(error)


def chunks(memory: Array, starts: dict[int, int]) -> Callable[[list[Any]], list[Any]]:
    """A list with members at these elements of the memory."""

    def change(members: list[Any]) -> list[Any]:
        changed = list(members)
        for index, start in starts.items():
            changed[index] = memory[start : start + math.prod(SHAPES[index])].reshape(SHAPES[index])
        return changed

    return change


@pytest.mark.parametrize("swapped", [False, True])
def test_members_that_are_updated_have_memory_of_their_own(swapped: bool) -> None:
    """Found in the order of memory, told in the order of operands and members."""
    memory = np.zeros(64, np.float32)
    first, second = (10, 8) if swapped else (8, 10)  # members 3 and 7 have 4 and 12 elements
    error = refusal(parameter=chunks(memory, {3: first, 7: second}))
    assert (error.operand, error.actual) == ("parameter[3]", "memory that overlaps parameter[7]")


def test_members_side_by_side_are_apart() -> None:
    """All of both lists in one allocation, without a gap; and two inputs may be one."""
    before, operands = make_operands(), make_operands()
    count = sum(math.prod(shape) for shape in SHAPES)
    memory, at = np.zeros(2 * count, np.float32), 0
    for name in ("gradient", "parameter"):
        for i, member in enumerate(operands[name]):
            place = memory[at : at + member.size].reshape(member.shape)
            place[...] = member
            operands[name][i] = place
            at += member.size
    run(operands)
    assert_done(operands, before)
    shared = make_operands()
    shared["gradient"][15] = shared["gradient"][3]
    run(shared)


@pytest.mark.parametrize("name", ["gradient", "parameter"])
def test_a_member_and_a_tensor_are_apart(name: str) -> None:
    """Whatever lies between where they begin; what is written is named, or the first of two."""
    memory = np.full(400, np.nan)
    error = refusal(sums=memory[:300], **{name: chunks(memory.view(np.float32), {3: 596})})
    told = (error.operand, error.actual)
    if name == "gradient":
        assert told == ("sums", "memory that overlaps gradient[3]")
    else:
        assert told == ("parameter[3]", "memory that overlaps sums")


def test_a_member_of_one_list_and_one_of_the_other_are_apart() -> None:
    """The one that is written is named first."""
    memory = np.zeros(64, np.float32)
    error = refusal(gradient=chunks(memory, {3: 2}), parameter=chunks(memory, {7: 0}))
    assert (error.operand, error.actual) == ("parameter[7]", "memory that overlaps gradient[3]")


def test_no_list_at_all() -> None:
    """A descriptor without members has operands without any."""
    plan = planq.Plan.select(planq.HOST, LISTS.List300Descriptor(shapes=()))
    args = LISTS.List300Args(parameter=[], gradient=(), rate=RATE, sums=np.zeros(0))
    plan.run(planq.HOST, None, args)
    plan.bind(None, args)(planq.HOST)


STAGED = planq.PlanPreference(body="staged")


def aligned_args(shape: tuple[int, ...], workspace: Array, at: int) -> Any:
    """Three members; the last parameter lies in the memory of the workspace, from byte `at` on."""
    count = math.prod(shape)
    tensors = [workspace[at : at + 4 * count].view(np.float32).reshape(shape)]
    tensors[:0] = [np.zeros(shape, np.float32) for _ in range(2)]
    memory = np.zeros(3 * 64 + 64, np.uint8)
    start = -memory.ctypes.data % 64
    gradient = [memory[start + 64 * i :][: 4 * count].view(np.float32) for i in range(3)]
    return LISTS.List300Args(
        parameter=tensors, gradient=gradient, rate=RATE, sums=np.full(3, np.nan)
    )


def test_members_and_a_workspace_are_apart() -> None:
    """As operands of their own are: sums would be written over a parameter."""
    plan = planq.Plan.select(planq.HOST, LISTS.List300Descriptor(shapes=[(4,)] * 3), STAGED)
    memory = np.zeros(plan.workspace_size() + 512, np.uint8)
    start = -memory.ctypes.data % 256
    workspace = memory[start : start + 256]
    for at in (0, 128, 240):
        args = aligned_args((4,), workspace, at)
        with pytest.raises(planq.WorkspaceError, match="it overlaps an operand"):
            plan.run(planq.HOST, workspace, args)
        assert np.isnan(args.sums).all()
    args = aligned_args((4,), memory[start:], 256)
    plan.run(planq.HOST, workspace, args)
    assert (args.sums == 0).all()


def test_a_member_that_a_kernel_cannot_take_is_named() -> None:
    """With the kernel to pin."""
    plan = planq.Plan.select(planq.HOST, LISTS.List300Descriptor(shapes=[(4,)] * 3), STAGED)
    args = aligned_args((4,), np.zeros(256, np.uint8), 0)
    assert plan.can_implement(args)
    memory = np.zeros(128, np.uint8)
    start = -memory.ctypes.data % 64 + 4
    args.gradient[2] = memory[start : start + 16].view(np.float32)
    status = plan.can_implement(args)
    assert (status.operand, status.reason) == (
        "gradient[2]",
        "gradient[2]: expected an address divisible by 16, got one that leaves 4; "
        "pin sku list300/host and body members, which takes it",
    )
