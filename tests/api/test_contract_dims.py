"""Dims on operators of several shapes: one plan for many extents, and what is refused."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.reference.formats import Array

MATMUL: Any = importlib.import_module("operators.matmul3")
STEP: Any = importlib.import_module("operators.step14")
M = planq.Dim("m", 16)
N, K = 4, 5
EXTENTS = (0, 1, 2, 7, 16)


def make_plan(**shapes: Any) -> planq.Plan:
    """A product whose m is known at run."""
    given = {"a_shape": (M, K), "b_shape": (N, K), "output_shape": (M, N), **shapes}
    return planq.Plan.select(planq.HOST, MATMUL.Matmul3Descriptor(**given))


def make_args(m: int, n: int = N, *, output: tuple[int, ...] | None = None) -> Any:
    """Small integers, whose sums are exact."""
    a = np.arange(m * K, dtype=np.float32).reshape(m, K) % 7
    b = np.arange(n * K, dtype=np.float32).reshape(n, K) % 5
    made = np.full((m, n) if output is None else output, np.nan, np.float32)
    return MATMUL.Matmul3Args(a=a, b=b, output=made)


def product(args: Any) -> Array:
    """In NumPy."""
    result: Array = args.a @ args.b.T
    return result


@pytest.mark.parametrize("m", EXTENTS)
def test_one_plan_has_many_extents(m: int) -> None:
    """The same to the bit as the plan of that very shape, by run and by a bound launch."""
    plan, fixed = make_plan(), make_plan(a_shape=(m, K), output_shape=(m, N))
    ran, alone, bound = make_args(m), make_args(m), make_args(m)
    plan.run(planq.HOST, None, ran)
    fixed.run(planq.HOST, None, alone)
    plan.bind(None, bound)(planq.HOST)
    assert (ran.output == product(ran)).all()
    assert ran.output.tobytes() == alone.output.tobytes() == bound.output.tobytes()


def test_bound_launches_of_several_extents_live_together() -> None:
    """Each has extents of its own."""
    plan = make_plan()
    every = [make_args(m) for m in EXTENTS]
    launches = [plan.bind(None, args) for args in every]
    for launch in reversed(launches):
        launch(planq.HOST)
    for args in every:
        assert (args.output == product(args)).all()


def test_a_dim_of_an_operand_that_is_no_matrix_of_rows() -> None:
    """The n of b is the columns of the output, which are the last axis: they have no Dim."""
    with pytest.raises(planq.DescriptorError) as caught:
        make_plan(b_shape=(planq.Dim("n", N), K), output_shape=(M, planq.Dim("n", N)))
    assert caught.value.field == "output_shape"
    with pytest.raises(planq.DescriptorError) as caught:
        make_plan(b_shape=(planq.Dim("n", N), K))
    assert caught.value.field == "output_shape"
    assert "Dim('n', max=4) would be 3 at times" in str(caught.value)


REFUSED = [
    (
        make_args(17),
        "a: expected shape (m <= 16, 5) float32 on host, got (17, 5) float32 on host",
    ),
    (
        make_args(7, output=(8, N)),
        "output: expected shape (m <= 16, 4) float32 on host, got (8, 4) float32 on host; "
        "m is 7 in a",
    ),
    (
        make_args(0, output=(1, N)),
        "output: expected shape (m <= 16, 4) float32 on host, got (1, 4) float32 on host; "
        "m is 0 in a",
    ),
    (
        make_args(7, output=(7, N + 1)),
        "output: expected shape (m <= 16, 4) float32 on host, got (7, 5) float32 on host",
    ),
    (
        make_args(7, output=(7,)),
        "output: expected shape (m <= 16, 4) float32 on host, got (7,) float32 on host",
    ),
]


@pytest.mark.parametrize(("args", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_wrong_and_disagreeing_extents_are_refused(args: Any, sentence: str) -> None:
    """By the operand, with who said otherwise."""
    plan = make_plan()
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, args)
    assert str(caught.value) == sentence
    assert plan.can_implement(args).reason == sentence
    with pytest.raises(planq.ArgumentError) as caught:
        plan.bind(None, args)
    assert str(caught.value) == sentence
    assert np.isnan(args.output).all()


def test_operands_that_were_left_out_tell_no_extent() -> None:
    """Those that are there do; each optional one has to agree."""
    plan = planq.Plan.select(planq.HOST, STEP.Step14Descriptor(shape=(M, K)))
    names = ("parameter", "gradient", "average", "square")
    numbers = {"rate": 0.5, "beta1": 0.5, "beta2": 0.5, "epsilon": 1e-3}
    for m in EXTENTS:
        operands = {name: np.ones((m, K), np.float32) for name in names}
        step, copy = np.array(0), np.zeros((m, K), np.float32)
        plan.run(planq.HOST, None, STEP.Step14Args(**operands, **numbers, step=step))
        assert step == 1
        assert (operands["parameter"] == np.float32(1 - 0.5 / (1 + 1e-3))).all()
        plan.run(planq.HOST, None, STEP.Step14Args(**operands, **numbers, step=step, copy=copy))
        assert copy.tobytes() == operands["parameter"].tobytes()
        wrong = np.zeros((m + 1, K), np.float32)
        status = plan.can_implement(STEP.Step14Args(**operands, **numbers, step=step, copy=wrong))
        assert status.operand == "copy"


@pytest.mark.parametrize(
    ("extents", "error"),
    [
        ({"m": -1}, planq.DescriptorError),
        ({"m": 17}, planq.DescriptorError),
        ({"n": 1}, TypeError),
        ({"m": 1, "n": 1}, TypeError),
    ],
    ids=str,
)
def test_workspace_size_takes_the_dims_of_the_plan(
    extents: dict[str, int], error: type[Exception]
) -> None:
    """All of them, by name, up to their maxima."""
    assert [make_plan().workspace_size(m=m) for m in EXTENTS] == [0] * 5
    with pytest.raises(error):
        make_plan().workspace_size(**extents)


@pytest.mark.parametrize(
    ("make", "operand"),
    [
        (
            lambda: planq.QuantizeDescriptor(
                shape=(M, 8),
                input_dtype="float32",
                output_dtype="int8",
                scope=planq.Scope.group(4, axis=0),
            ),
            "scale",
        ),
        (lambda: planq.PackInt4Descriptor(shape=(M, 8), output_dtype="int4", axis=0), "output"),
        (
            lambda: planq.BlockwiseQuantizeDescriptor(
                shape=(M, 8), input_dtype="float32", output_dtype="uint4", block_size=64
            ),
            "output",
        ),
        (
            lambda: planq.BlockwiseQuantizeDescriptor(
                shape=(M, 8), input_dtype="float32", output_dtype="uint8", block_size=4096
            ),
            "absmax",
        ),
        (
            lambda: planq.DequantizeReduceDescriptor(
                shape=(M, 8), ranks=2, input_dtype="int8", output_dtype="float32", group_size=8
            ),
            "input",
        ),
        (
            lambda: planq.VectorwiseQuantizeDescriptor(
                shape=(M, 8), input_dtype="float32", output_dtype="int8", axis=0
            ),
            "scale",
        ),
        (
            lambda: planq.CooToCsrDescriptor(shape=(M, 8), capacity=4),
            "pointer",
        ),
    ],
    ids=["divided", "packed", "flattened", "counted", "multiplied", "reduced", "shifted"],
)
def test_a_dim_is_one_axis_of_every_operand(make: Any, operand: str) -> None:
    """Not a part of one: the operand that would cut it is named."""
    with pytest.raises(planq.DescriptorError) as caught:
        make()
    assert caught.value.field == "shape"
    assert f"Dim('m', max=16) is no axis of {operand}" in str(caught.value)


@pytest.mark.parametrize(
    ("desc", "operand", "shape"),
    [
        (
            planq.QuantizeDescriptor(
                shape=(M, 8),
                input_dtype="float32",
                output_dtype="int8",
                scope=planq.Scope.group(1, axis=0),
            ),
            "scale",
            (M, 8),
        ),
        (planq.PackInt4Descriptor(shape=(M, 8), output_dtype="int4"), "output", (M, 4)),
        (
            planq.MatmulDescriptor(
                input_shape=(M, 8, 8), weight_shape=(1, 4, 8), input_dtype="float16"
            ),
            "output",
            (M, 8, 4),
        ),
        (
            planq.MatmulDescriptor(
                input_shape=(1, 8, 8), weight_shape=(M, 4, 8), input_dtype="float16"
            ),
            "output",
            (M, 8, 4),
        ),
        (
            planq.TransformLayoutDescriptor(shape=(M, 8), to_layout=planq.Layout.COL),
            "output",
            (8, M),
        ),
    ],
    ids=["groups_of_one", "packed_beside", "repeated_weight", "repeated_input", "moved"],
)
def test_a_dim_stays_whole(desc: Any, operand: str, shape: tuple[Any, ...]) -> None:
    """Where groups have one element, other axes are cut, or 1 gives way to it; in any place."""
    assert desc.operands()[operand].shape == shape


def test_a_guarantee_is_that_of_every_extent() -> None:
    """The terms are no Dim's, so the bound is the same."""
    promise = make_plan().precision_guarantee()
    fixed = make_plan(a_shape=(3, K), output_shape=(3, N)).precision_guarantee()
    assert promise == fixed
    assert promise.error_bound is not None
    assert promise.error_bound.terms == K
