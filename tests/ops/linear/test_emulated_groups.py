"""GROUPS_SM90 on any GPU's tensor cores: the CUDA kernels, run on a processor.

There the tensor cores are those of sm_90, by their model, so that bits can be compared.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops.linear.test_emulated_codes import aligned, layer_of, tensors_of
from planq.audit.ops.linear.linear_4bit.reference import FourBitProblem
from planq.audit.ops.linear.linear_mixed.reference import MixedProblem
from planq.audit.reference.formats import STORAGE, Array, Arrays
from support.emulation import emulated

GROUPS = "groups_sm90"
DTYPES = ("bfloat16", "float16")
GPU, TINY_GPU = 132, 1


class Batch(ctypes.Structure):
    """The structure of emulated_groups.cpp."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("input_row", "input_batch", "count"))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_groups.cpp")
    made = emulated(source, tmp_path_factory.mktemp("emulated"))
    made.groups_bytes.restype = ctypes.c_int64
    return made


def rows_apart(values: Array, gap: int | None, offset: int) -> Array:
    """A copy whose rows are apart, and begin `offset` numbers beyond a vector.

    Without a gap of their own, rows are whole vectors.
    """
    pitch = values.shape[-1] + (-values.shape[-1] % 8 if gap is None else gap)
    count = math.prod(values.shape[:-1]) * pitch
    room = aligned(np.full(count + offset, np.nan, values.dtype)).view(values.dtype)[offset:]
    placed = room.reshape(*values.shape[:-1], pitch)[..., : values.shape[-1]]
    placed[...] = values
    return placed


def run(
    kernels: ctypes.CDLL,
    problem: Any,
    given: Arrays,
    *,
    multiprocessors: int = GPU,
    gap: int | None = None,
    offset: int = 0,
) -> Array:
    """The output. Panels are written to a workspace that was full of NaNs."""
    output = np.full(problem.output_shape, 3, STORAGE[problem.output_dtype])
    m, k = problem.input_shape[-2:]
    matrices = given["input"].reshape(math.prod(problem.input_shape[:-2]), m, k)
    rows = rows_apart(matrices, gap, offset)
    tensors = tensors_of(problem, given) | {"input": rows, "output": output.reshape(-1)}
    layer = layer_of(problem, given, tensors)
    layer.multiprocessors = multiprocessors
    layer.m = m
    strides = [stride // rows.itemsize for stride in rows.strides]
    batch = Batch(strides[1] if m > 1 else 0, strides[0], len(rows))
    workspace = aligned(np.full(kernels.groups_bytes(ctypes.byref(layer)), 0xFF, np.uint8))
    address = ctypes.c_void_p(workspace.ctypes.data)
    kernels.run_groups(ctypes.byref(layer), ctypes.byref(batch), address)
    return output


def check(kernels: ctypes.CDLL, problem: Any, given: Arrays, **how: Any) -> None:
    """The bits of the reference."""
    found = run(kernels, problem, given, **how)
    assert found.tobytes() == problem.expected(given)["output"].tobytes(), problem.id


def groups(m: int, n: int, k: int, size: int, **fields: Any) -> FourBitProblem:
    """Integers of 4 bits in groups."""
    usual: dict[str, Any] = {"code_dtype": "int4", "weight_scope": ("group", size, 1)}
    return FourBitProblem((m, k), (n, k), **{**usual, "accumulation": GROUPS, **fields})


def blocks(m: int, n: int, k: int, size: int, **fields: Any) -> FourBitProblem:
    """Codes of a codebook in blocks."""
    return FourBitProblem((m, k), (n, k), block_size=size, accumulation=GROUPS, **fields)


def channels(m: int, n: int, k: int, **fields: Any) -> MixedProblem:
    """Integers of 8 bits with a scale a row."""
    return MixedProblem((m, k), (n, k), **{"accumulation": GROUPS, **fields})


# Terms of one step and less, beside the ends of stages, runs and spans, and where spans grow.
TERMS = (8, 72, 128, 200, 1000, 1032, 2056)
SIZES = (16, 32, 64, 128, 384)
KINDS = ("any", "ends", "sparse", "lowest")
# Rows of every tile; columns of one and of several, whole and cut.
PLACES = ((1, 33), (17, 70), (70, 20))


@pytest.mark.parametrize("k", TERMS)
@pytest.mark.parametrize("size", SIZES)
def test_groups_of_every_length(kernels: ctypes.CDLL, size: int, k: int) -> None:
    """With hostile scales and numbers, with zero points and without."""
    number = TERMS.index(k) + SIZES.index(size)
    problem = groups(
        *PLACES[number % 3],
        k,
        size,
        input_dtype=DTYPES[number // 3 % 2],
        code_dtype=("int4", "uint4")[number % 2],
        weight_mode=("symmetric", "asymmetric")[SIZES.index(size) % 2],
        nibble_order=("high_first", "low_first")[number // 2 % 2],
    )
    given = problem.inputs(KINDS[number % 4], k)
    check(kernels, problem, given, multiprocessors=(GPU, TINY_GPU)[number % 2])


@pytest.mark.parametrize("nested", [None, 3, 256])
@pytest.mark.parametrize("size", [32, 64, 128, 256])
def test_blocks_of_a_codebook(kernels: ctypes.CDLL, size: int, nested: int | None) -> None:
    """Absmax as numbers and as codes of nested blocks; the library's tables and a given one."""
    number = size // 32 + (nested or 0) % 2
    problem = blocks(
        *PLACES[number % 3],
        size * (1, 3, 9)[number % 3],
        size,
        input_dtype=DTYPES[number % 2],
        codebook=("nf4", "fp4", "given")[number % 3],
        nested_block_size=nested,
        bias_dtype=(None, "float32", "bfloat16")[number % 3],
    )
    check(kernels, problem, problem.inputs(KINDS[number % 4], size))


@pytest.mark.parametrize("k", [*TERMS, 1, 15, 129, 1025])
@pytest.mark.parametrize("code_dtype", ["int8", "int4"])
def test_channels_are_one_group(kernels: ctypes.CDLL, code_dtype: str, k: int) -> None:
    """A fold every 128 terms with one scale; any number of terms."""
    number = k // 8 + (code_dtype == "int4")
    problem = channels(
        *PLACES[number % 3],
        k,
        code_dtype=code_dtype,
        input_dtype=DTYPES[number // 3 % 2],
        output_dtype="bfloat16",
    )
    check(kernels, problem, problem.inputs(KINDS[number % 4], k))


@pytest.mark.parametrize("number", range(12))
def test_inputs_that_lie_in_any_way(kernels: ctypes.CDLL, number: int) -> None:
    """Rows that are no vectors, or begin in the middle of one; terms that are no vectors."""
    m, n = (PLACES[number % 3], (130, 130))[number == 7]
    k = (200, 77, 1030, 31)[number % 4]
    size = (16, 32, 64, 128)[number // 3]
    problem = groups(m, n, k, size, input_dtype=DTYPES[number % 2], residual_dtype="float32")
    given = problem.inputs("any", number)
    for gap, offset in (((0, 0), (3, 1)), ((None, 8), (5, 2)))[number % 2]:
        check(kernels, problem, given, gap=gap, offset=offset)


@pytest.mark.parametrize("layout", ["row_major", "packed", "reordered"])
def test_weights_in_every_layout(kernels: ctypes.CDLL, layout: str) -> None:
    """Of 4 bits and of 8, in panels of fewer columns than there are."""
    usual: dict[str, Any] = {"weight_layout": layout, "weight_scope": ("group", 32, 1)}
    four = groups(5, 192, 192, 32, weight_mode="asymmetric", weight_layout=layout)
    every: list[Any] = [four]
    if layout != "packed":
        every.append(channels(20, 320, 64, **usual, weight_mode="asymmetric"))
    for problem in every:
        check(kernels, problem, problem.inputs("any", 3), multiprocessors=TINY_GPU)


def test_zero_points_far_from_any_code(kernels: ctypes.CDLL) -> None:
    """They count as the ends of a range, in codes that are read by vectors and one by one."""
    far = np.array([-(2**31), -1000, -129, -128, -127, -120, -8, 0, 120, 127, 128, 255, 2**31 - 1])
    every: tuple[Any, ...] = (
        groups(2, len(far), 64, 32, weight_mode="asymmetric"),
        groups(2, len(far), 60, 32, weight_mode="asymmetric"),
        channels(2, len(far), 64, weight_scope=("group", 64, 1), weight_mode="asymmetric"),
    )
    for problem in every:
        given = problem.inputs("any", 1)
        given["weight_zero_point"][:] = far[:, None]
        check(kernels, problem, given)


@pytest.mark.parametrize("scale", [0.0, np.inf, -np.inf, np.nan, 2.0**-149, -2.5])
def test_no_scale_reaches_beyond_its_run(kernels: ctypes.CDLL, scale: float) -> None:
    """The last one of a row, whose run ends early, and its neighbours in memory."""
    for k, size in ((40, 16), (300, 64), (130, 128), (1100, 32)):
        problem = groups(3, 5, k, size)
        given = problem.inputs("any", 5)
        given["weight_scale"][2, -1] = given["weight_scale"][4, 0] = scale
        check(kernels, problem, given)


@pytest.mark.parametrize("size", [16, 64, 128])
def test_rows_have_the_same_bits_in_every_tile(kernels: ctypes.CDLL, size: int) -> None:
    """Alone, in some and in many, and as a batch of matrices."""
    problem = groups(130, 40, 136, size, input_dtype="bfloat16")
    given = problem.inputs("any", size)
    whole = run(kernels, problem, given, multiprocessors=TINY_GPU)
    assert whole.tobytes() == problem.expected(given)["output"].tobytes()
    for rows, multiprocessors in ((1, GPU), (17, GPU), (33, GPU), (64, TINY_GPU), (65, GPU)):
        few = problem.cut(given, slice(0, rows))
        found = run(kernels, problem.with_rows(rows), few, multiprocessors=multiprocessors)
        assert found.tobytes() == whole[:rows].tobytes(), rows
    batch = replace(problem, input_shape=(2, 65, 136))
    found = run(kernels, batch, {**given, "input": given["input"].reshape(2, 65, 136)})
    assert found.tobytes() == whole.tobytes()


@pytest.mark.parametrize("extents", [(0, 5, 16), (5, 0, 16), (5, 7, 0)])
def test_nothing_to_multiply(kernels: ctypes.CDLL, extents: tuple[int, int, int]) -> None:
    """Sums of no terms are +0."""
    problem = channels(*extents, bias_dtype="float32")
    check(kernels, problem, problem.inputs("any", 1))
