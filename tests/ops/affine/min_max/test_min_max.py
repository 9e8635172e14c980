"""`min_max` on the host: its whole table, its edges, other libraries, and what it refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver

import planq
from planq.audit.memory import Host, Layout
from planq.audit.ops.affine.min_max.adapter import check_problem, descriptor, measure
from planq.audit.ops.affine.min_max.cases import Case
from planq.audit.ops.affine.min_max.reference import Problem, ScopeSpec
from planq.audit.reference import inputs
from planq.audit.reference.formats import CANONICAL_NAN, FLOATS, INPUT_DTYPES, Array, bits
from planq.audit.runner import Bench

F32 = np.float32
INF, NAN = float("inf"), float("nan")
SCOPES: tuple[ScopeSpec, ...] = (
    ("tensor",),
    ("channel", 0),
    ("channel", 1),
    ("channel", -1),
    ("token",),
    ("group", 4, -1),
    ("group", 3, 0),
    ("group", 2, 1),
    ("block", 2, 4),
    ("block", 3, 1),
    ("block", 1, 5),
    ("block", 100, 100),
)
KINDS = ("mixed", "finite", "nonfinite", "all_nonfinite", "zeros", "subnormal", "huge", "offset")


@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
def test_the_whole_table(input_dtype: str) -> None:
    """Every scope x mode x NonFinite, with previous results and without, on every kind of input."""
    choices = itertools.product(
        SCOPES, ("symmetric", "asymmetric"), ("propagate", "saturate"), (False, True), KINDS
    )
    for seed, (scope, mode, nonfinite, update, kind) in enumerate(choices):
        problem = Problem((7, 5, 9), input_dtype, scope, mode, nonfinite, update)
        check_problem(problem, Case(problem, kind, seed).inputs())


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 255, 1023, 4097])
@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
def test_every_tail_length(input_dtype: str, columns: int) -> None:
    """Kernels for vectors leave tails, with the extremes in all places."""
    for seed, (scope, mode, nonfinite) in enumerate(
        itertools.product(
            (("token",), ("group", 16, -1), ("channel", -1), ("tensor",), ("block", 2, 6)),
            ("symmetric", "asymmetric"),
            ("propagate", "saturate"),
        )
    ):
        problem = Problem((5, columns), input_dtype, scope, mode, nonfinite)
        check_problem(problem, Case(problem, "mixed", seed).inputs())


@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
def test_every_element_counts(input_dtype: str) -> None:
    """One element of a row stands out, and each has its turn."""
    columns = 300
    x = np.tile(np.linspace(-1, 1, columns), (columns, 1)).astype(FLOATS[input_dtype].dtype)
    x[np.arange(columns), np.arange(columns)] = -3
    problem = Problem(x.shape, input_dtype, ("token",), "asymmetric")
    for scope in (("token",), ("channel", -1)):
        found = measure(replace(problem, scope=scope), {"input": x})
        assert (found["minimum"] == -3).all()
        found = measure(replace(problem, scope=scope), {"input": -x})
        assert (found["maximum"] == 3).all()


@pytest.mark.parametrize("rank", range(1, 9))
def test_every_rank_with_every_scope(rank: int) -> None:
    """Channels, groups and blocks along every axis, in strided memory too."""
    shape = (2, 3, 1, 4, 2, 3, 2, 5)[-rank:]
    scopes: list[ScopeSpec] = [("tensor",), ("token",)]
    for axis in range(-rank, rank):
        scopes += [("channel", axis), ("group", 2, axis), ("group", 64, axis)]
    if rank > 1:
        scopes += [("block", 2, 2), ("block", 1, 3), ("block", 3, 1)]
    for scope in scopes:
        problem = Problem(shape, "bfloat16", scope, "asymmetric", update=True)
        case = Case(problem, "finite", rank)
        for pitch in (0, 3):
            layouts = {name: Layout(pitch=pitch) for name in descriptor(problem).operands()}
            bench = Bench(Host(3), descriptor(problem), layouts=layouts)
            bench.load(case.inputs())
            bench.run()
            bench.check(case.inputs(), case.expected(case.inputs()), case.id)


def row(*values: float, dtype: str = "float32") -> dict[str, Array]:
    """One row of values as the input."""
    return {"input": np.array([values], np.float64).astype(FLOATS[dtype].dtype)}


def results(problem: Problem, operands: dict[str, Array]) -> list[Any]:
    """Every result of a single segment."""
    found = measure(problem, operands)
    return [found[name].ravel()[0].item() for name in problem.ends]


class TestValuesWorkedOutByHand:
    """The contract's sentences, one by one, without the reference."""

    SYMMETRIC = Problem((1, 4))
    ASYMMETRIC = Problem((1, 4), mode="asymmetric")

    def test_the_two_modes(self) -> None:
        """The largest magnitude, or both ends."""
        x = row(1, -3, 2, 0.5)
        assert results(self.SYMMETRIC, x) == [3]
        assert results(self.ASYMMETRIC, x) == [-3, 2]

    @pytest.mark.parametrize("value", [0.0, -0.0])
    def test_zeros_are_positive(self, value: float) -> None:
        """Whatever sign they had."""
        x = row(value, value, value, value)
        for problem in (self.SYMMETRIC, self.ASYMMETRIC):
            assert all((bits(end) == 0).all() for end in measure(problem, x).values())

    def test_propagate_counts_infinities_as_numbers(self) -> None:
        """They are the ends."""
        x = row(1, -INF, 2, 3)
        assert results(self.SYMMETRIC, x) == [INF]
        assert results(self.ASYMMETRIC, x) == [-INF, 3]

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    @pytest.mark.parametrize("sign", [1, -1])
    def test_propagate_makes_every_result_the_canonical_nan(self, sign: int, dtype: str) -> None:
        """Of the segment with a NaN, and of no other."""
        x = np.array([[1, NAN, INF, 2], [1, 2, 3, -4]]).astype(FLOATS[dtype].dtype)
        x = np.copysign(x, sign).astype(x.dtype) if sign < 0 else x
        for mode in ("symmetric", "asymmetric"):
            problem = Problem(x.shape, dtype, ("token",), mode)
            for end in measure(problem, {"input": x}).values():
                assert bits(end)[0] == CANONICAL_NAN[end.dtype.name]
                assert np.isfinite(end[1])

    def test_saturate_leaves_nan_and_infinities_out(self) -> None:
        """All of them may be."""
        x = row(NAN, -INF, 2, -1)
        saturate = {"nonfinite": "saturate"}
        assert results(replace(self.SYMMETRIC, **saturate), x) == [2]
        assert results(replace(self.ASYMMETRIC, **saturate), x) == [-1, 2]
        nothing = row(NAN, -INF, INF, -NAN)
        assert results(replace(self.SYMMETRIC, **saturate), nothing) == [0]
        assert results(replace(self.ASYMMETRIC, **saturate), nothing) == [0, 0]

    def test_a_segment_without_elements_is_zero(self) -> None:
        """One for each index of an axis that has some."""
        found = measure(Problem((3, 0), scope=("token",)), {"input": np.empty((3, 0), F32)})
        assert found["absmax"].tolist() == [0, 0, 0]

    def updated(self, before: list[float], values: list[float], nonfinite: str) -> list[float]:
        """Both ends of `values` and the ends before."""
        x = np.array([values], F32)
        problem = Problem(x.shape, mode="asymmetric", nonfinite=nonfinite, update=True)
        previous = {
            f"previous_{name}": np.array([end], F32)
            for name, end in zip(problem.ends, before, strict=True)
        }
        return results(problem, {"input": x, **previous})

    def test_previous_results_are_widened(self) -> None:
        """Never narrowed; the usual start is no range at all."""
        assert self.updated([-1, 1], [-2, 0.5], "propagate") == [-2, 1]
        assert self.updated([INF, -INF], [-2, 0.5], "propagate") == [-2, 0.5]
        assert self.updated([INF, -INF], [], "propagate") == [INF, -INF]
        assert self.updated([3, -4], [], "saturate") == [3, -4]

    def test_a_previous_nan(self) -> None:
        """Stays under PROPAGATE, each end for itself; is as none under SATURATE."""
        assert str(self.updated([NAN, 1], [-2, 0.5], "propagate")) == "[nan, 1.0]"
        assert str(self.updated([NAN, 1], [], "propagate")) == "[nan, 1.0]"
        assert self.updated([NAN, 1], [-2, 0.5], "saturate") == [-2, 1]
        assert self.updated([NAN, NAN], [INF], "saturate") == [0, 0]

    def test_a_previous_infinity_is_a_number(self) -> None:
        """Also under SATURATE."""
        assert self.updated([-INF, 1], [-2, INF], "saturate") == [-INF, 1]

    def test_a_previous_zero_becomes_positive(self) -> None:
        """Kept or compared."""
        problem = Problem((1, 1), mode="asymmetric", update=True)
        zero = {name: np.array([-0.0], F32) for name in ("previous_minimum", "previous_maximum")}
        for x in (row(-0.0), row(0.0)):
            found = measure(problem, {**x, **zero})
            assert (bits(found["minimum"]), bits(found["maximum"])) == ([0], [0])


@pytest.mark.parametrize("scope", [("tensor",), ("token",), ("group", 2**20, 0)])
def test_more_than_two_to_the_thirty_one_elements(scope: ScopeSpec) -> None:
    """Zeros with values planted before, at and after 2^31."""
    rows, columns = (2**31 + 2**20 + 24, 1) if scope[0] == "group" else (2**20 + 3, 2049)
    problem = Problem((rows, columns), "bfloat16", scope, "asymmetric")
    x = np.zeros(rows * columns, ml_dtypes.bfloat16)
    where = np.array([0, 2**31 - 1, 2**31, 2**31 + 1, x.size - 1])
    x[where] = np.array([1, -2, 3, -4, 5])
    shape = descriptor(problem).operands()["minimum"].shape
    low, high = np.full(shape, 9, F32), np.full(shape, 9, F32)
    plan = planq.Plan.select(planq.HOST, descriptor(problem))
    args = planq.MinMaxArgs(input=x.reshape(rows, columns), minimum=low, maximum=high)
    plan.run(planq.HOST, None, args)
    length = {"tensor": x.size, "token": columns, "group": 2**20}[scope[0]]
    segment, wanted = where // length, x[where].astype(F32)
    right_low, right_high = np.zeros(low.size, F32), np.zeros(high.size, F32)
    np.minimum.at(right_low, segment, wanted)
    np.maximum.at(right_high, segment, wanted)
    assert np.array_equal(low.ravel(), right_low)
    assert np.array_equal(high.ravel(), right_high)


class TestPeers:
    """The same ranges from other libraries."""

    @pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
    def test_torch_aminmax(self, input_dtype: str) -> None:
        """NaN included: torch makes both ends NaN too."""
        for kind in ("finite", "nonfinite", "huge"):
            x = inputs.make(kind, (40, 130), input_dtype, 3)
            tensor = torch.from_numpy(x.view(f"i{x.itemsize}")).view(getattr(torch, input_dtype))
            for scope, dim in ((("token",), 1), (("channel", -1), 0)):
                problem = Problem(x.shape, input_dtype, scope, "asymmetric")
                found = measure(problem, {"input": x})
                low, high = (
                    end.to(getattr(torch, found["minimum"].dtype.name)).numpy()
                    for end in torch.aminmax(tensor, dim=dim)
                )
                assert np.array_equal(found["minimum"], low, equal_nan=True)
                assert np.array_equal(found["maximum"], high, equal_nan=True)

    @pytest.mark.parametrize("axis", [None, 0, 1, 2])
    def test_torch_observers_over_batches(self, axis: int | None) -> None:
        """Running ranges in place, from an observer's own start."""
        observer: Any = MinMaxObserver() if axis is None else PerChannelMinMaxObserver(ch_axis=axis)
        shape = (4, 6, 10)
        scope = planq.Scope.tensor() if axis is None else planq.Scope.channel(axis)
        desc = planq.MinMaxDescriptor(
            shape=shape,
            input_dtype="float32",
            scope=scope,
            mode=planq.Mode.ASYMMETRIC,
            update=True,
        )
        plan = planq.Plan.select(planq.HOST, desc)
        ends = desc.operands()["minimum"].shape
        low, high = np.full(ends, INF, F32), np.full(ends, -INF, F32)
        for seed in range(5):
            x = inputs.make("normal", shape, "float32", seed)
            observer(torch.from_numpy(x))
            plan.run(
                planq.HOST,
                None,
                planq.MinMaxArgs(
                    input=x,
                    minimum=low,
                    maximum=high,
                    previous_minimum=low,
                    previous_maximum=high,
                ),
            )
            assert np.array_equal(low, observer.min_val.reshape(ends).numpy())
            assert np.array_equal(high, observer.max_val.reshape(ends).numpy())

    def test_numpy_over_blocks(self) -> None:
        """Whole tiles, by reshape."""
        x = inputs.make("finite", (3, 64, 96), "float64", 5)
        tiles = np.abs(x.reshape(3, 4, 16, 3, 32)).max(axis=(2, 4))
        problem = Problem(x.shape, "float64", ("block", 16, 32))
        assert np.array_equal(measure(problem, {"input": x})["absmax"], tiles)

    @pytest.mark.parametrize("mode", list(planq.Mode))
    def test_qparams_of_ranges_are_those_of_one_run(self, mode: planq.Mode) -> None:
        """Measuring and then quantizing is `dynamic_range_quantize`."""
        x = inputs.make("finite", (20, 333), "float32", 6)
        desc = planq.DynamicRangeQuantizeDescriptor(
            shape=x.shape, input_dtype="float32", output_dtype="int8", mode=mode
        )
        scale, zero_point = np.empty(20, F32), np.empty(20, np.int32)
        symmetric = mode is planq.Mode.SYMMETRIC
        args = planq.DynamicRangeQuantizeArgs(
            input=x,
            output=np.empty(x.shape, np.int8),
            scale=scale,
            zero_point=None if symmetric else zero_point,
        )
        planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
        found = measure(Problem(x.shape, "float32", ("token",), mode.value), {"input": x})
        low = 0 if symmetric else found["minimum"]
        high = found["absmax"] if symmetric else found["maximum"]
        ours = planq.qparams(low, high, output_dtype="int8", mode=mode)
        assert np.array_equal(ours.scale, scale)
        assert symmetric or np.array_equal(ours.zero_point, zero_point)


class TestOperands:
    """What a call may and may not be."""

    DESC = planq.MinMaxDescriptor(shape=(4, 8), input_dtype="float32", update=True)
    X = inputs.make("normal", (4, 8), "float32")

    def args(self, **changes: Any) -> planq.MinMaxArgs:
        """Symmetric operands with previous results of their own."""
        operands = {"absmax": np.empty(1, F32), "previous_absmax": np.ones(1, F32)}
        return planq.MinMaxArgs(input=self.X, **{**operands, **changes})

    def test_the_operands_of_each_mode(self) -> None:
        """Those that the descriptor has, by name."""
        base = planq.MinMaxDescriptor(shape=(4, 8), input_dtype="bfloat16")
        assert list(base.operands()) == ["input", "absmax"]
        assert list(self.DESC.operands()) == ["input", "absmax", "previous_absmax"]
        both = replace(self.DESC, mode=planq.Mode.ASYMMETRIC).operands()
        assert list(both) == [
            "input",
            "minimum",
            "maximum",
            "previous_minimum",
            "previous_maximum",
        ]
        assert base.operands()["absmax"].dtype is planq.DType.FLOAT32
        wide = planq.MinMaxDescriptor(shape=(4, 8), input_dtype="float64")
        assert wide.operands()["absmax"].dtype is planq.DType.FLOAT64

    def test_a_result_may_take_the_place_of_the_one_before(self) -> None:
        """Exactly, and nothing else may be shared."""
        plan = planq.Plan.select(planq.HOST, self.DESC)
        running = np.full(1, 100, F32)
        plan.run(planq.HOST, None, self.args(absmax=running, previous_absmax=running))
        assert running.tolist() == [100]
        token = replace(self.DESC, scope=planq.Scope.token())
        memory = np.ones(5, F32)
        shifted = self.args(absmax=memory[1:], previous_absmax=memory[:4])
        status = planq.Plan.select(planq.HOST, token).can_implement(shifted)
        assert not status
        assert status.operand == "absmax"

    def test_missing_and_unwanted_operands(self) -> None:
        """Each is named."""
        plan = planq.Plan.select(planq.HOST, self.DESC)
        for name in ("absmax", "previous_absmax"):
            status = plan.can_implement(self.args(**{name: None}))
            assert (bool(status), status.operand) == (False, name)
        status = plan.can_implement(self.args(minimum=np.empty(1, F32)))
        assert (bool(status), status.operand) == (False, "minimum")

    @pytest.mark.parametrize(
        ("field", "changes"),
        [
            ("shape", {"shape": ()}),
            ("shape", {"shape": (4, -1)}),
            ("input_dtype", {"input_dtype": "int8"}),
            ("scope", {"scope": planq.Scope.channel(2)}),
            ("scope", {"scope": planq.Scope.group(0)}),
            ("scope", {"scope": planq.Scope.pair()}),
            ("scope", {"scope": planq.Scope.block(0, 4)}),
            ("scope", {"shape": (8,), "scope": planq.Scope.block(4, 4)}),
            ("update", {"update": 1}),
            ("mode", {"mode": "signed"}),
        ],
    )
    def test_descriptors_that_say_nothing_sensible(
        self, field: str, changes: dict[str, Any]
    ) -> None:
        """The fault is named."""
        fields = {"shape": (4, 8), "input_dtype": "float32", **changes}
        with pytest.raises(planq.DescriptorError) as caught:
            planq.MinMaxDescriptor(**fields)
        assert caught.value.field == field
