"""`extract_outliers` on the host: examples, what lists may hold, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.ops.outlier.extract_outliers.adapter import descriptor
from planq.audit.ops.outlier.extract_outliers.reference import Problem
from planq.audit.ops.outlier.layouts import LAYOUTS, memory_of, random_integers
from planq.audit.reference.formats import Array


def extract(problem: Problem, memory: Array, index: list[int], count: int) -> Array:
    """The output of a run."""
    output = np.full((*problem.shape[:-1], problem.capacity), 99, problem.dtype)
    args = planq.ExtractOutliersArgs(
        input=memory,
        index=np.array(index, np.int32),
        count=np.array([count], np.int64),
        output=output,
    )
    planq.Plan.select(planq.HOST, descriptor(problem)).run(planq.HOST, None, args)
    return output


@pytest.mark.parametrize("layout", LAYOUTS)
class TestLists:
    """What a list names, in every layout."""

    def test_columns_in_the_order_of_the_list(self, layout: str) -> None:
        """Also one twice."""
        matrix = random_integers((45, 70), "int8", 1)
        found = extract(
            Problem((45, 70), "int8", layout, 4), memory_of(layout, matrix), [69, 0, 33, 0], 4
        )
        assert np.array_equal(found, matrix[:, [69, 0, 33, 0]])

    def test_positions_behind_the_count_are_zero(self, layout: str) -> None:
        """And what the list has there is not read as a column."""
        matrix = random_integers((9, 40), "int8", 2)
        found = extract(
            Problem((9, 40), "int8", layout, 3), memory_of(layout, matrix), [5, 6, 10**9], 1
        )
        assert np.array_equal(found[:, 0], matrix[:, 5])
        assert not found[:, 1:].any()

    @pytest.mark.parametrize("count", [2, 3, 2**40])
    def test_a_count_beyond_the_capacity(self, layout: str, count: int) -> None:
        """Is as many as there is room for."""
        matrix = random_integers((9, 40), "int8", 3)
        memory = memory_of(layout, matrix)
        found = extract(Problem((9, 40), "int8", layout, 2), memory, [39, 7], count)
        assert np.array_equal(found, matrix[:, [39, 7]])

    @pytest.mark.parametrize("name", [-1, 40, -(2**31), 2**31 - 1])
    def test_names_of_no_column(self, layout: str, name: int) -> None:
        """Give 0, and nothing outside of the matrix is read; padding is no column."""
        matrix = random_integers((9, 40), "int8", 4)
        memory = memory_of(layout, matrix)
        memory.reshape(-1)[memory_of(layout, np.ones_like(matrix)).reshape(-1) == 0] = 55
        found = extract(Problem((9, 40), "int8", layout, 2), memory, [name, 3], 2)
        assert not found[:, 0].any()
        assert np.array_equal(found[:, 1], matrix[:, 3])

    def test_three_axes(self, layout: str) -> None:
        """Rows are those of all axes but the last."""
        matrix = random_integers((3, 11, 40), "int32", 5)
        memory = matrix if layout == "row" else memory_of(layout, matrix.reshape(33, 40))
        found = extract(Problem((3, 11, 40), "int32", layout, 2), memory, [39, 1], 2)
        assert np.array_equal(found, matrix[..., [39, 1]])


def test_the_list_of_a_launch_is_read_when_it_runs() -> None:
    """Nothing of it is kept: the number of columns changes between two launches."""
    matrix = random_integers((4, 8), "int8", 6)
    index, count = np.array([1, 2], np.int32), np.array([2], np.int64)
    output = np.zeros((4, 2), np.int8)
    plan = planq.Plan.select(planq.HOST, descriptor(Problem((4, 8), capacity=2)))
    args = planq.ExtractOutliersArgs(input=matrix, index=index, count=count, output=output)
    launch = plan.bind(None, args)
    launch(planq.HOST)
    assert np.array_equal(output, matrix[:, [1, 2]])
    count[0], index[0] = 1, 7
    launch(planq.HOST)
    assert np.array_equal(output, np.stack((matrix[:, 7], np.zeros(4, np.int8)), axis=1))


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"shape": (5,)}, "shape", "expected 2 to 8 axes, got 1"),
    ({"dtype": "float16"}, "dtype", "expected one of int8, int32, got float16"),
    ({"capacity": -1}, "capacity", "expected at least 0, got -1"),
    ({"shape": (2**40, 2**20), "capacity": 2**21}, "capacity", "more than 2^60 elements"),
    ({"layout": None}, "layout", "expected Layout"),
]


@pytest.mark.parametrize(("fields", "field", "text"), BAD_FIELDS)
def test_bad_fields_are_refused(fields: dict[str, Any], field: str, text: str) -> None:
    """At construction, by name."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.ExtractOutliersDescriptor(**{"shape": (4, 6), "capacity": 2, **fields})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: {text}")


def test_operands_say_what_each_tensor_has_to_be() -> None:
    """The list and its length have one type each."""
    specs = descriptor(Problem((33, 70), "int32", "col_ampere", 5)).operands()
    assert {name: (spec.dtype, spec.shape) for name, spec in specs.items()} == {
        "input": ("int32", (64, 96)),
        "index": ("int32", (5,)),
        "count": ("int64", (1,)),
        "output": ("int32", (33, 5)),
    }
