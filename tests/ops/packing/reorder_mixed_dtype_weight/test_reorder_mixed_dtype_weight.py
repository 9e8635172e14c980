"""`reorder_mixed_dtype_weight` on the host: torch's own routine, properties, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.quantization._quantized_conversions import (
    quantized_weight_reorder_for_mixed_dtypes_linear_cutlass as torch_reorder,
)

import planq
from planq.audit.ops.packing.int4 import random_bytes
from planq.audit.ops.packing.reorder_mixed_dtype_weight import reference
from planq.audit.ops.packing.reorder_mixed_dtype_weight.adapter import descriptor, reorder
from planq.audit.ops.packing.reorder_mixed_dtype_weight.reference import Problem
from planq.audit.reference.formats import Array
from support.torch_host import PretendCuda

SHAPES = [(64, 64), (64, 192), (192, 64), (128, 256), (512, 320)]
every_direction = pytest.mark.parametrize("transpose", [False, True])
every_dtype = pytest.mark.parametrize("dtype", ["int8", "int4"])


def matrix_of(problem: Problem, seed: int = 0) -> Array:
    """A plain matrix of elements of every value."""
    stored = random_bytes(problem.matrix_shape, seed)
    return stored.view(np.int8) if problem.dtype == "int8" else stored


@every_direction
@every_dtype
@pytest.mark.parametrize("shape", SHAPES)
def test_torchs_routine_on_the_host(shape: tuple[int, int], dtype: str, transpose: bool) -> None:
    """torch 2.13's own function, byte for byte; it insists on a CUDA tensor only by its name."""
    problem = Problem(shape, dtype, transpose)
    matrix = matrix_of(problem, 1)
    theirs_dtype = torch.int8 if dtype == "int8" else torch.quint4x2
    with PretendCuda():
        theirs = torch_reorder(torch.from_numpy(matrix.view(np.int8)), theirs_dtype, transpose)
    assert np.array_equal(reorder(problem, matrix), theirs.numpy())


@every_direction
@every_dtype
@pytest.mark.parametrize("shape", SHAPES)
def test_back_and_forth(shape: tuple[int, int], dtype: str, transpose: bool) -> None:
    """The inverse restores every byte, from either end."""
    there = Problem(shape, dtype, transpose)
    back = replace(there, inverse=True)
    matrix = matrix_of(there, 2)
    assert np.array_equal(reorder(back, reorder(there, matrix)), matrix)
    stored = random_bytes(there.reordered_shape, 3)
    assert np.array_equal(reorder(there, reorder(back, stored)), stored)


def test_the_first_words_of_an_int8_weight_by_hand() -> None:
    """Rows 0, 8, 1, 9 of column 0, then 2, 10, 3, 11; column 1 follows after 64 bytes."""
    weight = (np.arange(64)[:, None] + 64 * (np.arange(64)[None, :] % 2)).astype(np.int8)
    stored = reorder(Problem((64, 64)), weight).reshape(-1)
    assert (stored[:8] - 128).tolist() == [0, 8, 1, 9, 2, 10, 3, 11]
    assert (stored[64:72] - 128).tolist() == [64, 72, 65, 73, 66, 74, 67, 75]


def test_the_first_words_of_an_int4_weight_by_hand() -> None:
    """Column 0 holds k // 8, column 1 is 7: rows 0, 8, 16, 24, then 1, 9, 17, 25."""
    weight = np.zeros((64, 64), np.uint8)
    weight[:, 0] = np.arange(64) // 8
    weight[:, 1] = 7
    packed = weight[:, 0::2] | weight[:, 1::2] << 4
    stored = reorder(Problem((64, 64), "int4"), packed).reshape(-1)
    assert stored[:4].tolist() == [0x98, 0xBA, 0x98, 0xBA]
    assert stored[32:64].tolist() == [0xFF] * 32
    assert stored[64:128].tolist() == [0x88] * 64


@every_direction
@every_dtype
def test_rows_that_are_apart(dtype: str, transpose: bool) -> None:
    """NumPy views with gaps, and backwards; what lies between stays as it was."""
    problem = Problem((128, 192), dtype, transpose)
    rows, columns = problem.matrix_shape
    matrix = matrix_of(problem, 4)
    memory = np.zeros((rows, columns + 5), matrix.dtype)
    view = memory[::-1, 3 : columns + 3]
    view[...] = matrix
    height, width = problem.reordered_shape
    target = np.full((height, width + 7), 7, np.uint8)
    plan = planq.Plan.select(planq.HOST, descriptor(problem))
    args = planq.ReorderMixedDtypeWeightArgs(input=view, output=target[:, :width])
    plan.run(planq.HOST, None, args)
    assert np.array_equal(target[:, :width], reference.reorder(problem, matrix))
    assert (target[:, width:] == 7).all()


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"shape": (64,)}, "shape", "expected (K, N), got 1 axes"),
    ({"shape": (2, 64, 64)}, "shape", "expected (K, N), got 3 axes"),
    ({"shape": (32, 64)}, "shape", "expected multiples of 64, axis 0 is 32"),
    ({"shape": (64, 65)}, "shape", "expected multiples of 64, axis 1 is 65"),
    ({"shape": (64, -64)}, "shape", "axis 1 is negative: -64"),
    ({"input_dtype": "uint4"}, "input_dtype", "expected one of int8, int4, got uint4"),
    ({"transpose": 1}, "transpose", "expected True or False, got 1"),
    ({"inverse": None}, "inverse", "expected True or False, got None"),
]


@pytest.mark.parametrize(("fields", "field", "text"), BAD_FIELDS)
def test_bad_fields_are_refused(fields: dict[str, Any], field: str, text: str) -> None:
    """At construction, by name."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.ReorderMixedDtypeWeightDescriptor(**{"shape": (64, 64), **fields})
    assert caught.value.field == field
    assert str(caught.value) == f"{field}: {text}"


@pytest.mark.parametrize(
    ("problem", "specs"),
    [
        (Problem((64, 128)), [("int8", (64, 128)), ("uint8", (64, 128))]),
        (Problem((64, 128), transpose=True), [("int8", (128, 64)), ("uint8", (64, 128))]),
        (Problem((64, 128), "int4"), [("uint8", (64, 64)), ("uint8", (64, 64))]),
        (Problem((64, 128), "int4", transpose=True), [("uint8", (128, 32)), ("uint8", (64, 64))]),
        (Problem((64, 128), inverse=True), [("uint8", (64, 128)), ("int8", (64, 128))]),
    ],
    ids=lambda item: item.id if isinstance(item, Problem) else "",
)
def test_operands_say_what_each_tensor_has_to_be(
    problem: Problem, specs: list[tuple[str, tuple[int, ...]]]
) -> None:
    """Storage dtype and shape of input and output, in every direction."""
    found = descriptor(problem).operands()
    assert [(spec.storage, spec.shape) for spec in found.values()] == specs
    assert [(spec.name, spec.role) for spec in found.values()] == [
        ("input", "input"),
        ("output", "output"),
    ]


def test_bad_operands_are_refused_and_nothing_is_written() -> None:
    """A matrix that lies the other way."""
    target = np.full((64, 128), 7, np.uint8)
    plan = planq.Plan.select(planq.HOST, descriptor(Problem((64, 128), transpose=True)))
    matrix = np.zeros((64, 128), np.int8)
    args = planq.ReorderMixedDtypeWeightArgs(input=matrix, output=target)
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, args)
    assert str(caught.value) == (
        "input: expected shape (128, 64) int8 on host, got (64, 128) int8 on host"
    )
    assert (target == 7).all()
