"""`spmm_coo` on the host: torch, what its originals get wrong, properties, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.memory import Host
from planq.audit.ops.outlier.entries import KINDS, kept
from planq.audit.ops.outlier.matrices import ELEMENTS
from planq.audit.ops.outlier.spmm_coo.adapter import multiply
from planq.audit.ops.outlier.spmm_coo.cases import DATA, WEIGHTS, Case
from planq.audit.ops.outlier.spmm_coo.reference import Problem, fma, spmm_coo
from planq.audit.reference.formats import Array

PLAIN = Problem((4, 6), 8, "float32", (5, 6), "float16", "float32")


def one_row(value: Array, columns: Array, room: int | None = None) -> dict[str, Array]:
    """A list whose entries all are in row 0."""
    held = len(value)
    size = held if room is None else room
    return {
        "row_index": np.zeros(size, np.int32),
        "column_index": np.resize(columns.astype(np.int32), size),
        "value": np.resize(value, size),
        "count": np.array([held]),
    }


def test_the_reference_rounds_once() -> None:
    """1 + 2^-24 + 2^-60 is above the middle between two floats; two roundings lose that."""
    a, b = np.float32(2.0**-24 + 2.0**-47), np.float32(1)
    assert fma(a[None], b[None], np.ones(1, np.float32))[0] == np.float32(1 + 2.0**-23)
    tie = np.array([2.0**-24], np.float32)
    assert fma(tie, np.ones(1, np.float32), np.ones(1, np.float32))[0] == 1


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_torch_in_float64(weight: str, transposed: bool) -> None:
    """Small integers, of which every sum is exact."""
    rng = np.random.default_rng(3)
    dense = rng.integers(-3, 4, (9, 50)) * (rng.random((9, 50)) < 0.3)
    rows, columns = np.nonzero(dense)
    w = rng.integers(-20, 21, (50, 70))
    shape = (50, 70) if transposed else (70, 50)
    problem = Problem((9, 50), 450, "float16", shape, weight, "float32", False, transposed)
    room = 450 - len(rows)
    given_operands = {
        "row_index": np.pad(rows, (0, room)).astype(np.int32),
        "column_index": np.pad(columns, (0, room)).astype(np.int32),
        "value": np.pad(dense[rows, columns], (0, room)).astype(np.float16),
        "count": np.array([len(rows)]),
        "weight": (w if transposed else w.T).astype(
            np.int8 if weight == "int8" else torch_like(weight)
        ),
    }
    if weight == "int8":
        given_operands["stats"] = np.full(70, 127, np.float32)
    found = multiply(problem, given_operands)["output"]
    wanted = (torch.from_numpy(dense).double() @ torch.from_numpy(w).double()).numpy()
    if weight == "int8":  # 127 * fl(1/127) is 1 less a little
        wanted = wanted.astype(np.float32) * np.float32(127) * (np.float32(1) / np.float32(127))
    assert np.array_equal(found, wanted)


def torch_like(name: str) -> Any:
    """NumPy's type of that name, with ml_dtypes'."""
    import ml_dtypes

    return getattr(ml_dtypes, name, None) or np.dtype(name)


class TestWhatTheOriginalsGetWrong:
    """bitsandbytes' `spmm_coo` and `spmm_coo_very_sparse`, defect by defect."""

    @pytest.mark.parametrize("count", [32, 33, 1000])
    def test_a_row_has_any_number_of_entries(self, count: int) -> None:
        """There 32 at most."""
        problem = Problem((1, 1000), count, "float16", (3, 1000), "float16", "float32")
        operands = one_row(np.ones(count, np.float16), np.arange(count))
        operands["weight"] = np.ones((3, 1000), np.float16)
        assert multiply(problem, operands)["output"].tolist() == [[count] * 3]

    def test_sums_are_rounded_once(self) -> None:
        """2048 + 1 + 1 in float16 steps is 2048."""
        problem = Problem((1, 3), 3, "float16", (1, 3), "float16", "float16")
        operands = one_row(np.array([2048, 1, 1], np.float16), np.arange(3))
        operands["weight"] = np.ones((1, 3), np.float16)
        assert multiply(problem, operands)["output"].tolist() == [[2050]]
        onto = replace(problem, accumulate=True)
        operands["output"] = np.array([[-2048]], np.float16)
        assert multiply(onto, operands)["output"].tolist() == [[2]]

    @pytest.mark.parametrize("columns", [1, 7, 8, 9, 515])
    def test_the_output_has_any_number_of_columns(self, columns: int) -> None:
        """There multiples of 8; and k is not taken for n."""
        problem = Problem(
            (2, 3), 2, "float32", (3, columns), "bfloat16", "float32", transpose_weight=True
        )
        operands = one_row(np.array([2, 3], np.float32), np.array([0, 2]))
        operands["weight"] = np.full((3, columns), 5, torch_like("bfloat16"))
        found = multiply(problem, operands)["output"]
        assert found.tolist() == [[25] * columns, [0] * columns]

    def test_the_order_of_the_list_is_that_of_the_sum(self) -> None:
        """2^24 + 1 - 2^24, in two orders."""
        problem = Problem((1, 3), 3, "float32", (1, 3), "float16", "float32")
        weight = {"weight": np.ones((1, 3), np.float16)}
        big = np.float32(2**24)
        for value, wanted in (([big, 1, -big], 0), ([big, -big, 1], 1)):
            operands = one_row(np.array(value, np.float32), np.arange(3))
            assert multiply(problem, {**operands, **weight})["output"].tolist() == [[wanted]]

    @pytest.mark.parametrize("count", [-5, 0, 1, 2, 3, 2**40])
    def test_the_number_of_entries_is_read_from_memory(self, count: int) -> None:
        """What stands behind them has indices that no matrix has."""
        operands = one_row(np.ones(2, np.float32), np.array([0, 1]))
        operands["count"] = np.array([count])
        operands["weight"] = np.ones((5, 6), np.float16)
        for name in ("row_index", "column_index"):
            operands[name][max(0, min(count, 2)) :] = 2**31 - 1
        found = multiply(replace(PLAIN, capacity=2), operands)["output"]
        assert found[0].tolist() == [max(0, min(count, 2))] * 5
        assert not found[1:].any()


class TestAccumulate:
    """Onto what the output holds."""

    def test_rows_without_entries_keep_their_bits(self) -> None:
        """Even those of a NaN and of -0."""
        held = np.full((4, 5), -0.0, np.float32)
        held.view(np.uint32)[2] = 0x7F812345
        operands = one_row(np.ones(1, np.float32), np.array([3]), 8)
        operands |= {"weight": np.ones((5, 6), np.float16), "output": held}
        found = multiply(replace(PLAIN, accumulate=True), operands)["output"]
        assert found[1:].tobytes() == held[1:].tobytes()
        assert found[0].tolist() == [1] * 5

    def test_an_empty_list_leaves_everything_alone(self) -> None:
        """No places at all."""
        problem = replace(PLAIN, capacity=0, accumulate=True)
        held = np.arange(20, dtype=np.float32).reshape(4, 5)
        operands = one_row(np.zeros(0, np.float32), np.zeros(0))
        operands |= {"weight": np.ones((5, 6), np.float16), "output": held}
        assert np.array_equal(multiply(problem, operands)["output"], held)

    def test_statistics_scale_the_product_alone(self) -> None:
        """Not what it is added to."""
        problem = replace(PLAIN, weight_dtype="int8", accumulate=True)
        operands = one_row(np.ones(1, np.float32), np.array([3]), 8)
        operands |= {
            "weight": np.full((5, 6), 127, np.int8),
            "stats": np.arange(5, dtype=np.float32),
            "output": np.full((4, 5), 1000, np.float32),
        }
        inverse = np.float32(1) / np.float32(127)
        wanted = np.float32(1000) + np.float32(127) * np.arange(5, dtype=np.float32) * inverse
        assert np.array_equal(multiply(problem, operands)["output"][0], wanted)


@settings(max_examples=200, deadline=None)
@given(
    shape=st.lists(st.integers(0, 12), min_size=1, max_size=3).map(tuple),
    columns=st.integers(0, 40),
    capacity=st.integers(0, 50),
    types=st.tuples(st.sampled_from(ELEMENTS), st.sampled_from(WEIGHTS), st.sampled_from(ELEMENTS)),
    flags=st.tuples(st.booleans(), st.booleans()),
    kind=st.sampled_from(KINDS),
    data=st.sampled_from(DATA),
    seed=st.integers(0, 2**20),
    threads=st.integers(1, 3),
)
def test_any_problem(
    shape: tuple[int, ...],
    columns: int,
    capacity: int,
    types: tuple[str, str, str],
    flags: tuple[bool, bool],
    kind: str,
    data: str,
    seed: int,
    threads: int,
) -> None:
    """The reference's bytes."""
    weight_shape = (shape[-1], columns) if flags[1] else (columns, shape[-1])
    problem = Problem(shape, capacity, types[0], weight_shape, types[1], types[2], *flags)
    operands = Case(problem, kind, data, seed).inputs()
    found = multiply(problem, operands, Host(threads))["output"]
    assert found.tobytes() == spmm_coo(problem, operands)["output"].tobytes()


def test_what_double_quantize_lists_completes_the_product_of_its_codes() -> None:
    """The outliers' own product is that of the matrix without the rest."""
    x = np.zeros((6, 300), np.float32)
    x[1, 7], x[1, 299], x[4, 0] = 8, -9, 10
    desc = planq.DoubleQuantizeDescriptor(
        shape=x.shape, input_dtype="float32", threshold=6.0, capacity=5
    )
    plan = planq.Plan.select(planq.HOST, desc)
    made = plan.empty_outputs(np)
    memory = np.empty(plan.workspace_size() + planq.WORKSPACE_ALIGNMENT, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % planq.WORKSPACE_ALIGNMENT
    args = planq.DoubleQuantizeArgs(input=x, **made)
    plan.run(planq.HOST, (start, plan.workspace_size()), args)
    weight = np.random.default_rng(1).integers(-9, 10, (20, 300)).astype(np.float16)
    problem = Problem(x.shape, 5, "float32", weight.shape, "float16", "float32")
    names = ("row_index", "column_index", "value", "count")
    found = multiply(problem, {**{n: made[n] for n in names}, "weight": weight})["output"]
    assert kept(made["count"], 5) == 3
    assert np.array_equal(found, x @ weight.astype(np.float32).T)


FIELDS = {
    "shape": (4, 6),
    "capacity": 3,
    "value_dtype": "float16",
    "weight_shape": (5, 6),
    "weight_dtype": "int8",
    "output_dtype": "float16",
}
BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"weight_shape": (6, 5)}, "weight_shape", "expected 6 along axis 1, as the last axis of"),
    ({"transpose_weight": True}, "weight_shape", "expected 6 along axis 0, as the last axis of"),
    ({"weight_shape": (6,)}, "weight_shape", "expected 2 axes, got 1"),
    ({"weight_shape": (-1, 6)}, "weight_shape", "axis 0 is negative: -1"),
    ({"weight_shape": (2**57, 6), "shape": (64, 6)}, "weight_shape", "more than 2^60 elements"),
    ({"weight_dtype": "float32"}, "weight_dtype", "expected one of float16, bfloat16, int8, got"),
    ({"output_dtype": "int32"}, "output_dtype", "expected one of float16, bfloat16, float32, got"),
    ({"value_dtype": "float64"}, "value_dtype", "expected one of float16, bfloat16, float32, got"),
    ({"capacity": 2**31}, "capacity", "expected 0 to 2^31 - 1, got 2147483648"),
]


@pytest.mark.parametrize(("fields", "field", "text"), BAD_FIELDS)
def test_bad_fields_are_refused(fields: dict[str, Any], field: str, text: str) -> None:
    """At construction, by name."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.SpmmCooDescriptor(**{**FIELDS, **fields})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: {text}")


def test_operands_say_what_each_tensor_has_to_be() -> None:
    """Statistics of int8 alone; the output is updated where it is added to."""
    make: Any = planq.SpmmCooDescriptor
    specs = make(**FIELDS, accumulate=True).operands()
    assert specs["stats"].shape == (5,)
    assert specs["output"].role == "inout"
    specs = make(**{**FIELDS, "weight_dtype": "bfloat16"}).operands()
    assert "stats" not in specs
    assert (specs["output"].role, specs["output"].shape) == ("output", (4, 5))
