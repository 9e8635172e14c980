"""The CUDA kernels of DeepSpeed's convention, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from planq.audit.operators import expected, inputs_of
from planq.audit.ops.affine.fake_quantize.deepspeed import (
    EPS,
    FORMS,
    Case,
    DeepSpeedProblem,
    deepspeed_cases,
    empty_deepspeed_cases,
)
from planq.audit.ops.group.cases import ELEMENTS
from planq.audit.reference.formats import Array
from support.emulation import emulated

MOST = 50000  # elements: a thread of a block takes a turn of the host's
EXTENTS = ("rows", "columns", "input_stride", "output_stride", "group_size", "bits")


class Problem(ctypes.Structure):
    """The structure of emulated_deepspeed.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in EXTENTS),
        ("eps", ctypes.c_double),
        ("input_dtype", ctypes.c_char_p),
        ("mode", ctypes.c_char_p),
        ("stochastic", ctypes.c_bool),
        ("draws_in_memory", ctypes.c_bool),
        *((name, ctypes.c_void_p) for name in ("input", "output", "seed", "offset")),
    )


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_deepspeed.cpp")
    made = emulated(source, tmp_path_factory.mktemp("emulated"))
    made.workspace_size.restype = ctypes.c_size_t
    return made


def placed(values: Array, past: int, gap: int) -> Array:
    """A copy that begins so many elements past where a vector may, with a gap behind each row."""
    rows, columns = values.shape
    size = values.dtype.itemsize
    room = np.full(rows * (columns + gap) * size + 64 + past * size, 0xA5, np.uint8)
    first = -room.ctypes.data % 16 + past * size
    whole = room[first : first + rows * (columns + gap) * size].view(values.dtype)
    copy = whole.reshape(rows, columns + gap)[:, :columns]
    copy[...] = values
    return copy


def check(
    kernels: ctypes.CDLL, case: Case, past: int = 0, gap: int = 0, apart: bool = True
) -> None:
    """Runs a case on tensors that lie so, and compares every byte with the reference."""
    problem, given = case.problem, inputs_of(case)
    rows = problem.shape[0] if gap else 1
    matrix = given["input"].reshape(rows, problem.count // rows)
    x = placed(matrix, past, gap)
    y = placed(np.zeros_like(matrix), past, gap) if apart else x
    numbers = [np.array(given.get(name, 0), np.int64) for name in ("seed", "offset")]
    structure = Problem(
        rows=rows,
        columns=matrix.shape[1],
        input_stride=x.strides[0] // x.itemsize,
        output_stride=y.strides[0] // y.itemsize,
        group_size=problem.group_size,
        bits=problem.bits or 8,
        eps=EPS if problem.eps is None else problem.eps,
        input_dtype=problem.input_dtype.encode(),
        mode=problem.mode.encode(),
        stochastic=problem.stochastic,
        draws_in_memory=case.seed % 2 == 1,
        input=x.ctypes.data,
        output=y.ctypes.data,
        seed=numbers[0].ctypes.data,
        offset=numbers[1].ctypes.data,
    )
    extents = map(ctypes.c_int64, (problem.count, problem.group_size))
    room = np.full(kernels.workspace_size(*extents) + 256, 0xA5, np.uint8)
    kernels.run(
        ctypes.byref(structure), ctypes.c_void_p(room.ctypes.data + -room.ctypes.data % 256)
    )
    wanted = expected(case)["output"]
    assert np.ascontiguousarray(y).tobytes() == wanted.tobytes(), (case.id, past, gap, apart)


def test_every_small_case_has_the_bits_of_the_reference(kernels: ctypes.CDLL) -> None:
    """By vectors, past where these begin, and in place."""
    small = [case for case in (*deepspeed_cases(), *empty_deepspeed_cases()) if case.size <= MOST]
    assert len(small) > 80
    for number, case in enumerate(small):
        for past in (0, 1) if number % 3 == 0 else (0,):
            check(kernels, case, past, apart=number % 2 == 0)


@pytest.mark.parametrize(("mode", "rounding"), FORMS)
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_long_groups_are_shared_out(
    kernels: ctypes.CDLL, dtype: str, mode: str, rounding: str
) -> None:
    """Two parts of a group, and a last group that is shorter than a part; vectors and none."""
    for size in (16512, 16387):
        problem = DeepSpeedProblem(
            shape=(size + 37,), input_dtype=dtype, group_size=size, mode=mode, rounding=rounding
        )
        check(kernels, Case(problem, "normal", size), apart=size % 2 == 0)


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "in_place"])
def test_rows_may_be_apart(kernels: ctypes.CDLL, apart: bool) -> None:
    """Elements between them are no part of any group, and stay."""
    for seed, (mode, rounding) in enumerate(FORMS):
        problem = DeepSpeedProblem(
            shape=(5, 77), input_dtype="float16", group_size=48, mode=mode, rounding=rounding
        )
        check(kernels, Case(problem, "normal", seed), gap=3, apart=apart)
