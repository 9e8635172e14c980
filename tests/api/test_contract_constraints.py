"""What a kernel asks of operands beyond their shapes and types: told, checked, and a way out."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.reference.formats import Array

THIRDS: Any = importlib.import_module("operators.thirds")
PRODUCTS, QUOTIENTS = "thirds/host/products", "thirds/host/quotients"
ASKED = (
    "input: an address divisible by 64",
    "input: elements that follow one another",
    "output: an extent of axis 0 divisible by 2",
)


def aligned(shape: tuple[int, ...], offset: int = 0) -> Array:
    """Numbers so many bytes after an address that is divisible by 64."""
    count = int(np.prod(shape))
    memory = np.empty(count * 4 + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    values: Array = memory[start : start + count * 4].view(np.float32).reshape(shape)
    values[...] = np.arange(1, count + 1, dtype=np.float32).reshape(shape)
    return values


def make_plan(shape: tuple[Any, ...] = (4, 6), **pref: Any) -> planq.Plan:
    """A plan of the kernel that asks, unless told otherwise."""
    desc = THIRDS.ThirdsDescriptor(shape=shape)
    return planq.Plan.select(planq.HOST, desc, planq.PlanPreference(**pref))


def make_args(source: Array) -> Any:
    """Operands with an output of their own."""
    return THIRDS.ThirdsArgs(input=source, output=np.full(source.shape, np.nan, np.float32))


def refusal(plan: planq.Plan, args: Any) -> planq.ArgumentError:
    """What run, can_implement and bind say; nothing is written."""
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, args)
    status = plan.can_implement(args)
    assert (status.reason, status.operand) == (str(caught.value), caught.value.operand)
    with pytest.raises(planq.ArgumentError) as bound:
        plan.bind(None, args)
    assert str(bound.value) == str(caught.value)
    assert np.isnan(args.output).all()
    return caught.value


BROKEN: dict[str, tuple[Any, str, str, str]] = {
    "alignment": (
        lambda: aligned((4, 6), offset=4),
        "input",
        "an address divisible by 64",
        "one that leaves 4",
    ),
    "contiguous": (
        lambda: aligned((4, 8))[:, :6],
        "input",
        "elements that follow one another",
        "strides (8, 1)",
    ),
    "divisible": (
        lambda: aligned((3, 6)),
        "output",
        "an extent of axis 0 divisible by 2",
        "3",
    ),
}


def test_operands_that_are_what_is_asked_run() -> None:
    """By the kernel that selection prefers."""
    plan, args = make_plan(), make_args(aligned((4, 6)))
    assert plan.sku == PRODUCTS
    assert plan.can_implement(args)
    plan.run(planq.HOST, None, args)
    assert (args.output == args.input * np.float32(1 / 3)).all()
    assert (args.output != args.input / np.float32(3)).any()


@pytest.mark.parametrize("broken", BROKEN)
def test_others_are_refused_with_the_kernel_that_takes_them(broken: str) -> None:
    """No other bits behind the caller's back; the pin is one sentence away, and runs."""
    make, operand, expected, actual = BROKEN[broken]
    args = make_args(make())
    error = refusal(make_plan(args.input.shape), args)
    assert str(error) == (
        f"{operand}: expected {expected}, got {actual}; "
        f"pin sku {QUOTIENTS} and body elements, which takes it"
    )
    assert (error.operand, error.expected, error.actual) == (operand, expected, actual)
    pinned = make_plan(args.input.shape, sku=QUOTIENTS)
    pinned.run(planq.HOST, None, args)
    assert (args.output == args.input / np.float32(3)).all()


def test_advice_stays_within_the_preference() -> None:
    """Nothing is named that the preference does not admit."""
    args = make_args(aligned((4, 6), offset=4))
    error = refusal(make_plan(sku=PRODUCTS), args)
    assert "pin sku" in str(error)
    exact = make_plan(determinism=planq.Determinism.BIT_EXACT)
    assert exact.sku == QUOTIENTS
    assert exact.can_implement(args)


def test_what_is_asked_is_shown() -> None:
    """By explain, as attributes and in its table, and by the list of kernels."""
    selection = make_plan().explain()
    found = {candidate.sku: candidate.constraints for candidate in selection.candidates}
    assert found[PRODUCTS] == ASKED
    assert found[QUOTIENTS] == ()
    assert all(f"asks {asked}" in str(selection) for asked in ASKED)
    assert selection.to_dict()["candidates"][0]["constraints"] == list(ASKED)
    info = {operator.name: operator for operator in planq.operators()}["thirds"]
    assert {kernel.sku: kernel.constraints for kernel in info.kernels}[PRODUCTS] == ASKED


def test_the_extent_of_a_dim_is_judged_when_it_is_known() -> None:
    """Two and four rows by one plan; three are refused."""
    plan = make_plan((planq.Dim("m", 9), 6))
    for rows in (2, 4, 0, 8):
        args = make_args(aligned((rows, 6)))
        plan.run(planq.HOST, None, args)
        assert (args.output == args.input * np.float32(1 / 3)).all()
    for rows in (1, 3, 9):
        error = refusal(plan, make_args(aligned((rows, 6))))
        assert (error.operand, error.actual) == ("output", str(rows))
        assert f"pin sku {QUOTIENTS}" in str(error)


def test_tensors_without_elements_have_no_address() -> None:
    """Any pointer and any strides will do."""
    nowhere = (4, (0, 6), (77, 1), "float32", "host")
    args = THIRDS.ThirdsArgs(input=nowhere, output=np.zeros((0, 6), np.float32))
    make_plan((0, 6)).run(planq.HOST, None, args)


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("sm_80", "has no code in any build"),
        ("sm_90", "needs architecture sm_80 to sm_89, the device is sm_90"),
        ("sm_89", "has no code in any build"),
        ("sm_120", "needs architecture sm_80 to sm_89, the device is sm_120"),
        (
            planq.DeviceFacts(name="sm_75", arch=75),
            "needs architecture sm_80 to sm_89, the device is sm_75",
        ),
        ("host", "runs on cuda streams, the stream is on host"),
    ],
    ids=str,
)
def test_a_range_of_architectures_with_an_end_says_so(device: Any, reason: str) -> None:
    """To a kernel that stops at an architecture, a later one is another."""
    selection = planq.explain(THIRDS.ThirdsDescriptor(shape=(4, 6)), device=device)
    candidate = {row.sku: row for row in selection.candidates}["thirds/cuda/quotients"]
    assert candidate.reason == reason
    info = {operator.name: operator for operator in planq.operators()}["thirds"]
    arch = {kernel.sku: (kernel.min_arch, kernel.max_arch) for kernel in info.kernels}
    assert arch["thirds/cuda/quotients"] == (80, 89)
