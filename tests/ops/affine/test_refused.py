"""What the elementwise affine operators refuse: fields of descriptors, then operands by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.from_reference import descriptor_of, make_descriptor
from planq.audit.memory import Host, Workspace
from planq.audit.ops.affine import inputs as affine_inputs
from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.ops.affine.dequantize_backward.reference import DequantizeBackwardProblem
from planq.audit.ops.affine.fake_quantize.reference import FakeQuantizeProblem
from planq.audit.ops.affine.fake_quantize_backward.reference import FakeQuantizeBackwardProblem
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.ops.affine.quantize_backward.reference import QuantizeBackwardProblem
from planq.audit.ops.affine.reference import Problem
from planq.audit.reference.formats import Array, Arrays
from planq.audit.runner import arguments

INF, NAN = float("inf"), float("nan")
SHAPE = (4, 64)
FLOAT, CODE = {"input_dtype": "float32"}, {"output_dtype": "int8"}
GOOD: dict[str, dict[str, Any]] = {
    "quantize": {**FLOAT, **CODE},
    "dequantize": {"input_dtype": "int8", "output_dtype": "float32"},
    "fake_quantize": {**FLOAT},
    "quantize_backward": {**FLOAT, **CODE},
    "dequantize_backward": {"output_dtype": "float32"},
    "fake_quantize_backward": {**FLOAT},
}
CODED = ("quantize", "quantize_backward")
FAKED = ("fake_quantize", "fake_quantize_backward")
FORWARD = (*CODED, *FAKED)
ASYMMETRIC = {"mode": "asymmetric"}
SUMS = {"input_dtype": "int32"}
E4M3 = {"output_dtype": "float8_e4m3fn"}
# What, where, which field is at fault, and the change that makes it so.
Refusal = tuple[str, tuple[str, ...], str, dict[str, Any]]
REFUSED: list[Refusal] = [
    ("rank 0", tuple(GOOD), "shape", {"shape": ()}),
    ("rank 9", tuple(GOOD), "shape", {"shape": (1,) * 9}),
    ("a negative size", tuple(GOOD), "shape", {"shape": (3, -1)}),
    ("more elements than 64 bits count", tuple(GOOD), "shape", {"shape": (2**40, 2**40)}),
    ("a channel axis beyond the rank", tuple(GOOD), "scope", {"scope": ("channel", 2)}),
    ("a channel axis before the first", tuple(GOOD), "scope", {"scope": ("channel", -3)}),
    ("a group axis beyond the rank", tuple(GOOD), "scope", {"scope": ("group", 4, 2)}),
    ("groups of no elements", tuple(GOOD), "scope", {"scope": ("group", 0, -1)}),
    ("blocks of no rows", tuple(GOOD), "scope", {"scope": ("block", 0, 4)}),
    ("blocks of negative columns", tuple(GOOD), "scope", {"scope": ("block", 4, -1)}),
    ("blocks of a vector", tuple(GOOD), "scope", {"scope": ("block", 1, 4), "shape": (64,)}),
    ("pairs of anything but sums", tuple(GOOD), "scope", {"scope": ("pair",)}),
    ("an integer scale", tuple(GOOD), "scale_dtype", {"scale_dtype": "int32"}),
    ("an fp8 scale", tuple(GOOD), "scale_dtype", {"scale_dtype": "float8_e4m3fn"}),
    ("integers to quantize", FORWARD, "input_dtype", {"input_dtype": "int8"}),
    ("fp8 to quantize", FORWARD, "input_dtype", {"input_dtype": "float8_e5m2"}),
    ("floats to dequantize", ("dequantize",), "input_dtype", {"input_dtype": "float32"}),
    ("int64 to dequantize", ("dequantize",), "input_dtype", {"input_dtype": "int64"}),
    ("a float code", CODED, "output_dtype", {"output_dtype": "float16"}),
    ("an int32 code", CODED, "output_dtype", {"output_dtype": "int32"}),
    ("an unknown code", CODED, "output_dtype", {"output_dtype": "int3"}),
    ("values in int8", ("dequantize",), "output_dtype", {"output_dtype": "int8"}),
    ("values in fp8", ("dequantize",), "output_dtype", {"output_dtype": "float8_e5m2"}),
    ("gradients in int8", ("dequantize_backward",), "output_dtype", {"output_dtype": "int8"}),
    ("asymmetric fp8", CODED, "mode", {**E4M3, **ASYMMETRIC}),
    (
        "asymmetric fp8 to dequantize",
        ("dequantize",),
        "mode",
        {"input_dtype": "float8_e4m3fn", **ASYMMETRIC},
    ),
    ("asymmetric sums", ("dequantize",), "mode", {**SUMS, **ASYMMETRIC}),
    ("a bias of codes", ("dequantize",), "bias_dtype", {"bias_dtype": "float32"}),
    ("an integer bias", ("dequantize",), "bias_dtype", {**SUMS, "bias_dtype": "int32"}),
    ("an fp8 bias", ("dequantize",), "bias_dtype", {**SUMS, "bias_dtype": "float8_e4m3fn"}),
    ("the ratio of an asymmetric range", FORWARD, "quotient", {**ASYMMETRIC, "quotient": "ratio"}),
    (
        "zero points of another code",
        CODED,
        "zero_point_dtype",
        {**ASYMMETRIC, "zero_point_dtype": "uint8"},
    ),
    (
        "zero points of another code to dequantize",
        ("dequantize",),
        "zero_point_dtype",
        {**ASYMMETRIC, "zero_point_dtype": "int4"},
    ),
    (
        "packed zero points without codes",
        FAKED,
        "zero_point_dtype",
        {**ASYMMETRIC, "zero_point_dtype": "int4"},
    ),
    (
        "zero points in a float type",
        (*FORWARD, "dequantize"),
        "zero_point_dtype",
        {**ASYMMETRIC, "zero_point_dtype": "float32"},
    ),
    (
        "narrow zero points that are computed",
        ("fake_quantize",),
        "zero_point_dtype",
        {**ASYMMETRIC, "zero_point_dtype": "int8", "dynamic": True},
    ),
    ("nothing for a rounding", ("fake_quantize",), "rounding", {"rounding": "none"}),
    ("q_min below int8", CODED, "q_min", {"q_min": -129}),
    ("q_max above int8", CODED, "q_max", {"q_max": 128}),
    ("q_max above uint4", CODED, "q_max", {"output_dtype": "uint4", "q_max": 16}),
    ("q_min below uint8", CODED, "q_min", {"output_dtype": "uint8", "q_min": -1}),
    ("a bound between fp8 codes", CODED, "q_max", {**E4M3, "q_max": 447.0}),
    ("a bound beyond fp8", CODED, "q_max", {**E4M3, "q_max": 480.0}),
    ("infinity as a bound", CODED, "q_min", {**E4M3, "q_min": -INF}),
    ("q_min below eight bits", FAKED, "q_min", {"q_min": -129}),
    ("q_max above eight bits", FAKED, "q_max", {"q_max": 256}),
    ("257 codes", FAKED, "q_max", {"q_min": -1, "q_max": 255}),
    ("a fraction as a bound", FORWARD, "q_max", {"q_max": 7.5}),
    ("a symmetric q_max of zero", FORWARD, "q_max", {"q_min": -7, "q_max": 0}),
    ("a symmetric q_max below zero", FORWARD, "q_max", {"q_min": -7, "q_max": -3}),
    ("bounds of one code", FORWARD, "q_min", {"q_min": 7, "q_max": 7}),
    ("bounds the wrong way round", FORWARD, "q_min", {"q_min": 9, "q_max": 7}),
]
EACH = [
    pytest.param(operator, field, change, id=f"{operator}: {what}")
    for what, operators, field, change in REFUSED
    for operator in operators
]


@pytest.mark.parametrize(("operator", "field", "change"), EACH)
def test_a_descriptor_outside_the_table_is_refused(
    operator: str, field: str, change: dict[str, Any]
) -> None:
    """At construction, with the field that is wrong."""
    with pytest.raises(planq.DescriptorError) as caught:
        make_descriptor(operator, **{"shape": SHAPE, **GOOD[operator], **change})
    assert caught.value.field == field
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).startswith(f"{field}: ")


@pytest.mark.parametrize("operator", GOOD)
def test_the_same_descriptors_without_the_change_are_made(operator: str) -> None:
    """What the table above changes is what is refused."""
    made = make_descriptor(operator, shape=SHAPE, **GOOD[operator])
    assert planq.Descriptor.from_json(made.to_json()) == made


ALLOWED: list[tuple[str, dict[str, Any]]] = [
    ("quantize", {"output_dtype": "uint8"}),
    ("quantize", {"output_dtype": "uint4", "q_min": 3}),
    ("quantize", {**ASYMMETRIC, "q_min": -100, "q_max": -3}),
    ("dequantize", {**SUMS, "scope": ("pair",), "bias_dtype": "float16"}),
    ("dequantize", {**SUMS, "scope": ("block", 2, 2), "bias_dtype": "float64"}),
    ("fake_quantize", {"q_min": 0, "q_max": 255}),
    ("fake_quantize", {**ASYMMETRIC, "q_min": -128, "q_max": -100}),
    ("fake_quantize", {"q_min": -2, "q_max": 1, "rounding": "stochastic"}),
    ("fake_quantize_backward", {**ASYMMETRIC, "zero_point_dtype": "uint8"}),
    ("quantize_backward", {"output_dtype": "uint4", **ASYMMETRIC, "zero_point_dtype": "uint4"}),
]


@pytest.mark.parametrize(("operator", "change"), ALLOWED, ids=str)
def test_what_looks_alike_is_allowed(operator: str, change: dict[str, Any]) -> None:
    """Neighbours of the table above."""
    made = make_descriptor(operator, **{"shape": SHAPE, **GOOD[operator], **change})
    assert planq.Descriptor.from_json(made.to_json()) == made


QUANTIZE = QuantizeProblem(SHAPE, ("token",), mode="asymmetric")
PACKED = QuantizeProblem(
    SHAPE, ("group", 8, -1), mode="asymmetric", zero_point_dtype="int4", output_dtype="int4"
)
SYMMETRIC = QuantizeProblem(SHAPE, ("token",))
SUM = DequantizeProblem(SHAPE, ("pair",), input_dtype="int32", bias_dtype="float32")
CODES = DequantizeProblem(SHAPE, ("channel", -1), mode="asymmetric", zero_point_dtype="int8")
FLOAT8 = DequantizeProblem(SHAPE, input_dtype="float8_e5m2")
FAKE = FakeQuantizeProblem(SHAPE, ("token",), mode="asymmetric")
DRAWN = FakeQuantizeProblem(SHAPE, rounding="stochastic")
DYNAMIC = FakeQuantizeProblem(SHAPE, ("token",), mode="asymmetric", dynamic=True)
BACK = QuantizeBackwardProblem(SHAPE, ("token",))
FAKE_BACK = FakeQuantizeBackwardProblem(SHAPE, ("token",))
DEQUANTIZE_BACK = DequantizeBackwardProblem(SHAPE, ("block", 2, 16))
OPERATORS: dict[type[Problem], str] = {
    QuantizeProblem: "quantize",
    DequantizeProblem: "dequantize",
    FakeQuantizeProblem: "fake_quantize",
    QuantizeBackwardProblem: "quantize_backward",
    DequantizeBackwardProblem: "dequantize_backward",
    FakeQuantizeBackwardProblem: "fake_quantize_backward",
}


def good_operands(problem: Problem) -> Arrays:
    """All operands of a problem, outputs filled with a mark."""
    given = affine_inputs.make(problem, "near", "ordinary", 1)
    wanted = problem.expected(given)
    marked = {name: np.full_like(values, 77) for name, values in wanted.items()}
    return {**given, **marked}


def overlapping(array: Array) -> Array:
    """The rows of an array, one element apart from themselves."""
    rows, columns = array.shape
    step = array.itemsize
    return np.lib.stride_tricks.as_strided(array, (rows, columns - 1), (step * 4, step))


def read_only(array: Array) -> Array:
    """The same memory, not to be written."""
    view = array.view()
    view.flags.writeable = False
    return view


Change = Callable[[Arrays], Any]
WRONG: dict[str, tuple[Problem, str, Change, str]] = {
    "an input of another float": (
        QUANTIZE,
        "input",
        lambda o: o["input"].astype(np.float64),
        "float64",
    ),
    "a scale of another float": (
        QUANTIZE,
        "scale",
        lambda o: o["scale"].astype(np.float64),
        "float64",
    ),
    "one scale for many rows": (QUANTIZE, "scale", lambda o: o["scale"][:1], "(1,)"),
    "scales with an axis too many": (QUANTIZE, "scale", lambda o: o["scale"][:, None], "(4, 1)"),
    "a scale as a number": (QUANTIZE, "scale", lambda o: 0.5, "float"),
    "no scale": (QUANTIZE, "scale", lambda o: None, "None"),
    "no zero point": (QUANTIZE, "zero_point", lambda o: None, "None"),
    "an int64 zero point": (
        QUANTIZE,
        "zero_point",
        lambda o: o["zero_point"].astype(np.int64),
        "int64",
    ),
    "a zero point of symmetric codes": (
        SYMMETRIC,
        "zero_point",
        lambda o: np.zeros(4, np.int32),
        "expected None",
    ),
    "a byte for each packed code": (
        PACKED,
        "output",
        lambda o: np.zeros(SHAPE, np.uint8),
        "(4, 32)",
    ),
    "a byte for each packed zero point": (
        PACKED,
        "zero_point",
        lambda o: np.zeros((4, 8), np.uint8),
        "(4, 4)",
    ),
    "a read-only output": (QUANTIZE, "output", lambda o: read_only(o["output"]), "read-only"),
    "an output over the input": (
        QUANTIZE,
        "output",
        lambda o: o["input"].view(np.int8)[:, :64],
        "overlaps input",
    ),
    "an output over the scales": (
        QuantizeProblem((1, 4), ("tensor",)),
        "output",
        lambda o: o["scale"].view(np.int8)[None],
        "overlaps scale",
    ),
    "an output whose rows interleave": (
        QuantizeProblem((4, 63), ("token",)),
        "output",
        lambda o: overlapping(np.zeros(SHAPE, np.int8)),
        "overlapping",
    ),
    "unsigned codes for signed ones": (
        CODES,
        "input",
        lambda o: o["input"].view(np.uint8),
        "uint8",
    ),
    "a zero point of the wrong width": (
        CODES,
        "zero_point",
        lambda o: o["zero_point"].astype(np.int32),
        "int32",
    ),
    "signed bytes for fp8": (FLOAT8, "input", lambda o: o["input"].view(np.int8), "int8"),
    "column scales of codes": (
        CODES,
        "column_scale",
        lambda o: np.ones(64, np.float32),
        "expected None",
    ),
    "a bias that is not asked for": (CODES, "bias", lambda o: np.ones(64, np.float32), "None"),
    "no column scales": (SUM, "column_scale", lambda o: None, "None"),
    "no bias": (SUM, "bias", lambda o: None, "None"),
    "a bias for each row": (SUM, "bias", lambda o: np.ones(4, np.float32), "(4,)"),
    "int64 sums": (SUM, "input", lambda o: o["input"].astype(np.int64), "int64"),
    "no seed": (DRAWN, "seed", lambda o: None, "None"),
    "a seed of 65 bits": (DRAWN, "seed", lambda o: 2**64, "64 bits"),
    "a seed below int64": (DRAWN, "seed", lambda o: -(2**63) - 1, "64 bits"),
    "a fraction as an offset": (DRAWN, "offset", lambda o: 0.5, "float"),
    "an int32 offset": (DRAWN, "offset", lambda o: np.zeros(1, np.int32), "int32"),
    "two seeds": (DRAWN, "seed", lambda o: np.zeros(2, np.int64), "(2,)"),
    "a seed of no draws": (FAKE, "seed", lambda o: 5, "expected None"),
    "an offset of no draws": (FAKE, "offset", lambda o: 0, "expected None"),
    "computed zero points in int8": (DYNAMIC, "zero_point", lambda o: np.zeros(4, np.int8), "int8"),
    "computed scales that are read-only": (
        DYNAMIC,
        "scale",
        lambda o: read_only(o["scale"]),
        "read-only",
    ),
    "a gradient of another float": (
        BACK,
        "grad_output",
        lambda o: np.ones(SHAPE, np.float16),
        "float16",
    ),
    "a gradient over the elements": (BACK, "grad_input", lambda o: o["input"], "overlaps input"),
    "a copied gradient over the elements": (
        FAKE_BACK,
        "grad_input",
        lambda o: o["input"],
        "overlaps input",
    ),
    "scales of another block": (
        DEQUANTIZE_BACK,
        "scale",
        lambda o: np.ones((4, 16), np.float32),
        "(4, 16)",
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_operand_is_refused(case: tuple[Problem, str, Change, str]) -> None:
    """By name, with what was expected and what came; nothing is written."""
    problem, operand, change, word = case
    operands = good_operands(problem)
    desc = descriptor_of(OPERATORS[type(problem)], problem)
    plan = planq.Plan.select(planq.HOST, desc)
    before = {name: values.copy() for name, values in operands.items()}
    args = arguments(desc, {**operands, operand: change(operands)})
    held = Workspace(Host(), plan.workspace_size())
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, held.argument, args)
    error = caught.value
    assert error.operand == operand
    assert str(error).startswith(f"{operand}: expected {error.expected}, got {error.actual}")
    assert word in str(error)
    with pytest.raises(planq.ArgumentError):
        plan.bind(held.argument, args)
    status = plan.can_implement(args)
    assert not status
    assert (status.operand, status.reason) == (operand, str(error))
    for name, values in operands.items():
        assert values.tobytes() == before[name].tobytes()


@pytest.mark.parametrize("problem", [QUANTIZE, PACKED, SUM, CODES, FLOAT8, FAKE, DRAWN, BACK])
def test_the_operands_without_the_change_are_taken(problem: Problem) -> None:
    """What the table above changes is what is refused."""
    operands = good_operands(problem)
    desc = descriptor_of(OPERATORS[type(problem)], problem)
    plan = planq.Plan.select(planq.HOST, desc)
    assert plan.can_implement(arguments(desc, operands))


class TestInPlace:
    """Results in the place of the operand that they replace, exactly."""

    PAIRS: tuple[tuple[Problem, str, str], ...] = (
        (FAKE, "input", "output"),
        (DRAWN, "input", "output"),
        (BACK, "grad_output", "grad_input"),
        (FAKE_BACK, "grad_output", "grad_input"),
        (DEQUANTIZE_BACK, "grad_output", "grad_input"),
    )
    each_pair = pytest.mark.parametrize(
        ("problem", "before", "after"), PAIRS, ids=lambda value: getattr(value, "id", value)
    )

    def run(self, problem: Problem, operands: dict[str, Any]) -> None:
        """Runs on the caller's arrays."""
        desc = descriptor_of(OPERATORS[type(problem)], problem)
        planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, arguments(desc, operands))

    @each_pair
    def test_the_same_memory_gives_the_same_bits(
        self, problem: Problem, before: str, after: str
    ) -> None:
        """As out of place, by the reference."""
        given = affine_inputs.make(problem, "near", "ordinary", 1)
        wanted = problem.expected(given)[after]
        shared = given[before].copy()
        self.run(problem, {**given, before: shared, after: shared})
        assert shared.tobytes() == wanted.tobytes()

    @each_pair
    def test_rows_with_gaps_in_between(self, problem: Problem, before: str, after: str) -> None:
        """What lies between the rows stays."""
        given = affine_inputs.make(problem, "near", "ordinary", 2)
        wanted = problem.expected(given)[after]
        wide = np.full((8, 80), 77, given[before].dtype)
        wide[::2, 5:69] = given[before]
        shared = wide[::2, 5:69]
        self.run(problem, {**given, before: shared, after: shared})
        assert np.ascontiguousarray(shared).tobytes() == wanted.tobytes()
        shared[...] = 77
        assert (wide == 77).all()

    @each_pair
    def test_rows_that_run_backwards(self, problem: Problem, before: str, after: str) -> None:
        """Any outer strides, as long as both are the same."""
        given = affine_inputs.make(problem, "near", "ordinary", 3)
        wanted = problem.expected(given)[after]
        shared = given[before][::-1].copy()[::-1]
        self.run(problem, {**given, before: shared, after: shared})
        assert np.ascontiguousarray(shared).tobytes() == wanted.tobytes()

    @each_pair
    @pytest.mark.parametrize("shift", [1, 64, 70])
    def test_a_partial_overlap_is_refused(
        self, problem: Problem, before: str, after: str, shift: int
    ) -> None:
        """By one element, by a row, and by a row and some; nothing is written."""
        given = affine_inputs.make(problem, "near", "ordinary", 4)
        count = given[before].size
        memory = np.full(count + shift, 77, given[before].dtype)
        memory[:count] = given[before].ravel()
        untouched = memory.copy()
        operands = {
            **given,
            before: memory[:count].reshape(SHAPE),
            after: memory[shift:].reshape(SHAPE),
        }
        with pytest.raises(planq.ArgumentError) as caught:
            self.run(problem, operands)
        assert caught.value.operand == after
        assert f"overlaps {before}" in str(caught.value)
        assert memory.tobytes() == untouched.tobytes()

    @each_pair
    def test_other_strides_on_the_same_memory_are_refused(
        self, problem: Problem, before: str, after: str
    ) -> None:
        """The rows in another order."""
        given = affine_inputs.make(problem, "near", "ordinary", 5)
        operands = {**given, after: given[before][::-1]}
        with pytest.raises(planq.ArgumentError) as caught:
            self.run(problem, operands)
        assert caught.value.operand == after

    @pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
    def test_a_dynamic_run_in_place(self, mode: str) -> None:
        """The range is taken before anything is overwritten."""
        for shape, scope in (
            (SHAPE, ("token",)),
            (SHAPE, ("tensor",)),
            ((3, 5000), ("channel", 1)),
        ):
            problem = FakeQuantizeProblem(shape, scope, mode=mode, dynamic=True)
            given = affine_inputs.make(problem, "finite", "ordinary", 6)
            wanted = problem.expected(given)["output"]
            desc = descriptor_of("fake_quantize", problem)
            plan = planq.Plan.select(planq.HOST, desc)
            memory = np.empty(plan.workspace_size() + 256, np.uint8)
            start = -memory.ctypes.data % 256
            workspace = memory[start : start + plan.workspace_size()]
            shared = given["input"].copy()
            args = arguments(desc, {"input": shared, "output": shared})
            plan.run(planq.HOST, workspace if workspace.size else None, args)
            assert shared.tobytes() == wanted.tobytes()
