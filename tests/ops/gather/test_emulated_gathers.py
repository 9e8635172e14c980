"""The CUDA kernels of the family, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from planq.audit.operators import expected, inputs_of
from planq.audit.ops.gather.argmax import cases as rows
from planq.audit.ops.gather.embedding import cases as tables
from planq.audit.ops.gather.sample import cases as drawn
from planq.audit.reference.formats import Array, Arrays
from support.emulation import emulated

# All that the operators have, in their order.
FETCHED = ("table", "index", "output", "scale", "factor", "invalid")
FOUND = ("input", "output")
DRAWN = (
    *("input", "seed", "position", "output"),
    *("temperature", "top_k", "top_p", "min_p", "invalid"),
)
# As emulated_gathers.cpp numbers them.
TYPES = ("float16", "bfloat16", "float32", "int8", "int4")
MOST = 62_000  # elements: threads take turns, each until it waits for others
MOST_DRAWN = 12_000  # likewise, by kernels that walk a row several times
MOST_RANK = 8
UNSET, SOME = 0, 1  # dtypes of an operand that is not there, and of any that is


class Given(ctypes.Structure):
    """An operand, as emulated_gathers.cpp takes it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("strides", ctypes.c_int64 * MOST_RANK),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_gathers.cpp")
    return emulated(source, tmp_path_factory.mktemp("emulated"))


def placed(values: Array, past: int) -> Array:
    """A copy that begins so many elements past a vector, with as many behind each row."""
    rows = values.shape[:-1] if values.ndim > 1 else ()
    padded = (*rows, values.shape[-1] + (past if rows else 0)) if values.ndim else ()
    count = int(np.prod(padded))
    room = np.full((count + past + 16) * values.itemsize + 16, 0xA5, np.uint8)
    first = -room.ctypes.data % 16 + past * values.itemsize
    copy = room[first : first + count * values.itemsize].view(values.dtype).reshape(padded)
    copy = copy[..., : values.shape[-1]] if values.ndim else copy
    copy[...] = values
    return copy


def given_to(values: Array | None) -> Given:
    """One operand."""
    if values is None:
        return Given(dtype=UNSET)
    strides = [stride // values.itemsize for stride in values.strides]
    strides += [0] * (MOST_RANK - values.ndim)
    whole = (ctypes.c_int64 * MOST_RANK)(*strides)
    return Given(values.ctypes.data, whole, values.ndim, SOME)


def held_by(inputs: Arrays, outputs: Arrays, past: int) -> Arrays:
    """Memory of all operands; that of outputs is poisoned."""
    poison = {name: np.full(v.nbytes, 0xA5, np.uint8).view(v.dtype) for name, v in outputs.items()}
    every = inputs | {name: poison[name].reshape(v.shape) for name, v in outputs.items()}
    return {name: placed(values, past) for name, values in every.items()}


def listed(names: tuple[str, ...], held: Arrays) -> ctypes.Array[Given]:
    """The operands in the order of the operator."""
    return (Given * len(names))(*(given_to(held.get(name)) for name in names))


def extents(shape: tuple[int, ...]) -> tuple[ctypes.Array[ctypes.c_int64], int]:
    """A shape, as the library takes it."""
    return (ctypes.c_int64 * len(shape))(*shape), len(shape)


def assert_same(held: Arrays, wanted: Arrays, what: str) -> None:
    """Every output has the bits of the reference."""
    for name, values in wanted.items():
        assert np.ascontiguousarray(held[name]).tobytes() == values.tobytes(), f"{what}: {name}"


@pytest.mark.parametrize("past", [0, 1, 4])
def test_rows_of_a_table_have_the_bits_of_the_reference(kernels: ctypes.CDLL, past: int) -> None:
    """By vectors, and, where rows do not begin at one, element by element."""
    every = (*tables.cases(), *tables.empty_cases())
    chosen = [c for c in every if c.problem.output_dtype == "bfloat16" and c.size <= MOST]
    reached = set()
    for case in chosen:
        problem, wanted = case.problem, expected(case)
        held = held_by(inputs_of(case), wanted, past)
        groups = problem.has_codes and problem.scope[0] == "group"
        kernels.embed(
            *extents(problem.shape),
            ctypes.c_int64(problem.table_rows),
            TYPES.index(problem.table_dtype),
            problem.index_dtype == "int64",
            ctypes.c_int64(problem.group if groups else 0),
            TYPES.index(problem.scale_dtype),
            problem.nibble_order == "high_first",
            listed(FETCHED, held),
        )
        assert_same(held, wanted, f"{case.id}, past={past}")
        reached.add((problem.table_dtype, groups))
    assert len(reached) == len(TYPES) + 2


def test_many_indices_are_counted_by_several_blocks(kernels: ctypes.CDLL) -> None:
    """They add up what they find."""
    chosen = [c for c in tables.cases() if c.problem.count > 8192]
    chosen = [c for c in chosen if c.problem.output_dtype == "bfloat16" and c.kind != "spread"]
    assert chosen
    counts = set()
    for case in chosen[:3]:
        problem, given = case.problem, inputs_of(case)
        narrow = given["table"].reshape(problem.table_rows, -1)[:, :0]
        shape = (*problem.shape[:-1], 0)
        invalid = expected(case)["invalid"]
        wanted = {"output": np.zeros(shape, np.uint16), "invalid": invalid}
        held = held_by({"table": narrow, "index": given["index"]}, wanted, 0)
        wide = problem.index_dtype == "int64"
        rows_of_table = ctypes.c_int64(problem.table_rows)
        kernels.embed(
            *extents(shape), rows_of_table, 1, wide, ctypes.c_int64(0), 0, 0, listed(FETCHED, held)
        )
        assert_same(held, wanted, case.id)
        counts.add(int(invalid[0]))
    assert max(counts) > 0


@pytest.mark.parametrize("past", [0, 1, 3])
def test_the_largest_elements_are_those_of_the_reference(kernels: ctypes.CDLL, past: int) -> None:
    """By a block for each row; clusters are no processor's."""
    every = (*rows.cases(), *rows.empty_cases())
    chosen = [c for c in every if c.problem.input_dtype == "bfloat16" and c.size <= MOST]
    assert len({case.data for case in chosen}) == len(rows.DATA)
    for case in chosen:
        problem, wanted = case.problem, expected(case)
        held = held_by(inputs_of(case), wanted, past)
        wide = problem.output_dtype == "int64"
        kernels.find_largest(*extents(problem.shape), wide, listed(FOUND, held))
        assert_same(held, wanted, f"{case.id}, past={past}")


@pytest.mark.parametrize("past", [0, 1, 3])
def test_the_drawn_elements_are_those_of_the_reference(kernels: ctypes.CDLL, past: int) -> None:
    """By a block for each row; clusters are no processor's."""
    every = (*drawn.cases(), *drawn.empty_cases())
    chosen = [c for c in every if c.problem.input_dtype == "bfloat16" and c.size <= MOST_DRAWN]
    assert len({case.data for case in chosen}) == len(set(drawn.DATA))
    assert len({case.kind for case in chosen}) == len(set(drawn.KINDS))
    for case in chosen:
        problem, wanted = case.problem, expected(case)
        held = held_by(inputs_of(case), wanted, past)
        wide = problem.output_dtype == "int64"
        kernels.draw(*extents(problem.shape), wide, listed(DRAWN, held))
        assert_same(held, wanted, f"{case.id}, past={past}")
