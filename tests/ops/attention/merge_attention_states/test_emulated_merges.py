"""The CUDA kernels of `merge_attention_states`, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from planq.audit.operators import expected, inputs_of
from planq.audit.ops.attention.merge_attention_states import cases
from support.emulated_operands import assert_same, held_by, listed, shape_of
from support.emulation import emulated

MOST = 40_000
ELEMENTS = {"float16": "Float16", "bfloat16": "BFloat16", "float32": "Float32"}
NAMES = ("output_a", "lse_a", "output_b", "lse_b", "output", "lse")


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_kernels_have_the_bits_of_the_reference(dtype: str, tmp_path: Path) -> None:
    """In vectors and one by one, with rows that begin anywhere."""
    source = Path(__file__).with_name("emulated_merges.cpp")
    kernels = emulated(source, tmp_path, "-mfma", f"-DPLANQ_ELEMENT={ELEMENTS[dtype]}")
    every = (*cases.cases(), *cases.empty_cases())
    chosen = [c for c in every if c.problem.dtype == dtype and c.size <= MOST]
    assert len(chosen) > 12
    for case in chosen:
        wanted = expected(case)
        for past in (0, 1, 8):
            held = held_by(inputs_of(case), wanted, past, backwards=case.seed % 3 == 0)
            kernels.merge(ctypes.byref(shape_of(case.problem.shape)), 16, listed(NAMES, held))
            assert_same(held, wanted, f"{case.id}, past={past}")
