"""The CUDA kernels of `gguf_dequantize`, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import planq
from planq.audit.operators import expected, inputs_of
from planq.audit.ops.gguf.gguf_dequantize import cases
from planq.audit.ops.gguf.gguf_dequantize.cases import Case
from planq.audit.ops.gguf.gguf_dequantize.reference import Problem
from support.emulated_operands import assert_same, held_by, listed, shape_of
from support.emulation import emulated

MOST = 16_384  # elements: threads take turns
MOST_RANK = 3  # of the operands that the emulation is given
TYPES = [member.value for member in planq.GgufType]


ELEMENTS = {"float16": "Float16", "bfloat16": "BFloat16", "float32": "Float32"}  # in C++


@pytest.fixture(scope="module", params=ELEMENTS)
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ctypes.CDLL]:
    """The type of the output, and its kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_blocks.cpp")
    flag = f"-DPLANQ_ELEMENT={ELEMENTS[request.param]}"
    return request.param, emulated(source, tmp_path_factory.mktemp("emulated"), flag)


@pytest.mark.parametrize("multiprocessors", [1, 16])
@pytest.mark.parametrize("past", [0, 1, 8])
def test_values_have_the_bits_of_the_reference(
    kernels: tuple[str, ctypes.CDLL], past: int, multiprocessors: int
) -> None:
    """In vectors and one by one, with blocks and rows that begin anywhere."""
    output_dtype, library = kernels
    every = (*cases.cases(), *cases.empty_cases())
    chosen = [c for c in every if c.problem.output_dtype == output_dtype and c.size <= MOST]
    chosen = [c for c in chosen if len(c.problem.shape) <= MOST_RANK]
    assert {case.problem.type for case in chosen} == set(TYPES)
    for case in chosen:
        compare(library, case, past, multiprocessors)


@pytest.mark.parametrize("kind", ["q8_0", "q4_k", "q6_k"])
def test_tiles_may_have_many_blocks(kernels: tuple[str, ctypes.CDLL], kind: str) -> None:
    """As many as a thread block takes; the last tile is cut short."""
    output_dtype, library = kernels
    problem = Problem((200_192,), kind, output_dtype)
    compare(library, Case(problem, "finite", 7), past=1, multiprocessors=1)


def compare(library: ctypes.CDLL, case: Case, past: int, multiprocessors: int) -> None:
    """Runs a case, and compares its output with the reference."""
    problem, wanted = case.problem, expected(case)
    held = held_by(inputs_of(case), wanted, past, backwards=case.seed % 3 == 0)
    library.dequantize(
        ctypes.byref(shape_of(problem.shape)),
        TYPES.index(problem.type),
        multiprocessors,
        ctypes.c_int64(problem.table_rows or 0),
        problem.index_dtype == "int64",
        listed(("input", "output", "index", "invalid"), held),
    )
    assert_same(held, wanted, f"{case.id}, past={past}")
