"""`transform_layout` on the host: known positions, properties, planted defects, what it refuses."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.memory import Host
from planq.audit.ops.outlier.layouts import DTYPES, LAYOUTS, memory_of, random_integers
from planq.audit.ops.outlier.transform_layout.adapter import descriptor, transform
from planq.audit.ops.outlier.transform_layout.reference import Problem
from planq.audit.ops.outlier.transform_layout.reference import transform as reference
from planq.audit.reference.formats import Array

SOURCES = Path(__file__).parents[4] / "src"

# Of 32 x 64: where (r, c) lies in col32, col_turing and col_ampere.
KNOWN = {
    (0, 0): (0, 0, 0),
    (1, 0): (32, 128, 32),
    (2, 5): (69, 21, 261),
    (9, 33): (1313, 1409, 1121),
    (31, 63): (2047, 2047, 2047),
}


class TestPositions:
    """Elements one by one."""

    @pytest.mark.parametrize("layout", LAYOUTS[2:])
    def test_known_ones(self, layout: str) -> None:
        """By a matrix that has a single 1."""
        for (row, column), places in KNOWN.items():
            matrix = np.zeros((32, 64), np.int8)
            matrix[row, column] = 1
            found = transform(Problem((32, 64), to_layout=layout), matrix)
            assert np.flatnonzero(found).tolist() == [places[LAYOUTS.index(layout) - 2]]

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_every_place_is_taken_once(self, layout: str) -> None:
        """Of a matrix without padding: numbers come back as a permutation."""
        matrix = np.arange(64 * 96, dtype=np.int32).reshape(64, 96)
        found = transform(Problem((64, 96), "int32", "row", layout), matrix)
        assert np.array_equal(np.sort(found, axis=None), matrix.reshape(-1))

    def test_columns_are_rows_of_the_transpose(self) -> None:
        """In the layouts that are tensors."""
        matrix = random_integers((5, 7), "int8", 1)
        assert np.array_equal(transform(Problem((5, 7), to_layout="col"), matrix), matrix.T)
        assert np.array_equal(transform(Problem((5, 7), transpose=True), matrix), matrix.T)


class TestPlantedDefects:
    """What the originals get wrong."""

    @pytest.mark.parametrize("layout", LAYOUTS[2:])
    @pytest.mark.parametrize("transpose", [False, True])
    def test_padding_of_the_output_is_zero(self, layout: str, transpose: bool) -> None:
        """Rows and columns of it, whatever the memory held before."""
        problem = Problem((33, 35), "int8", "row", layout, transpose)
        found = transform(problem, np.full((33, 35), -1, np.int8))
        assert (found != 0).sum() == 33 * 35

    @pytest.mark.parametrize("layout", LAYOUTS[2:])
    def test_padding_of_the_input_is_not_looked_at(self, layout: str) -> None:
        """Two memories that differ in it alone."""
        matrix = random_integers((9, 40), "int8", 3)
        clean = memory_of(layout, matrix)
        dirty = np.where(memory_of(layout, np.ones_like(matrix)) == 0, 99, clean).astype(np.int8)
        assert (dirty != clean).any()
        for to_layout in LAYOUTS:
            problem = Problem((9, 40), "int8", layout, to_layout)
            assert np.array_equal(transform(problem, dirty), transform(problem, clean))

    @pytest.mark.parametrize("layout", LAYOUTS[1:])
    def test_every_layout_goes_back_to_rows(self, layout: str) -> None:
        """The originals have no way back."""
        matrix = random_integers((45, 77), "int8", 5)
        there = transform(Problem((45, 77), to_layout=layout), matrix)
        assert np.array_equal(transform(Problem((45, 77), "int8", layout), there), matrix)

    def test_three_axes_are_rows_and_columns(self) -> None:
        """The sizes of a batch are not those of one matrix of it."""
        matrix = random_integers((2, 5, 40), "int8", 7)
        found = transform(Problem((2, 5, 40), to_layout="col_turing"), matrix)
        assert found.shape == (16, 64)
        assert np.array_equal(found, memory_of("col_turing", matrix.reshape(10, 40)))

    def test_a_transposed_output_has_the_transposed_shape(self) -> None:
        """And not that of the input."""
        desc = descriptor(Problem((33, 70), "int8", "row", "col32", True))
        assert desc.operands()["output"].shape == (70, 64)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Small matrices in any two layouts."""
    shape = (draw(st.integers(0, 70)), draw(st.integers(0, 70)))
    layouts = st.sampled_from(LAYOUTS)
    return Problem(
        shape,
        draw(st.sampled_from(DTYPES)),
        draw(layouts),
        draw(layouts),
        draw(st.booleans()),
    )


@settings(max_examples=300, deadline=None)
@given(problem=problems(), seed=st.integers(0, 2**31 - 1))
def test_any_two_layouts(problem: Problem, seed: int) -> None:
    """Of any size, with threads."""
    values = random_integers(problem.input_shape, problem.dtype, seed)
    found = transform(problem, values, Host(1 + seed % 3))
    assert np.array_equal(found, reference(problem, values))


def apart(values: Array, gap: int) -> Array:
    """The same with rows apart, in memory that begins one element later."""
    rows, width = values.shape
    memory = np.full(rows * (width + gap) + 1, 77, values.dtype)
    strides = ((width + gap) * values.itemsize, values.itemsize)
    view = np.lib.stride_tricks.as_strided(memory[1:], values.shape, strides)
    view[...] = values
    return view


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("from_layout", LAYOUTS)
@pytest.mark.parametrize("to_layout", LAYOUTS)
def test_rows_of_either_side_may_be_apart(dtype: str, from_layout: str, to_layout: str) -> None:
    """Of the tensor that holds the layout, whatever a row of it means."""
    problem = Problem((40, 70), dtype, from_layout, to_layout)
    values = random_integers(problem.input_shape, dtype, 9)
    wanted = reference(problem, values)
    output = apart(np.zeros_like(wanted), 3)
    plan = planq.Plan.select(planq.HOST, descriptor(problem))
    plan.run(planq.HOST, None, planq.TransformLayoutArgs(input=apart(values, 5), output=output))
    assert np.array_equal(output, wanted)
    gaps = np.lib.stride_tricks.as_strided(
        output[:, -1:], (wanted.shape[0] - 1, 4), (output.strides[0], output.itemsize)
    )[:, 1:]
    assert (gaps == 77).all()


def test_the_device_tiles_run_on_a_cpu(tmp_path: Path) -> None:
    """Every element in its place, and no two lanes of a warp in one bank of shared memory."""
    program = tmp_path / "emulated_tiles"
    source = Path(__file__).with_name("emulated_tiles.cpp")
    flags = ["-std=c++20", "-Og", "-I", str(SOURCES)]
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    compared, wrong, conflicts = map(int, done.stdout.split())
    assert compared > 5_000_000
    assert (wrong, conflicts) == (0, 0)


class TestBufferShape:
    """planq.layouts."""

    def test_each_layout(self) -> None:
        """Of 33 x 70."""
        shapes = {layout: planq.layouts.buffer_shape((33, 70), layout) for layout in planq.Layout}
        assert shapes == {
            "row": (33, 70),
            "col": (70, 33),
            "col32": (33, 96),
            "col_turing": (40, 96),
            "col_ampere": (64, 96),
        }

    def test_rows_of_several_axes(self) -> None:
        """Which only rows keep."""
        assert planq.layouts.buffer_shape((3, 5, 70), "row") == (3, 5, 70)
        assert planq.layouts.buffer_shape([3, 5, 70], "col_turing") == (16, 96)

    def test_what_is_no_layout(self) -> None:
        """By name."""
        with pytest.raises(planq.DescriptorError) as caught:
            planq.layouts.buffer_shape((3, 5), "col_hopper")
        assert "ROW, COL, COL32, COL_TURING, COL_AMPERE" in str(caught.value)
        with pytest.raises(planq.DescriptorError):
            planq.layouts.buffer_shape((3,), "row")


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"shape": (5,)}, "shape", "expected 2 to 8 axes, got 1"),
    ({"shape": (3, -1)}, "shape", "axis 1 is negative: -1"),
    ({"dtype": "uint8"}, "dtype", "expected one of int8, int32, got uint8"),
    ({"dtype": "float32"}, "dtype", "expected one of int8, int32, got float32"),
    (
        {"from_layout": "rows"},
        "from_layout",
        "expected Layout (ROW, COL, COL32, COL_TURING, COL_AMPERE), got 'rows'",
    ),
    (
        {"shape": (planq.Dim("m", max=64), 64), "to_layout": "col_turing"},
        "shape",
        "Dim('m', max=64) is no axis of output, which flattens, cuts or packs it; give its extent",
    ),
]


@pytest.mark.parametrize(("fields", "field", "text"), BAD_FIELDS)
def test_bad_fields_are_refused(fields: dict[str, Any], field: str, text: str) -> None:
    """At construction, by name."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.TransformLayoutDescriptor(**{"shape": (4, 6), "to_layout": "col32", **fields})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: {text}")


@pytest.mark.parametrize("rows", [0, 1, 7, 64])
def test_a_dim_of_rows(rows: int) -> None:
    """In the layouts that keep them undivided."""
    desc = planq.TransformLayoutDescriptor(shape=(planq.Dim("m", max=64), 70), to_layout="col32")
    plan = planq.Plan.select(planq.HOST, desc)
    matrix = random_integers((rows, 70), "int8", rows)
    output = np.full((rows, 96), 5, np.int8)
    plan.run(planq.HOST, None, planq.TransformLayoutArgs(input=matrix, output=output))
    assert np.array_equal(output, reference(Problem((rows, 70), to_layout="col32"), matrix))
