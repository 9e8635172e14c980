"""`double_quantize` on the host: by hand, bitsandbytes, what its original gets wrong, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.memory import Host
from planq.audit.ops.outlier import matrices
from planq.audit.ops.outlier.double_quantize.adapter import quantize
from planq.audit.ops.outlier.double_quantize.reference import Problem, double_quantize
from planq.audit.ops.outlier.matrices import ELEMENTS
from planq.audit.reference.formats import Array
from support.bitsandbytes_host import bnb

ROW = ("row_absmax", "row_codes")
COLUMN = ("column_absmax", "column_codes")


def entries(found: dict[str, Array]) -> list[tuple[int, int, float]]:
    """The places of a list."""
    return [
        (int(r), int(c), float(v))
        for r, c, v in zip(found["row_index"], found["column_index"], found["value"], strict=True)
    ]


class TestValuesWorkedOutByHand:
    """The formula, without the reference."""

    X = np.array([[1, -2, 8], [127, 63.5, -64]], np.float32)

    def test_codes_by_rows_and_by_columns(self) -> None:
        """Of 127 / 8 = 15.875, 31.75; and 63.5 is a tie, which goes to 64."""
        found = quantize(Problem((2, 3)), self.X)
        assert found["row_codes"].tolist() == [[16, -32, 127], [127, 64, -64]]
        assert found["column_codes"].tolist() == [[1, -4, 16], [127, 127, -127]]
        assert found["count"].tolist() == [0]

    def test_outliers_have_the_code_0_and_a_place_in_the_list(self) -> None:
        """In the order of the matrix; the places behind them are empty."""
        found = quantize(Problem((2, 3), "float32", 60.0, 5), self.X)
        assert found["row_codes"].tolist() == [[16, -32, 127], [0, 0, 0]]
        assert found["column_codes"].tolist() == [[127, -127, 127], [0, 0, 0]]
        assert found["row_absmax"].tolist() == [8, 0]
        assert found["count"].tolist() == [3]
        assert entries(found) == [
            (1, 0, 127.0),
            (1, 1, 63.5),
            (1, 2, -64.0),
            (-1, -1, 0.0),
            (-1, -1, 0.0),
        ]

    def test_values_keep_their_bits(self) -> None:
        """Infinities too, which are outliers where there are any."""
        x = np.array([[1, -np.inf, np.nan]], np.float32)
        found = quantize(Problem((1, 3), "float32", 5.0, 2), x)
        assert entries(found) == [(0, 1, -np.inf), (-1, -1, 0.0)]
        assert np.isnan(found["row_absmax"]).all()
        assert found["row_codes"].tolist() == [[0, 0, 0]]
        assert found["column_codes"].tolist() == [[127, 0, 0]]


class TestWhatTheOriginalGetsWrong:
    """bitsandbytes' `double_quant`, defect by defect."""

    def test_the_codes_of_outliers_do_not_wrap_around(self) -> None:
        """There the column code of 60 among ones is 7620 modulo 256."""
        x = np.ones((64, 8), np.float16)
        x[5, 3] = 60
        found = quantize(Problem(x.shape, "float16", 6.0, 1, "ratio"), x)
        assert found["column_codes"][5, 3] == found["row_codes"][5, 3] == 0
        others = np.delete(found["column_codes"].ravel(), 5 * 8 + 3)
        assert (others == 127).all()

    @pytest.mark.parametrize("threads", [1, 2, 7])
    def test_the_list_has_the_order_of_the_matrix(self, threads: int) -> None:
        """In every run, with any number of threads."""
        x = matrices.make("spiked", (200, 1030), "float16", 1)
        problem = Problem(x.shape, "float16", 2.0, 40_000)
        rows, columns = np.nonzero(np.abs(x) >= 2)
        for _ in range(3):
            found = quantize(problem, x, Host(threads))
            held = int(found["count"][0])
            assert held == len(rows) > 10_000
            assert np.array_equal(found["row_index"][:held], rows)
            assert np.array_equal(found["column_index"][:held], columns)
            assert np.array_equal(found["value"][:held], x[rows, columns])

    def test_a_row_has_any_number_of_outliers(self) -> None:
        """More than 32: all 1000 elements of one row, and none elsewhere."""
        x = np.ones((3, 1000), np.float32)
        x[1] = np.arange(1000) + 10
        found = quantize(Problem(x.shape, "float32", 10.0, 1000), x)
        assert found["count"].tolist() == [1000]
        assert (found["row_index"] == 1).all()
        assert np.array_equal(found["column_index"], np.arange(1000))
        assert np.array_equal(found["value"], x[1])

    @pytest.mark.parametrize("capacity", [0, 1, 255, 256, 257, 2999, 3000, 3001])
    def test_the_number_is_the_true_one_whatever_there_is_room_for(self, capacity: int) -> None:
        """The first ones are kept; nothing is written beyond the room, as guards show."""
        x = np.full((3, 1000), 9, np.float32)
        found = quantize(Problem(x.shape, "float32", 9.0, capacity), x)
        assert found["count"].tolist() == [3000]
        held = min(capacity, 3000)
        assert np.array_equal(found["row_index"][:held], np.arange(held) // 1000)
        assert np.array_equal(found["column_index"][:held], np.arange(held) % 1000)
        assert (found["row_index"][held:] == -1).all()
        assert not found["row_codes"].any()

    def test_the_number_is_left_in_memory(self) -> None:
        """An operand like any other: a launch that was bound before counts what it finds."""
        x = np.zeros((4, 300), np.float32)
        desc = planq.DoubleQuantizeDescriptor(
            shape=x.shape, input_dtype="float32", threshold=1.0, capacity=8
        )
        plan = planq.Plan.select(planq.HOST, desc)
        outputs = plan.empty_outputs(np)
        memory = np.empty(plan.workspace_size() + planq.WORKSPACE_ALIGNMENT, np.uint8)
        start = memory.ctypes.data + -memory.ctypes.data % planq.WORKSPACE_ALIGNMENT
        args = planq.DoubleQuantizeArgs(input=x, **outputs)
        launch = plan.bind((start, plan.workspace_size()), args)
        for count in (0, 3, 11, 1):
            x[:] = 0
            x.ravel()[:count] = 2
            launch(planq.HOST)
            assert outputs["count"].tolist() == [count]
            assert (outputs["column_index"] >= 0).sum() == min(count, 8)

    def test_three_axes_are_rows_of_one_matrix(self) -> None:
        """The row index counts all axes but the last."""
        x = np.zeros((2, 3, 5), np.float16)
        x[1, 2, 4], x[0, 1, 0] = 7, -8
        found = quantize(Problem(x.shape, "float16", 6.0, 2), x)
        assert entries(found) == [(1, 0, -8.0), (5, 4, 7.0)]
        assert found["row_codes"].shape == x.shape
        assert found["row_absmax"].shape == (2, 3)

    def test_a_matrix_of_zeros_has_codes_of_zero(self) -> None:
        """There 127 / 0 is infinite."""
        found = quantize(Problem((4, 4), "float16", 6.0, 1), np.zeros((4, 4), np.float16))
        assert not found["row_codes"].any()
        assert not found["column_codes"].any()
        assert not found["row_absmax"].any()

    @pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,), (0, 0, 3)])
    def test_an_empty_matrix_leaves_everything_defined(self, shape: tuple[int, ...]) -> None:
        """The number, the list and the maxima."""
        found = quantize(Problem(shape, "float16", 6.0, 3), np.zeros(shape, np.float16))
        assert found["count"].tolist() == [0]
        assert entries(found) == [(-1, -1, 0.0)] * 3
        assert not found["row_absmax"].any()
        assert not found["column_absmax"].any()


def test_bitsandbytes_int8_vectorwise_quant() -> None:
    """Its CPU rows with a threshold, RATIO. It clears whole outlier columns, which planq leaves.

    torch computes `127.0 / tensor` as `127 * fl(1 / absmax)`; rows where that is another number are
    left out.
    """
    one, limit = np.float32(1), np.float32(127)
    x = matrices.make("spiked", (2000, 96), "float16", 5)
    x[:, 20:] = np.clip(x[:, 20:], -5, 5)  # outliers in the first columns
    M = np.where(np.abs(x) >= 6, 0, np.abs(x)).max(axis=1).astype(np.float32)
    x = np.ascontiguousarray(x[limit * (one / M) == limit / M])
    codes, stats, columns = bnb.int8_vectorwise_quant(torch.from_numpy(x.copy()), 6.0)
    found = quantize(Problem(x.shape, "float16", 6.0, x.size, "ratio"), x)
    assert np.array_equal(found["row_absmax"], stats.numpy())
    held = int(found["count"][0])
    assert set(columns.tolist()) == set(found["column_index"][:held].tolist()) != set()
    kept = np.setdiff1d(np.arange(96), columns.numpy())
    assert np.array_equal(found["row_codes"][:, kept], codes.numpy()[:, kept])


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("quotient", ["divide", "reciprocal", "ratio"])
def test_a_segment_alone_is_as_among_others(dtype: str, quotient: str) -> None:
    """Rows are segments, and columns are."""
    x = matrices.make("rows", (70, 300), dtype, 7)
    whole = quantize(Problem(x.shape, dtype, 6.0, 0, quotient), x)
    for row in (0, 63, 64):
        part = Problem((1, 300), dtype, 6.0, 0, quotient)
        alone = quantize(part, x[row : row + 1])
        for name in ROW:
            assert alone[name].tobytes() == whole[name][row].tobytes(), name
    for column in (0, 255, 256):
        values = np.ascontiguousarray(x[:, column : column + 1])
        alone = quantize(Problem((70, 1), dtype, 6.0, 0, quotient), values)
        for name in COLUMN:
            assert alone[name].tobytes() == whole[name][..., column].tobytes(), name


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.integers(0, 40), min_size=1, max_size=4).map(tuple),
    dtype=st.sampled_from(ELEMENTS),
    threshold=st.sampled_from([0.0, 1e-7, 0.3, 1.0, 6.0, 65504.0, 1e38]),
    capacity=st.integers(0, 300),
    quotient=st.sampled_from(["divide", "reciprocal", "ratio"]),
    kind=st.sampled_from(["spiked", "rows", "patterns", "all_nonfinite", "subnormal", "ties"]),
    seed=st.integers(0, 2**20),
)
def test_any_shape(
    shape: tuple[int, ...],
    dtype: str,
    threshold: float,
    capacity: int,
    quotient: str,
    kind: str,
    seed: int,
) -> None:
    """The reference's bytes."""
    problem = Problem(shape, dtype, threshold, capacity, quotient)
    x = matrices.make(kind, shape, dtype, seed)
    found = quantize(problem, x)
    for name, wanted in double_quantize(problem, x).items():
        assert found[name].tobytes() == wanted.tobytes(), name


@pytest.mark.parametrize("quotient", ["divide", "reciprocal", "ratio"])
def test_tiny_rows(quotient: str) -> None:
    """Subnormal maxima, whose inverses overflow; the codes stay in their bounds."""
    tiny = np.float32(1e-45)
    x = np.array([[tiny, -tiny, 0], [1e-38, -3e-39, 1e-40], [3e38, -3e38, 1]], np.float32)
    problem = Problem(x.shape, quotient=quotient)
    found = quantize(problem, x)
    for name, wanted in double_quantize(problem, x).items():
        assert found[name].tobytes() == wanted.tobytes(), name
    if quotient == "ratio":
        assert found["row_codes"][0].tolist() == [127, -127, 0]


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"threshold": -0.5}, "threshold", "expected a finite number of at least 0, got -0.5"),
    ({"capacity": -1}, "capacity", "expected 0 to 2^31 - 1, got -1"),
    ({"capacity": 2**31}, "capacity", "expected 0 to 2^31 - 1, got 2147483648"),
    ({"shape": (2, 2**31)}, "shape", "expected at most 2^31 - 1 rows and columns, got 2 and"),
    ({"shape": (2**20, 2**11, 3)}, "shape", "expected at most 2^31 - 1 rows and columns, got 2147"),
    ({"input_dtype": "int8"}, "input_dtype", "expected one of float16, bfloat16, float32, got"),
    ({"quotient": "exact"}, "quotient", "expected Quotient (DIVIDE, RECIPROCAL, RATIO), got"),
]


@pytest.mark.parametrize(("fields", "field", "text"), BAD_FIELDS)
def test_bad_fields_are_refused(fields: dict[str, Any], field: str, text: str) -> None:
    """At construction, by name."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.DoubleQuantizeDescriptor(**{"shape": (4, 6), "input_dtype": "float16", **fields})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: {text}")


def test_bad_operands_are_refused_and_nothing_is_written() -> None:
    """A list that is too short, and a number that is no int64."""
    desc = planq.DoubleQuantizeDescriptor(shape=(2, 3), input_dtype="float32", capacity=4)
    plan = planq.Plan.select(planq.HOST, desc)
    good = {name: np.full_like(o, 7) for name, o in plan.empty_outputs(np).items()}
    for name, bad, text in (
        ("value", np.zeros(3, np.float32), "expected shape (4,) float32 on host, got (3,)"),
        ("count", np.zeros(1, np.int32), "expected shape (1,) int64 on host, got (1,) int32"),
    ):
        args = planq.DoubleQuantizeArgs(input=np.ones((2, 3), np.float32), **{**good, name: bad})
        with pytest.raises(planq.ArgumentError, match=name) as caught:
            plan.run(planq.HOST, None, args)
        assert text in str(caught.value)
    assert all((values == 7).all() for values in good.values())
