"""The CUDA kernels for small weights, of `linear_gguf` and `linear_gguf_merged`, on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import planq
from ops.gguf.linear_gguf.hostile_rows import GROUPS, hostile_row
from planq.audit.ops.gguf.linear_gguf_merged.reference import LinearGgufMergedProblem, row_bytes
from planq.audit.reference.formats import Arrays
from support.emulated_operands import (
    Given,
    Shape,
    arriving,
    assert_same,
    given_to,
    held_by,
    listed,
    shape_of,
    watched,
)
from support.emulation import emulated

TYPES = [member.value for member in planq.GgufType]
DTYPES = [member.value for member in planq.DType]
# The types that the kernels have.
KINDS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
FLOATS = ("float32", "float16", "bfloat16")
OPERANDS = ("input", "weight", "output", "input_scale", "bias", "residual")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_small_weights.cpp")
    return emulated(source, tmp_path_factory.mktemp("emulated"))


def problem_of(
    rows: tuple[int, ...], k: int, weights: tuple[tuple[int, str], ...], number: int, given: str
) -> LinearGgufMergedProblem:
    """With another output, bias and residual for each number."""
    addends = (None, "float32", "float16", "bfloat16", "float64")
    shapes = tuple((n, row_bytes(kind, k)) for n, kind in weights)
    kinds = tuple(kind for _, kind in weights)
    return LinearGgufMergedProblem(
        (*rows, k),
        shapes,
        kinds,
        given,
        FLOATS[number % 3],
        addends[number % 5],
        addends[(number // 2) % 5],
    )


def multiply(
    kernels: ctypes.CDLL,
    problem: LinearGgufMergedProblem,
    held: Arrays,
    *,
    follows: bool = False,
    gpu: tuple[int, int] = (1, 0),
) -> int:
    """Runs the kernels. Returns the number of launches, 0 where they do not take the problem."""
    count = len(problem.types)
    names = ("input_dtype", "", "output_dtype", "", "bias_dtype", "residual_dtype")
    dtypes = [getattr(problem, name) if name else None for name in names]
    dtypes[1], dtypes[3] = "uint8", "float32"
    launches: int = kernels.multiply(
        ctypes.byref(shape_of(problem.input_shape)),
        count,
        (Shape * count)(*map(shape_of, problem.weight_shapes)),
        (ctypes.c_int64 * count)(*map(TYPES.index, problem.types)),
        (ctypes.c_int * 6)(*(DTYPES.index(name) + 1 if name else 0 for name in dtypes)),
        listed(OPERANDS, held),
        (Given * count)(*(given_to(held[f"weight[{i}]"]) for i in range(count))),
        follows,
        *gpu,
    )
    return launches


def check(
    kernels: ctypes.CDLL,
    problem: LinearGgufMergedProblem,
    inputs: Arrays,
    number: int,
    gpu: tuple[int, int] = (1, 0),
) -> int:
    """The kernels have the bits of NumPy, of operands that lie anywhere and are not read behind."""
    wanted = problem.expected(inputs)
    past = (0, 1, 16, 2, 5)[number % 5]
    held = held_by(inputs, wanted, past, backwards=number % 3 == 0)
    with watched(kernels, held):
        launches = multiply(kernels, problem, held, gpu=gpu)
    if launches > 0:
        assert_same(held, wanted, f"{problem.id}, past={past}")
    return launches


# Rows of weights side by side: more than a block has, none, and so few that a warp has none.
LISTS = ((8, 3), (0, 33, 1), (17,), (5, 0, 8, 2, 0), (1, 1, 1, 1, 1, 1, 1, 1))
# Terms of blocks of 32 elements, and of those with blocks of 256: whole spans, parts of one, and
# more groups than a warp has lanes.
TERMS = ((32, 288, 1056), (256, 1280, 512))


def list_of(kind: str, turn: int) -> tuple[int, tuple[tuple[int, str], ...]]:
    """Terms, and weights of which the first has this type, with others behind it."""
    counts = LISTS[turn % len(LISTS)]
    step = (1, 3, 0)[turn % 3]
    kinds = [KINDS[(KINDS.index(kind) + i * step) % len(KINDS)] for i in range(len(counts))]
    has_long_blocks = any(each.endswith("_k") for each in kinds)
    return TERMS[has_long_blocks][turn % 3], tuple(zip(counts, kinds, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_lists_of_codes_are_one_launch(kernels: ctypes.CDLL, kind: str) -> None:
    """Of one row and of several, with and without what is added."""
    rows = ((1,), (3,), (1, 1), (18,))
    for number in range(8):
        k, weights = list_of(kind, number + KINDS.index(kind))
        problem = problem_of(rows[number % 4], k, weights, number, "int8")
        inputs = problem.inputs(("any", "ends")[number % 2], number)
        assert check(kernels, problem, inputs, number) == 1, problem.id


@pytest.mark.parametrize("given", FLOATS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_row_of_floats_is_one_launch(kernels: ctypes.CDLL, kind: str, given: str) -> None:
    """Its codes are made in the kernel; of other numbers of rows they are not."""
    for number in range(5):
        k, weights = list_of(kind, number + FLOATS.index(given))
        problem = problem_of(((1,), (1, 1))[number % 2], k, weights, number, given)
        assert check(kernels, problem, problem.inputs("any", number), number) == 1, problem.id
    several = problem_of((2,), 256, ((4, kind),), 0, given)
    assert check(kernels, several, several.inputs("any", 0), 0) == 0


@pytest.mark.parametrize("given", FLOATS)
@pytest.mark.parametrize("name", GROUPS)
def test_hostile_groups_have_the_codes_of_numpy(
    kernels: ctypes.CDLL, name: str, given: str
) -> None:
    """Ties, zeros, what is not finite, and numbers whose scale is at a bound of its range."""
    for number, k in enumerate((32, 1056)):
        problem = problem_of((1,), k, ((9, "q8_0"), (3, "q4_1")), 3 * number, given)
        inputs = problem.inputs("any", number) | {"input": hostile_row(name, given, k, number)}
        assert check(kernels, problem, inputs, number) == 1, problem.id


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize(("given", "rows"), [("int8", 1), ("int8", 3), ("float32", 1)])
def test_nothing_is_read_before_it_is_there(
    kernels: ctypes.CDLL, given: str, rows: int, follows: bool
) -> None:
    """The first kernel of a plan waits before it reads; a later one may copy weights before."""
    problem = problem_of((rows,), 288, ((9, "q8_0"), (3, "q5_0")), 7, given)
    inputs = problem.inputs("any", rows)
    wanted = problem.expected(inputs)
    held = held_by(inputs, wanted, 1)
    missing = {"input", "input_scale"} & set(inputs) if follows else set(inputs)
    with arriving(kernels, held, missing):
        assert multiply(kernels, problem, held, follows=follows) == 1
    assert_same(held, wanted, problem.id)


def test_a_copy_behind_an_operand_is_found(kernels: ctypes.CDLL) -> None:
    """Of a weight that is told to end a vector early; and the watch is over then."""
    problem = problem_of((1,), 288, ((9, "q8_0"),), 0, "int8")
    inputs = problem.inputs("any", 0)
    held = held_by(inputs, problem.expected(inputs), 0)
    with (
        pytest.raises(AssertionError, match="read behind"),
        watched(kernels, {"weight": held["weight[0]"][:, :-16]}),
    ):
        multiply(kernels, problem, held)
    with watched(kernels, held):
        multiply(kernels, problem, held)


# Of several rows: one span, and of it a part; spans that two warps share, or one; more spans than
# warps, of which some have none in the last round.
TILE_TERMS = ((32, 256, 640, 1024, 2048, 2336), (256, 768, 1024, 2048, 2304, 3328))
ROWS = (2, 7, 8, 9, 16, 31, 33, 64)
# Multiprocessors of a GPU, and bytes of shared memory of a block: one that few blocks fill, which
# then have all rows of the input that there is room for, and weights one after another; and one
# that wants as many blocks as there may be.
GPUS = {"small": (1, 227 << 10), "middle": (5, 99 << 10), "large": (1 << 20, 227 << 10)}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_several_rows(kernels: ctypes.CDLL, kind: str, rows: int) -> None:
    """Blocks of all sizes, of weights that begin anywhere, with values at ends of their range."""
    turn = KINDS.index(kind) + ROWS.index(rows)
    for number, gpu in enumerate(GPUS.values(), turn):
        other = KINDS[number % len(KINDS)]
        has_long_blocks = kind.endswith("_k") or other.endswith("_k")
        k = TILE_TERMS[has_long_blocks][number % len(TILE_TERMS[0])]
        problem = problem_of((rows,), k, ((19, kind), (3, other)), number, "int8")
        inputs = problem.inputs(("any", "ends")[number % 2], number)
        assert check(kernels, problem, inputs, number, gpu) == 1, problem.id


@pytest.mark.parametrize("kind", KINDS)
def test_scales_that_are_no_ordinary_numbers(kernels: ctypes.CDLL, kind: str) -> None:
    """Of a row of the input alone: they change no other row, and none where a row has no group."""
    hostile = (np.nan, np.inf, -np.inf, -0.0, 2.0**-149, 2.0**127)
    for number, value in enumerate(hostile):
        k = 768 if kind.endswith("_k") else 288
        problem = problem_of((9,), k, ((17, kind),), number, "int8")
        inputs = problem.inputs("any", number)
        inputs["input_scale"][number, number % (k // 32)] = value
        assert check(kernels, problem, inputs, number) == 1, problem.id


def test_rows_that_no_block_holds_are_not_taken(kernels: ctypes.CDLL) -> None:
    """Of codes alone, of one row or several, or with the codes that are made of floats."""
    for kind, rows, k, given, launches in (
        ("q8_0", 1, 9216, "int8", 1),
        ("q8_0", 1, 9216, "float32", 1),
        ("q8_0", 1, 11520, "int8", 1),
        ("q8_0", 1, 11552, "int8", 0),
        ("q4_0", 1, 17600, "int8", 1),
        ("q4_0", 1, 17600, "float32", 0),
        ("q8_0", 2, 3328, "int8", 1),
        ("q8_0", 33, 3328, "int8", 1),
        ("q8_0", 2, 3584, "int8", 0),
        ("q4_k", 64, 4864, "int8", 1),
        ("q4_k", 64, 5120, "int8", 0),
    ):
        problem = problem_of((rows,), k, ((2, kind),), 0, given)
        found = check(kernels, problem, problem.inputs("any", 0), 0)
        assert found == launches, (kind, rows, k, given)


def test_how_large_weights_may_be(kernels: ctypes.CDLL) -> None:
    """Of few rows of the input, 8 MiB; of more any number, if a block has room for 16 of them."""
    kernels.takes.argtypes = (ctypes.c_int, *(ctypes.c_int64,) * 3)
    kernels.takes.restype = ctypes.c_bool
    for kind, m, n, k, taken in (
        ("q8_0", 1, 12336, 640, True),
        ("q8_0", 1, 12337, 640, False),
        ("q8_0", 8, 12336, 640, True),
        ("q8_0", 8, 12337, 640, False),
        ("q8_0", 9, 12337, 640, True),
        ("q8_0", 64, 262144, 640, True),
        ("q8_0", 65, 16, 640, False),
        ("q2_k", 9, 16, 256, False),
        ("q4_k", 16, 16384, 2048, True),
        ("q4_k", 16, 16384, 4096, False),
        ("q4_k", 16, 1024, 4096, True),
    ):
        found = kernels.takes(TYPES.index(kind), m, n, k)
        assert found == taken, (kind, m, n, k)
