"""The CUDA kernels of `gguf_quantize`, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import planq
from planq.audit.operators import expected, inputs_of
from planq.audit.ops.gguf.gguf_quantize import cases
from planq.audit.ops.gguf.gguf_quantize.reference import QUANTIZERS
from support.emulated_operands import assert_same, held_by, listed, shape_of
from support.emulation import emulated

MOST = 16_384  # elements: threads take turns
MOST_RANK = 3  # of the operands that the emulation is given
TYPES = [member.value for member in planq.GgufType]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_blocks.cpp")
    return emulated(source, tmp_path_factory.mktemp("emulated"))


@pytest.mark.parametrize("past", [0, 1])
def test_bytes_are_those_of_the_reference(kernels: ctypes.CDLL, past: int) -> None:
    """With elements, blocks and rows that begin anywhere."""
    every = (*cases.cases(), *cases.empty_cases())
    chosen = [c for c in every if c.problem.input_dtype == "bfloat16" and c.size <= MOST]
    chosen = [c for c in chosen if len(c.problem.shape) <= MOST_RANK]
    assert {case.problem.type for case in chosen} == set(QUANTIZERS)
    for case in chosen:
        problem, wanted = case.problem, expected(case)
        held = held_by(inputs_of(case), wanted, past, backwards=case.seed % 3 == 0)
        kernels.quantize(
            ctypes.byref(shape_of(problem.shape)),
            TYPES.index(problem.type),
            listed(("input", "output"), held),
        )
        assert_same(held, wanted, f"{case.id}, past={past}")
