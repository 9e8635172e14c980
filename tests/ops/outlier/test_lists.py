"""`coo_to_csr` and `coo_to_csc` on the host: torch, properties, what they refuse."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.ops.outlier import entries as lists
from planq.audit.ops.outlier.coo_to_csc.adapter import to_csc
from planq.audit.ops.outlier.coo_to_csc.reference import Problem as CscProblem
from planq.audit.ops.outlier.coo_to_csc.reference import coo_to_csc
from planq.audit.ops.outlier.coo_to_csr.adapter import to_csr
from planq.audit.ops.outlier.coo_to_csr.reference import Problem as CsrProblem
from planq.audit.ops.outlier.coo_to_csr.reference import coo_to_csr
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array


def made(rows: int, columns: int, capacity: int, kind: str, seed: int) -> dict[str, Array]:
    """A list with float32 values."""
    found = lists.make(rows, columns, capacity, kind, seed)
    value = inputs.make("normal", (capacity,), "float32", seed)
    return {
        "row_index": found.row_index,
        "column_index": found.column_index,
        "value": value,
        "count": found.count,
    }


@pytest.mark.parametrize("kind", ["spread", "one_row", "one_column", "dense", "none", "last"])
@pytest.mark.parametrize("shape", [(7, 9), (100, 3), (40, 1000)])
def test_torch(shape: tuple[int, int], kind: str) -> None:
    """Its sparse tensors, from a dense one."""
    given_list = made(*shape, 60, kind, 3)
    held = lists.kept(given_list["count"], 60)
    rows, columns = given_list["row_index"][:held], given_list["column_index"][:held]
    dense = torch.zeros(shape)
    dense[torch.from_numpy(rows).long(), torch.from_numpy(columns).long()] = torch.from_numpy(
        given_list["value"][:held]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these tensors are a beta of torch's
        csr, csc = dense.to_sparse_csr(), dense.to_sparse_csc()
    picked = {name: given_list[name] for name in ("row_index", "count")}
    pointer = to_csr(CsrProblem(shape, 60), picked)["pointer"]
    assert np.array_equal(pointer, csr.crow_indices().numpy())
    assert np.array_equal(columns, csr.col_indices().numpy())
    found = to_csc(CscProblem(shape, 60, "float32"), given_list)
    assert np.array_equal(found["pointer"], csc.ccol_indices().numpy())
    assert np.array_equal(found["output_row_index"][:held], csc.row_indices().numpy())
    assert np.array_equal(found["output_value"][:held], csc.values().numpy())


def test_entries_of_one_column_stay_in_their_order() -> None:
    """Even where two have the same place, which no list of planq's has."""
    given_list = {
        "row_index": np.array([0, 0, 0, 2, 2], np.int32),
        "column_index": np.array([1, 1, 0, 1, 1], np.int32),
        "value": np.arange(5, dtype=np.float32),
        "count": np.array([5]),
    }
    found = to_csc(CscProblem((3, 2), 5, "float32"), given_list)
    assert found["output_value"].tolist() == [2, 0, 1, 3, 4]
    assert found["output_row_index"].tolist() == [0, 0, 0, 2, 2]
    assert found["pointer"].tolist() == [0, 1, 5]


@pytest.mark.parametrize("count", [-(2**62), -1, 0, 3, 4, 5, 2**31, 2**62])
def test_as_many_entries_count_as_there_are_and_fit(count: int) -> None:
    """Whatever the number in memory is; what stands behind them is not looked at."""
    given_list = made(2, 4, 4, "dense", 1)
    given_list["count"][0] = count
    held = max(0, min(count, 4))
    picked = {name: given_list[name] for name in ("row_index", "count")}
    assert to_csr(CsrProblem((2, 4), 4), picked)["pointer"].tolist() == [0, held, held]
    found = to_csc(CscProblem((2, 4), 4, "float32"), given_list)
    assert found["pointer"].tolist() == [min(i, held) for i in range(5)]
    assert found["output_row_index"].tolist() == [0] * held + [-1] * (4 - held)
    assert not found["output_value"][held:].any()


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.integers(0, 30), min_size=1, max_size=3).map(tuple),
    capacity=st.integers(0, 80),
    kind=st.sampled_from(lists.KINDS),
    dtype=st.sampled_from(("float16", "bfloat16", "float32")),
    seed=st.integers(0, 2**20),
)
def test_any_list(shape: tuple[int, ...], capacity: int, kind: str, dtype: str, seed: int) -> None:
    """The reference's bytes."""
    problem = CscProblem(shape, capacity, dtype)
    given_list = made(problem.rows, shape[-1], capacity, kind, seed)
    given_list["value"] = inputs.make("patterns", (capacity,), dtype, seed)
    found = to_csc(problem, given_list)
    for name, wanted in coo_to_csc(problem, given_list).items():
        assert found[name].tobytes() == wanted.tobytes(), name
    csr = CsrProblem(shape, capacity)
    picked = {name: given_list[name] for name in ("row_index", "count")}
    wanted = coo_to_csr(csr, **picked)["pointer"]
    assert to_csr(csr, picked)["pointer"].tobytes() == wanted.tobytes()


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"capacity": -1}, "capacity", "expected 0 to 2^31 - 1, got -1"),
    ({"capacity": 2**31}, "capacity", "expected 0 to 2^31 - 1, got 2147483648"),
    ({"shape": ()}, "shape", "expected 1 to 8 axes, got 0"),
    (
        {"shape": (planq.Dim("m", max=9), 4)},
        "shape",
        "Dim('m', max=9)",
    ),
]


@pytest.mark.parametrize(("fields", "field", "text"), BAD_FIELDS)
@pytest.mark.parametrize(
    ("make", "more"),
    [(planq.CooToCsrDescriptor, {}), (planq.CooToCscDescriptor, {"value_dtype": "float16"})],
)
def test_bad_fields_are_refused(
    make: Any, more: dict[str, Any], fields: dict[str, Any], field: str, text: str
) -> None:
    """At construction, by name; pointers are one more than the rows, so those are no Dim."""
    with pytest.raises(planq.DescriptorError) as caught:
        make(**{"shape": (4, 6), "capacity": 3, **more, **fields})
    assert caught.value.field == field
    assert text in str(caught.value)


def test_values_have_a_type_of_elements() -> None:
    """As the inputs of `double_quantize`."""
    with pytest.raises(planq.DescriptorError, match="value_dtype: expected one of float16"):
        planq.CooToCscDescriptor(shape=(4, 6), capacity=3, value_dtype="int32")
