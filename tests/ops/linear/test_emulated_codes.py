"""The CUDA kernels of layers whose weights are codes, run on a processor."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planq.audit.operators import OPERATORS, Case, expected, inputs_of
from planq.audit.ops.linear.linear_4bit.reference import FourBitProblem
from planq.audit.ops.linear.linear_mixed.reference import MixedProblem
from planq.audit.ops.linear.matmul.reference import FloatMatmulProblem
from planq.audit.reference.formats import STORAGE, Array, Arrays
from support.emulation import emulated

OPERATOR_NAMES = ("linear_4bit", "linear_mixed")
MOST_OUTPUTS = 300
EXTENTS = (
    *("m", "n", "k", "row_stride", "segment_size", "nested_block_size", "scale_row"),
    "multiprocessors",
)
DTYPES = ("input_dtype", "code_dtype", "weight_dtype", "output_dtype")
OPTIONAL = ("bias_dtype", "residual_dtype", "scale_dtype", "zero_point_dtype")
CHOICES = ("nibble_order", "weight_layout", "accumulation", "codebook")
TENSORS = (
    *("input", "weight", "absmax", "given_codebook", "nested_absmax", "nested_offset"),
    *(
        "nested_codebook",
        "group_scale",
        "zero_point",
        "channel_scale",
        "tensor_scale",
        "bias",
        "residual",
        "output",
    ),
)


class Layer(ctypes.Structure):
    """The structure of emulated_codes.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in EXTENTS),
        *((name, ctypes.c_char_p) for name in (*DTYPES, *OPTIONAL, *CHOICES)),
        *((name, ctypes.c_void_p) for name in TENSORS),
    )


def aligned(values: Array) -> Array:
    """A copy without gaps that begins where a vector may."""
    room = np.zeros(values.nbytes + 16, np.uint8)
    copy = room[-room.ctypes.data % 16 :][: values.nbytes]
    copy[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return copy


def row_stride(problem: Any, weight: Array) -> int:
    """Codes from a row to the next; of tiles, bytes."""
    if problem.weight_layout != "row_major":
        return int(weight.shape[1])
    if isinstance(problem, FourBitProblem) and problem.block_size:
        return int(problem.weight_shape[1])
    return int(weight.shape[1]) * (1 if problem.has_bytes else 2)


def tensors_of(problem: Any, given: Arrays) -> Arrays:
    """What there is of a layer's operands, by the names of the structure."""
    names = {"codebook": "given_codebook"}
    if problem.weight_scope[0] == "channel" and not problem.has_runs:
        names["weight_scale"] = "channel_scale"
    else:
        names |= {"weight_scale": "group_scale", "weight_zero_point": "zero_point"}
    return {names.get(name, name): aligned(value) for name, value in given.items()}


def layer_of(problem: Any, given: Arrays, tensors: Arrays) -> Layer:
    """A structure that refers to the tensors."""
    n, k = problem.weight_shape
    blocks = getattr(problem, "block_size", None)
    group = problem.weight_scope[1] if problem.weight_scope[0] == "group" else 0
    if problem.has_runs and not group:
        group = -(-max(k, 1) // 128) * 128  # of a channel: all terms, in whole runs
    layer = Layer(
        m=math.prod(problem.input_shape[:-1]),
        n=n,
        k=k,
        row_stride=row_stride(problem, given["weight"]),
        segment_size=blocks or group,
        nested_block_size=getattr(problem, "nested_block_size", None) or 0,
        scale_row=-(-k // (blocks or group)) if blocks or group else 0,
        multiprocessors=1,
        weight_dtype=problem.values.encode(),
        codebook=problem.codebook.encode() if blocks else None,
        **{name: tensor.ctypes.data for name, tensor in tensors.items()},
    )
    for name in {*DTYPES, *OPTIONAL, *CHOICES} - {"weight_dtype", "codebook"}:
        value = getattr(problem, name)
        setattr(layer, name, value.encode() if value else None)
    return layer


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_codes.cpp")
    made = emulated(source, tmp_path_factory.mktemp("emulated"))
    # A bool is a byte of its register; the rest is whatever was there.
    made.run_layer.restype = made.run_numbers.restype = ctypes.c_bool
    return made


def run(kernels: ctypes.CDLL, problem: Any, given: Arrays) -> tuple[bool, Array]:
    """Whether codes were read by vectors, and the outputs."""
    output = np.zeros(problem.output_shape, STORAGE[problem.output_dtype])
    tensors = tensors_of(problem, given) | {"output": output.reshape(-1)}
    layer = layer_of(problem, given, tensors)
    return kernels.run_layer(ctypes.byref(layer)), output


def small_cases() -> list[Case]:
    """Of both operators, those of few outputs."""
    found = []
    for operator in OPERATOR_NAMES:
        for case in OPERATORS[operator].cases():
            problem: Any = case.problem
            if math.prod(problem.output_shape) <= MOST_OUTPUTS:
                found.append(case)
    return found


def test_every_small_case_has_the_bits_of_the_reference(kernels: ctypes.CDLL) -> None:
    """By kernels for an output at a time, and by those for a few rows."""
    ways = set()
    for case in small_cases():
        by_vectors, output = run(kernels, case.problem, inputs_of(case))
        assert output.tobytes() == expected(case)["output"].tobytes(), case.id
        ways.add(by_vectors)
    assert ways == {False, True}


@pytest.mark.parametrize("number", range(8))
def test_few_rows_of_numbers_on_tensor_cores(kernels: ctypes.CDLL, number: int) -> None:
    """The same of weights that are numbers: matmul's, with the bits of its reference."""
    rows, n, k = [(1, 20, 16), (8, 16, 192), (9, 33, 1200), (16, 7, 128)][number % 4]
    dtype = ("bfloat16", "float16")[number // 4]
    problem = FloatMatmulProblem((rows, k), (n, k), dtype)
    given = problem.inputs("any", number)
    tensors = {name: aligned(value) for name, value in given.items()}
    output = np.zeros((rows, n), np.float32)
    tensors["output"] = output.reshape(-1)
    layer = Layer(
        m=rows,
        n=n,
        k=k,
        row_stride=k,
        input_dtype=dtype.encode(),
        code_dtype=b"uint4",
        weight_dtype=dtype.encode(),
        output_dtype=b"float32",
        nibble_order=b"low_first",
        weight_layout=b"row_major",
        **{name: tensor.ctypes.data for name, tensor in tensors.items()},
    )
    assert kernels.run_numbers(ctypes.byref(layer))
    assert output.tobytes() == problem.expected(given)["output"].tobytes()


@pytest.mark.parametrize("accumulation", ["lanes", "tensor_sm90"])
def test_zero_points_that_float32_cannot_subtract(kernels: ctypes.CDLL, accumulation: str) -> None:
    """Beside those that it can, in one weight; only lanes read codes by vectors."""
    problem = FourBitProblem(
        (2, 64),
        (5, 64),
        code_dtype="int4",
        weight_scope=("group", 32 if accumulation == "lanes" else 64, 1),
        weight_mode="asymmetric",
        accumulation=accumulation,
    )
    given = problem.inputs("any", 3)
    given["weight_zero_point"].reshape(-1)[:4] = 2**24 + 1, -(2**31), 2**31 - 1, -(2**23) - 5
    by_vectors, output = run(kernels, problem, given)
    assert by_vectors == (accumulation == "lanes")
    assert output.tobytes() == problem.expected(given)["output"].tobytes()


@pytest.mark.parametrize("layout", ["row_major", "packed"])
def test_numbers_in_memory_are_those_of_the_weight(kernels: ctypes.CDLL, layout: str) -> None:
    """What the tensor cores of sm_90 multiply."""
    problem = FourBitProblem(
        (1, 128),
        (70, 128),
        input_dtype="float16",
        weight_dtype="float16",
        block_size=64,
        nested_block_size=256,
        weight_layout=layout,
    )
    given = problem.inputs("any", 5)
    numbers = aligned(np.zeros((70, 128), np.float16))
    tensors = tensors_of(problem, given) | {"output": numbers}
    layer = layer_of(problem, given, tensors)
    kernels.write_weight(ctypes.byref(layer))
    plain = problem.row_major(given["weight"])
    assert numbers.tobytes() == problem.numbers({**given, "weight": plain}).tobytes()


PANELS = (
    FourBitProblem((3, 72), (150, 72), block_size=64, bias_dtype="float32"),
    FourBitProblem((20, 64), (40, 64), "float16", "bfloat16", block_size=32, nested_block_size=256),
    FourBitProblem(
        (2, 128),
        (300, 128),
        code_dtype="int4",
        weight_scope=("group", 32, 1),
        weight_mode="asymmetric",
        residual_dtype="bfloat16",
    ),
    MixedProblem((17, 64), (70, 64), "float16", "float16"),
    MixedProblem((3, 96), (140, 96), weight_scope=("group", 32, 1), weight_mode="asymmetric"),
    MixedProblem((3, 72), (40, 72), weight_scope=("group", 13, 1), weight_mode="asymmetric"),
)


@pytest.mark.parametrize("number", range(len(PANELS)))
def test_panels_of_weights_on_tensor_cores(kernels: ctypes.CDLL, number: int) -> None:
    """What any GPU multiplies, one panel after another, each in the place of the one before."""
    problem: Any = PANELS[number]
    given = problem.inputs("any", number)
    output = np.zeros(problem.output_shape, STORAGE[problem.output_dtype])
    tensors = tensors_of(problem, given) | {"output": output.reshape(-1)}
    layer = layer_of(problem, given, tensors)
    n, k = problem.weight_shape
    kernels.panel_bytes.restype = ctypes.c_int64
    count = kernels.panel_bytes(ctypes.c_int64(n), ctypes.c_int64(k))
    assert count < n * k * 2 or n <= 128
    workspace = aligned(np.full(count, 0x7F, np.uint8))
    kernels.run_panels(ctypes.byref(layer), ctypes.c_void_p(workspace.ctypes.data))
    assert output.tobytes() == problem.expected(given)["output"].tobytes()
