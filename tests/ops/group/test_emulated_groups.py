"""The CUDA kernels of groups, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planq.audit.operators import OPERATORS, expected, inputs_of
from planq.audit.ops.group.cases import Case, cases_of
from planq.audit.ops.group.dequantize_reduce.adapter import Case as ReduceCase
from planq.audit.ops.group.dequantize_reduce.adapter import cases_of as reduce_cases_of
from planq.audit.ops.group.group_dequantize.adapter import problem as from_codes
from planq.audit.ops.group.group_quantize.adapter import problem as to_codes
from planq.audit.ops.group.swizzled_quantize import adapter as swizzled
from planq.audit.reference.formats import Array, Arrays
from support.emulation import emulated

MOST = 3000  # elements: a thread of a block takes a turn of the host's
NAMES = ("input_dtype", "output_dtype", "mode", "convention")
TENSORS = ("input", "output", "parameters", "scale", "minimum")


class Problem(ctypes.Structure):
    """The structure of emulated_groups.cpp."""

    _fields_ = (
        ("elements", ctypes.c_int64),
        ("group_size", ctypes.c_int64),
        *((name, ctypes.c_char_p) for name in NAMES),
        ("given", ctypes.c_bool),
        *((name, ctypes.c_void_p) for name in TENSORS),
    )


class Feedback(ctypes.Structure):
    """That of error feedback."""

    _fields_ = (
        ("beta", ctypes.c_double),
        ("error_dtype", ctypes.c_char_p),
        ("sum_dtype", ctypes.c_char_p),
        ("error", ctypes.c_void_p),
    )


EXTENTS = ("elements", "group_size", "output_group_size", "ranks", "rank_bytes", "rank_floats")
SUMMED = ("input", "parameters", "output", "output_parameters")
CHOICES = ("input_dtype", "output_dtype", "mode", "sum_dtype")


class Reduction(ctypes.Structure):
    """That of a sum over ranks."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in EXTENTS),
        *((name, ctypes.c_char_p) for name in CHOICES),
        ("mean", ctypes.c_bool),
        *((name, ctypes.c_void_p) for name in SUMMED),
    )


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_groups.cpp")
    return emulated(source, tmp_path_factory.mktemp("emulated"))


def placed(values: Array, past: int) -> Array:
    """A flat copy that begins so many elements past where a vector may, with room behind it."""
    size = values.dtype.itemsize
    room = np.full(values.nbytes + 64 + past * size, 0xA5, np.uint8)
    first = -room.ctypes.data % 16 + past * size
    copy = room[first : first + values.nbytes].view(values.dtype)
    copy[:] = np.ascontiguousarray(values).reshape(-1)
    return copy


def operands(case: Any, past: int) -> tuple[Arrays, Arrays]:
    """The inputs, and what is written; what is updated in place is there before."""
    given = {name: placed(values, past) for name, values in inputs_of(case).items()}
    made = {
        name: given.pop(name) if name in given else placed(np.zeros_like(values), past)
        for name, values in expected(case).items()
    }
    return given, made


def addresses(tensors: Arrays, names: tuple[str, ...]) -> dict[str, int]:
    """Those of the tensors that a structure has."""
    return {name: tensors[name].ctypes.data for name in names if name in tensors}


def feedback(problem: Any, made: Arrays) -> Any:
    """A pointer to the structure, or null."""
    if problem.error_feedback is None:
        return None
    structure = Feedback(
        beta=problem.error_feedback,
        error_dtype=problem.error_dtype.encode(),
        sum_dtype=problem.sum_dtype.encode(),
        error=made["error"].ctypes.data,
    )
    return ctypes.byref(structure)


def run(kernels: ctypes.CDLL, operator: str, case: Case, past: int) -> Arrays:
    """What the kernels write, by operand name."""
    problem = case.problem
    tensors, made = operands(case, past)
    given = bool(getattr(problem, "parameters_given", False))
    structure = Problem(
        elements=problem.count,
        group_size=problem.group_size,
        given=given,
        **{name: getattr(problem, name, "deepspeed").encode() for name in NAMES},
        **addresses(tensors | made, TENSORS),
    )
    more: tuple[Any, ...] = ()
    if operator == "swizzle":
        order = (problem.nodes, problem.devices_per_node, problem.pipelining)
        more = (feedback(problem, made), *map(ctypes.c_int64, order))
    getattr(kernels, operator)(ctypes.byref(structure), *more)
    return made


OPERATOR_NAMES = {
    "quantize": "group_quantize",
    "dequantize": "group_dequantize",
    "swizzle": "swizzled_quantize",
}


# Groups in some lanes of a warp, in some sets of its vectors, and in several warps; warps that are
# not full; and groups that are no power of two of vectors.
WARPS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((37, 64), 64),
    ((11, 256), 256),
    ((5, 1024), 1024),
    ((3, 4096), 4096),
    ((1, 16384), 16384),
    ((9, 384), 384),
)
ORDERS: tuple[swizzled.Place, ...] = (((12, 128), 64, 2, 2, 3), ((8, 2048), 2048, 2, 4, 1))
# The vectors of several ranks that are added at a time, and some more; teams of a warp and of a
# block.
RANKS: tuple[tuple[tuple[int, ...], int, int | None, int], ...] = (
    ((5, 256), 256, None, 8),
    ((3, 192), 64, 96, 17),
    ((2, 4096), 256, 4096, 3),
    ((12288,), 64, 12288, 1),
)


def other_cases(operator: str) -> tuple[Case, ...]:
    """Cases at these places."""
    if operator == "swizzle":
        return swizzled.cases_of(ORDERS)
    return cases_of(to_codes if operator == "quantize" else from_codes, WARPS)


@pytest.mark.parametrize("operator", OPERATOR_NAMES)
def test_every_small_case_has_the_bits_of_the_reference(
    kernels: ctypes.CDLL, operator: str
) -> None:
    """By vectors, and, where operands do not begin at one, element by element."""
    tests = OPERATORS[OPERATOR_NAMES[operator]]
    small = [case for case in (*tests.cases(), *tests.empty_cases()) if case.size <= MOST]
    assert len(small) > 35
    for number, case in enumerate((*small, *other_cases(operator))):
        assert isinstance(case, Case)
        for past in (0, 1) if number % 3 == 0 else (0,):
            for name, values in run(kernels, operator, case, past).items():
                wanted = expected(case)[name]
                assert values.tobytes() == wanted.tobytes(), (case.id, past, name)


def reduced(kernels: ctypes.CDLL, case: ReduceCase, past: int) -> Arrays:
    """What the kernels write, by operand name."""
    problem, given = case.problem, inputs_of(case)
    tensors, made = operands(case, past)
    structure = Reduction(
        elements=problem.count,
        group_size=problem.group_size,
        output_group_size=problem.output_group_size or problem.group_size,
        ranks=problem.ranks,
        rank_bytes=given["input"].shape[1],
        rank_floats=given["parameters"][0].size,
        mean=problem.mean,
        **{name: getattr(problem, name).encode() for name in CHOICES},
        **addresses(tensors | made, SUMMED),
    )
    kernels.reduce(ctypes.byref(structure), feedback(problem, made))
    return made


def test_sums_over_ranks_have_the_bits_of_the_reference(kernels: ctypes.CDLL) -> None:
    """By vectors and one by one, as codes and as elements."""
    tests = OPERATORS["dequantize_reduce"]
    others = reduce_cases_of(RANKS)
    for number, case in enumerate((*tests.cases(), *tests.empty_cases(), *others)):
        assert isinstance(case, ReduceCase)
        for past in (0, 1) if number % 3 == 0 else (0,):
            for name, values in reduced(kernels, case, past).items():
                assert values.tobytes() == expected(case)[name].tobytes(), (case.id, past, name)
