"""Fourteen operands: updated in place, left out, numbers by value and in memory."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import planq
from operators.adapters.step14 import BETA1, BETA2, EPSILON, RATE, step_of
from planq.audit.reference.formats import Array

STEP: Any = importlib.import_module("operators.step14")
SHAPE = (3, 5)
TENSORS = ("parameter", "gradient", "average", "square", "largest")
DECAY, SCALE = 0.01, 128.0


def make_plan(**fields: Any) -> planq.Plan:
    """A plan of the small shape."""
    return planq.Plan.select(planq.HOST, STEP.Step14Descriptor(**{"shape": SHAPE, **fields}))


def make_operands(**changes: Any) -> dict[str, Any]:
    """Operands without those that may be left out."""
    rng = np.random.default_rng(14)
    made: dict[str, Any] = {name: rng.standard_normal(SHAPE, np.float32) for name in TENSORS[:3]}
    made["square"] = rng.random(SHAPE, np.float32)
    numbers = {"rate": RATE, "beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON}
    return {**made, **numbers, "step": np.array(0), **changes}


def state_of(operands: dict[str, Any]) -> dict[str, Array]:
    """Copies of the tensors that are updated."""
    return {name: operands[name].copy() for name in TENSORS if name in operands}


def assert_holds(operands: dict[str, Any], expected: dict[str, Array]) -> None:
    """To the bit."""
    for name, values in expected.items():
        assert operands[name].tobytes() == values.tobytes(), name


def run(plan: planq.Plan, operands: dict[str, Any]) -> None:
    """One step."""
    plan.run(planq.HOST, None, STEP.Step14Args(**operands))


def refusal(plan: planq.Plan, operands: dict[str, Any]) -> planq.ArgumentError:
    """What run, can_implement and bind say of operands, of which nothing was touched."""
    before = {name: value.tobytes() for name, value in operands.items() if hasattr(value, "data")}
    args = STEP.Step14Args(**operands)
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, args)
    status = plan.can_implement(args)
    assert (status.reason, status.operand) == (str(caught.value), caught.value.operand)
    with pytest.raises(planq.ArgumentError) as bound:
        plan.bind(None, args)
    assert str(bound.value) == str(caught.value)
    assert all(operands[name].tobytes() == held for name, held in before.items())
    return caught.value


def test_a_descriptor_tells_roles_kinds_and_what_may_be_left_out() -> None:
    """Fourteen lines."""
    specs = STEP.Step14Descriptor(shape=SHAPE, amsgrad=True).operands()
    assert len(specs) == 14
    assert [name for name, spec in specs.items() if spec.role == "inout"] == [
        *("parameter", "average", "square", "largest", "step")
    ]
    optional = [name for name, spec in specs.items() if spec.optional]
    assert optional == ["copy", "decay", "gradient_scale", "skip"]
    scalars = {name: spec.dtype.value for name, spec in specs.items() if spec.kind == "scalar"}
    reals = ("rate", "beta1", "beta2", "epsilon", "decay", "gradient_scale")
    assert scalars == {**dict.fromkeys(reals, "float64"), "skip": "int64", "step": "int64"}
    assert "largest" not in STEP.Step14Descriptor(shape=SHAPE).operands()


def test_three_steps_update_in_place() -> None:
    """Everything that may be left out is."""
    operands = make_operands()
    plan, expected = make_plan(), state_of(operands)
    for step in (1, 2, 3):
        expected |= step_of(expected, operands["gradient"], step)
        run(plan, operands)
        assert_holds(operands, expected)
        assert operands["step"] == step


def test_everything_that_may_be_given() -> None:
    """The fourteen at once, in memory with gaps between rows."""
    wide = {name: np.zeros((3, 9), np.float32) for name in (*TENSORS, "copy")}
    operands = make_operands(
        decay=DECAY, gradient_scale=SCALE, skip=0, largest=np.full(SHAPE, 0.5, np.float32)
    )
    for name in TENSORS:
        wide[name][:, :5] = operands[name]
        operands[name] = wide[name][:, :5]
    operands["copy"] = wide["copy"][:, :5]
    expected = step_of(
        {name: np.ascontiguousarray(operands[name]) for name in TENSORS},
        operands["gradient"],
        1,
        decay=DECAY,
        scale=SCALE,
    )
    run(make_plan(amsgrad=True), operands)
    assert_holds(operands, {**expected, "copy": expected["parameter"]})
    assert all((whole[:, 5:] == 0).all() for whole in wide.values())


KEPT: list[Array] = []


def keep(array: Array) -> int:
    """Its address, which stays."""
    KEPT.append(array)
    return array.ctypes.data


@pytest.mark.parametrize("form", ["value", "NumPy value", "()", "(1,)", "tuple"])
def test_a_number_by_value_and_in_memory_is_the_same(form: str) -> None:
    """Of 64 bits, in every way to give it."""
    forms: dict[str, Any] = {
        "value": lambda number: number,
        "NumPy value": np.float64,
        "()": np.array,
        "(1,)": lambda number: np.array([number]),
        "tuple": lambda number: (keep(np.array(number)), (), None, "float64", "host"),
    }
    made = forms[form]
    operands = make_operands(rate=made(RATE), beta1=made(BETA1), decay=made(DECAY))
    expected = step_of(state_of(operands), operands["gradient"], 1, decay=DECAY)
    run(make_plan(), operands)
    assert_holds(operands, expected)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_float32_in_memory_is_widened_exactly(shape: tuple[int, ...]) -> None:
    """It is not the float64 of the same digits."""
    narrow = np.full(shape, RATE, np.float32)
    assert float(narrow.ravel()[0]) != RATE
    operands = make_operands(rate=narrow)
    expected = step_of(state_of(operands), operands["gradient"], 1, rate=float(narrow.ravel()[0]))
    run(make_plan(), operands)
    assert_holds(operands, expected)


def test_an_integer_is_a_real_number_too() -> None:
    """By value."""
    operands = make_operands(rate=1)
    expected = step_of(state_of(operands), operands["gradient"], 1, rate=1.0)
    run(make_plan(), operands)
    assert_holds(operands, expected)


@pytest.mark.parametrize("skip", [1, -(2**63), np.array(1), np.array([2])], ids=repr)
def test_an_integer_that_is_not_zero_skips_the_step(skip: Any) -> None:
    """By value and in memory."""
    operands = make_operands(skip=skip)
    before = state_of(operands)
    run(make_plan(), operands)
    assert_holds(operands, before)
    assert operands["step"] == 0


def test_a_bound_launch_freezes_values_and_reads_memory_again() -> None:
    """So that a captured graph can change a learning rate; the step goes on in memory."""
    rate = np.array(RATE)
    operands = make_operands(rate=rate, decay=DECAY)
    args = STEP.Step14Args(**operands)
    launch = make_plan().bind(None, args)
    args.decay, args.parameter = 1e9, None
    expected = state_of(operands)
    for step, now in ((1, RATE), (2, 0.25)):
        rate[...] = now
        expected |= step_of(expected, operands["gradient"], step, rate=now, decay=DECAY)
        launch(planq.HOST)
        assert_holds(operands, expected)
        assert operands["step"] == step


@pytest.mark.parametrize("name", ["parameter", "gradient", "average", "square", "rate", "step"])
def test_what_has_to_be_there_is_named(name: str) -> None:
    """None is not enough."""
    error = refusal(make_plan(), make_operands(**{name: None}))
    assert (error.operand, error.actual) == (name, "None")


def test_a_mode_without_an_operand_refuses_it_and_one_with_it_asks_for_it() -> None:
    """The descriptor says whether there is a largest."""
    largest = np.zeros(SHAPE, np.float32)
    error = refusal(make_plan(), make_operands(largest=largest))
    assert (error.operand, error.expected) == ("largest", "None")
    error = refusal(make_plan(amsgrad=True), make_operands())
    assert (error.operand, error.actual) == ("largest", "None")


@pytest.mark.parametrize("name", ["parameter", "average", "step"])
def test_what_is_updated_may_not_be_read_only(name: str) -> None:
    """An input may."""
    operands = make_operands()
    for frozen in (name, "gradient"):
        operands[frozen].flags.writeable = False
    error = refusal(make_plan(), operands)
    assert error.operand == name
    assert "read-only" in str(error)


@pytest.mark.parametrize("value", [0, 3, np.int64(3)], ids=repr)
def test_what_is_written_is_in_memory(value: Any) -> None:
    """A step by value would be lost."""
    error = refusal(make_plan(), make_operands(step=value))
    assert error.operand == "step"
    assert error.expected == "shape () int64 on host"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("rate", "0.1", "a number, or shape () float64 (or float32) on host"),
        ("rate", np.zeros(2), "a number, or shape () float64 (or float32) on host"),
        ("rate", np.zeros((1, 1)), "a number, or shape () float64 (or float32) on host"),
        ("rate", np.array(1), "a number, or shape () float64 (or float32) on host"),
        ("rate", np.array(1, np.float16), "a number, or shape () float64 (or float32) on host"),
        ("rate", 1j, "a number, or shape () float64 (or float32) on host"),
        ("skip", 0.5, "an integer, or shape () int64 on host"),
        ("skip", np.array(0, np.int32), "an integer, or shape () int64 on host"),
        ("skip", 2**64, "an integer, or shape () int64 on host"),
        ("step", np.array(0.0), "shape () int64 on host"),
        ("copy", np.zeros((5, 3), np.float32), "shape (3, 5) float32 or None on host"),
    ],
    ids=repr,
)
def test_wrong_operands_are_named(name: str, value: Any, expected: str) -> None:
    """With what they have to be."""
    error = refusal(make_plan(), make_operands(**{name: value}))
    assert (error.operand, error.expected) == (name, expected)


@pytest.mark.parametrize(
    ("blamed", "other"),
    [
        ("parameter", "gradient"),
        ("parameter", "average"),
        ("average", "square"),
        ("copy", "gradient"),
        ("parameter", "copy"),
    ],
)
def test_what_is_updated_has_memory_of_its_own(blamed: str, other: str) -> None:
    """Whole and in part; two inputs may be one."""
    shared = np.zeros((4, 5), np.float32)
    for first, second in ((shared[:3], shared[:3]), (shared[1:], shared[:3])):
        error = refusal(make_plan(), make_operands(**{blamed: first, other: second}))
        assert (error.operand, error.actual) == (blamed, f"memory that overlaps {other}")


def test_a_number_in_memory_may_not_be_part_of_what_is_written() -> None:
    """One that is only read may be part of what is read, or another number."""
    operands = make_operands()
    operands["rate"] = operands["parameter"][0, :1]
    error = refusal(make_plan(), operands)
    assert (error.operand, error.actual) == ("parameter", "memory that overlaps rate")
    both = np.array(BETA1)
    operands = make_operands(beta1=both, beta2=both, rate=make_operands()["gradient"][0, :1])
    run(make_plan(), operands)


def test_empty_tensors_take_a_step() -> None:
    """The count goes on."""
    tensors = {name: np.zeros((0, 5), np.float32) for name in TENSORS[:4]}
    operands = make_operands(**tensors)
    run(make_plan(shape=(0, 5)), operands)
    assert operands["step"] == 1
