"""The CUDA kernels of MX and NVFP4, run on a processor."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planq.audit.ops.affine.dynamic_range_quantize.cases import Case, format_cases, format_problems
from planq.audit.reference.formats import Array
from support.emulation import emulated

MOST = 20000  # elements: a thread of a block takes a turn of the host's
EXTENTS = ("rows", "columns", "input_stride", "output_stride", "scale_stride")
WORDS = ("input_dtype", "output_dtype", "convention", "nibble_order")
OPERANDS = ("input", "output", "scale", "inverse_tensor_scale")


class Problem(ctypes.Structure):
    """The structure of emulated_formats.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in EXTENTS),
        *((name, ctypes.c_char_p) for name in WORDS),
        ("multiprocessors", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in OPERANDS),
    )


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_formats.cpp")
    return emulated(source, tmp_path_factory.mktemp("emulated"))


class Placed:
    """A matrix in memory of its own, some elements past where a vector may begin, with gaps."""

    def __init__(self, values: Array, past: int, gap: int) -> None:
        """`past` and `gap` count elements."""
        rows, columns = values.shape
        size = values.dtype.itemsize
        self.room = np.full((rows * (columns + gap) + past) * size + 64, 0xA5, np.uint8)
        first = -self.room.ctypes.data % 16 + past * size
        whole = self.room[first : first + rows * (columns + gap) * size].view(values.dtype)
        self.matrix = whole.reshape(rows, columns + gap)[:, :columns]
        self.stride = columns + gap
        self.matrix[...] = values

    def image(self, values: Array) -> Array:
        """The whole memory with other values in the matrix."""
        kept, room = self.matrix.copy(), self.room.copy()
        self.matrix[...] = values
        meant = self.room.copy()
        self.matrix[...] = kept
        assert np.array_equal(self.room, room)
        return meant


def as_matrix(values: Array, rows: int) -> Array:
    """Bytes of scales and codes as they are, elements by their dtype."""
    raw = values.view(np.uint8) if values.dtype.name.startswith("float8") else values
    return raw.reshape(rows, -1)


def check(kernels: ctypes.CDLL, case: Case, past: int, gap: int, multiprocessors: int) -> None:
    """Runs a case on tensors that lie so, and compares every byte with the reference."""
    problem, given = case.problem, case.inputs()
    rows = given["input"].size // problem.shape[-1]
    wanted = {n: as_matrix(v, rows) for n, v in case.expected(given).items()}
    x = Placed(as_matrix(given["input"], rows), past, gap)
    made = {name: Placed(np.zeros_like(v), past, gap) for name, v in wanted.items()}
    factor = np.array(given.get("inverse_tensor_scale", [0]), np.float32)
    structure = Problem(
        rows=rows,
        columns=problem.shape[-1],
        input_stride=x.stride,
        output_stride=made["output"].stride,
        scale_stride=made["scale"].stride,
        multiprocessors=multiprocessors,
        input=x.matrix.ctypes.data,
        output=made["output"].matrix.ctypes.data,
        scale=made["scale"].matrix.ctypes.data,
        inverse_tensor_scale=factor.ctypes.data if problem.convention == "nvfp4" else None,
        **{name: getattr(problem, name).encode() for name in WORDS},
    )
    kernels.run(ctypes.byref(structure))
    for name, values in wanted.items():
        assert np.array_equal(made[name].room, made[name].image(values)), (case.id, name, past, gap)


def test_every_small_case_has_the_bits_of_the_reference(kernels: ctypes.CDLL) -> None:
    """By vectors where there are, past where these begin, and with gaps between rows."""
    small = [case for case in format_cases() if case.size <= MOST]
    assert len(small) > 250
    for number, case in enumerate(small):
        check(kernels, case, 0, 0, multiprocessors=number % 2)
        check(kernels, case, number % 3, (0, 16, 5)[number % 3], multiprocessors=1)


def test_every_number_of_groups(kernels: ctypes.CDLL) -> None:
    """Blocks and sets of groups that are not full."""
    for problem in format_problems(((1, 32),)):
        for groups in (1, 2, 3, 63, 64, 65, 128, 129, 255, 257, 300):
            case = Case(replace(problem, shape=(groups, 32)), "mixed", groups)
            check(kernels, case, 0, 0, multiprocessors=0)


def test_peculiar_factors_of_a_tensor(kernels: ctypes.CDLL) -> None:
    """Of groups with infinities too, whose products may be NaN; and beside spare nibbles."""
    for problem in format_problems(((40, 64), (9, 81))):
        for seed in range(3, 39, 4) if problem.convention == "nvfp4" else ():
            check(kernels, Case(problem, "nonfinite", seed), 0, 0, multiprocessors=0)
