"""`row_column_absmax` on the host: by hand, bitsandbytes' counts, segments alone, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.memory import Host
from planq.audit.ops.outlier import matrices
from planq.audit.ops.outlier.matrices import ELEMENTS, TILE
from planq.audit.ops.outlier.row_column_absmax.adapter import measure
from planq.audit.ops.outlier.row_column_absmax.reference import Problem, row_column_absmax
from planq.audit.reference.formats import Array


class TestValuesWorkedOutByHand:
    """The formula, without the reference."""

    def test_outliers_are_counted_and_left_out(self) -> None:
        """6 is one at a threshold of 6; the sign does not matter."""
        x = np.array([[1, -6, 2], [-7, 5.875, -3]], np.float16)
        found = measure(Problem((2, 3), "float16", 6.0), x)
        assert found["row_absmax"].tolist() == [2, 5.875]
        assert found["column_absmax"].tolist() == [1, 5.875, 3]
        assert found["tile_count"].tolist() == [[1], [1]]

    def test_without_a_threshold_there_are_none(self) -> None:
        """Not even an infinity; a NaN is above it."""
        x = np.array([[1, np.inf], [2, 100], [-np.nan, np.inf]], np.float32)
        found = measure(Problem((3, 2), "float32"), x)
        assert found["row_absmax"].view(np.uint32).tolist() == [0x7F800000, 0x42C80000, 0x7FC00000]
        assert np.isnan(found["column_absmax"][0])
        assert found["column_absmax"][1] == np.inf
        assert not found["tile_count"].any()

    def test_an_infinity_is_an_outlier_and_a_nan_is_not(self) -> None:
        """Of both signs."""
        x = np.array([[1, -np.inf, np.inf], [2, np.nan, 3]], np.float32)
        found = measure(Problem((2, 3), "float32", 100.0), x)
        assert found["row_absmax"].view(np.uint32).tolist() == [0x3F800000, 0x7FC00000]
        assert found["column_absmax"].view(np.uint32).tolist() == [
            0x40000000,
            0x7FC00000,
            0x40400000,
        ]
        assert found["tile_count"].tolist() == [[2], [0]]

    def test_a_threshold_is_compared_as_a_real_number(self) -> None:
        """0.1 lies below its float32, and above its float16."""
        for dtype, count in (("float32", 1), ("float16", 0)):
            x = np.array([[0.1]], dtype)
            assert measure(Problem((1, 1), dtype, 0.1), x)["tile_count"].tolist() == [[count]]

    def test_the_smallest_threshold_leaves_zeros_alone(self) -> None:
        """Every other number is an outlier."""
        x = np.array([[0.0, -0.0, 1e-45, -1]], np.float32)
        found = measure(Problem((1, 4), "float32", 1e-320), x)
        assert found["row_absmax"].tolist() == [0]
        assert found["tile_count"].tolist() == [[2]]

    def test_statistics_are_written_where_there_is_nothing_to_measure(self) -> None:
        """0, not what the memory held, and not bitsandbytes' -50000."""
        for x in (np.full((3, 4), 9, np.float32), np.zeros((3, 4), np.float32)):
            found = measure(Problem((3, 4), "float32", 5.0), x)
            assert found["row_absmax"].tobytes() == bytes(12)
            assert found["column_absmax"].tobytes() == bytes(16)
        found = measure(Problem((3, 0), "float32", 5.0), np.zeros((3, 0), np.float32))
        assert found["row_absmax"].tobytes() == bytes(12)
        assert found["tile_count"].shape == (3, 0)
        found = measure(Problem((0, 3), "float32", 5.0), np.zeros((0, 3), np.float32))
        assert found["column_absmax"].tobytes() == bytes(12)


def block_pointers(x: Array, threshold: float) -> Array:
    """bitsandbytes' nnz_block_ptr, tile by tile."""
    rows, columns = x.shape
    counts = []
    for first_row in range(0, rows, 16):
        for first in range(0, columns, 256):
            for row in range(first_row, first_row + 16):
                part = x[row, first : first + 256] if row < rows else x[:0, 0]
                counts.append(int((np.abs(part.astype(np.float32)) >= threshold).sum()))
    return np.concatenate([[0], np.cumsum(counts)])


@pytest.mark.parametrize("shape", [(16, 256), (17, 300), (50, 700), (3, 10)])
def test_the_counts_are_those_of_bitsandbytes_tiles(shape: tuple[int, int]) -> None:
    """Its order is another one."""
    x = matrices.make("spiked", shape, "float16", 3)
    counts = measure(Problem(shape, "float16", 2.5), x)["tile_count"]
    whole = np.pad(counts, [(0, -shape[0] % 16), (0, 0)])
    tiled = whole.reshape(-1, 16, counts.shape[1]).transpose(0, 2, 1)
    found = np.concatenate([[0], np.cumsum(tiled)])
    assert np.array_equal(found, block_pointers(x, 2.5))


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_a_segment_alone_is_as_among_others(dtype: str) -> None:
    """Rows are segments, and columns are; also across the ends of tiles of rows and columns."""
    shape = (130, 3 * TILE + 5)
    x = matrices.make("rows", shape, dtype, 7)
    whole = measure(Problem(shape, dtype, 6.0), x)
    for row in (0, 63, 64, 129):
        alone = measure(Problem((1, shape[1]), dtype, 6.0), x[row : row + 1])
        assert alone["row_absmax"].tobytes() == whole["row_absmax"][row : row + 1].tobytes()
        assert alone["tile_count"].tobytes() == whole["tile_count"][row].tobytes()
    for column in (0, TILE - 1, TILE, shape[1] - 1):
        part = np.ascontiguousarray(x[:, column : column + 1])
        alone = measure(Problem((shape[0], 1), dtype, 6.0), part)
        assert alone["column_absmax"].tobytes() == whole["column_absmax"][[column]].tobytes()


@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.integers(0, 40), min_size=1, max_size=4).map(tuple),
    dtype=st.sampled_from(ELEMENTS),
    threshold=st.sampled_from([0.0, 1e-7, 0.3, 1.0, 6.0, 65504.0, 1e38]),
    kind=st.sampled_from(["spiked", "rows", "patterns", "all_nonfinite", "subnormal"]),
    seed=st.integers(0, 2**20),
    threads=st.integers(1, 3),
)
def test_any_shape(
    shape: tuple[int, ...], dtype: str, threshold: float, kind: str, seed: int, threads: int
) -> None:
    """The reference's bytes."""
    problem = Problem(shape, dtype, threshold)
    x = matrices.make(kind, shape, dtype, seed)
    found = measure(problem, x, Host(threads))
    for name, wanted in row_column_absmax(problem, x).items():
        assert found[name].tobytes() == wanted.tobytes(), name
    assert int(found["tile_count"].sum()) <= math.prod(shape)


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"threshold": -1}, "threshold", "expected a finite number of at least 0, got -1"),
    ({"threshold": float("inf")}, "threshold", "expected a finite number of at least 0, got inf"),
    ({"threshold": None}, "threshold", "expected a number, got None"),
    ({"input_dtype": "float64"}, "input_dtype", "expected one of float16, bfloat16, float32,"),
    ({"shape": ()}, "shape", "expected 1 to 8 axes, got 0"),
]


@pytest.mark.parametrize(("fields", "field", "text"), BAD_FIELDS)
def test_bad_fields_are_refused(fields: dict[str, Any], field: str, text: str) -> None:
    """At construction, by name."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.RowColumnAbsmaxDescriptor(**{"shape": (4, 6), "input_dtype": "float16", **fields})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: {text}")


def test_descriptors_are_equal_by_meaning() -> None:
    """The sign of a zero means nothing, and JSON keeps the rest."""
    make = planq.RowColumnAbsmaxDescriptor
    plain = make(shape=(4, 6), input_dtype="float16")
    assert make(shape=(4, 6), input_dtype="float16", threshold=-0.0) == plain
    some = make(shape=(4, 6), input_dtype="float16", threshold=6.0)
    assert planq.Descriptor.from_json(some.to_json()) == some != plain
