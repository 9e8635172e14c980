"""The CUDA kernels of the family, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import planq
from planq.audit.operators import expected, inputs_of
from planq.audit.ops.activation.activation import cases
from planq.audit.ops.elementwise.elements import TYPES
from support import vllm
from support.emulated_codes import codes_of, is_fused
from support.emulated_operands import assert_same, held_by, listed, shape_of
from support.emulation import emulated

MOST = 8192  # elements: threads take turns
LAYOUTS = [layout.value for layout in planq.GateLayout]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_gates.cpp")
    return emulated(source, tmp_path_factory.mktemp("emulated"), "-mfma")


@pytest.mark.parametrize("multiprocessors", [0, 1, 16])
@pytest.mark.parametrize("past", [0, 1, 8])
def test_activations_have_the_bits_of_the_reference(
    kernels: ctypes.CDLL, past: int, multiprocessors: int
) -> None:
    """Of every layout, in vectors and one by one; threads have one unit, or several.

    Without multiprocessors any elements are enough for a table.
    """
    every = (*cases.cases(), *cases.empty_cases())
    chosen = [c for c in every if c.problem.input_dtype == "float16" and c.size <= MOST]
    assert {c.problem.layout for c in chosen} == set(LAYOUTS)
    for case in chosen:
        problem, wanted = case.problem, expected(case)
        held = held_by(inputs_of(case), wanted, past, backwards=case.seed % 3 == 0)
        kernels.run_activation(
            ctypes.byref(shape_of(problem.shape)),
            cases.FUNCTIONS.index(problem.function),
            problem.gated,
            LAYOUTS.index(problem.layout),
            TYPES.index(problem.output_dtype),
            multiprocessors,
            listed(("input", "up", "output"), held),
        )
        assert_same(held, wanted, f"{case.id}, past={past}")


OPERANDS = (
    *("input", "up", "output", "scale", "zero_point", "inverse_tensor_scale", "floating_output"),
)


@pytest.mark.parametrize("multiprocessors", [0, 1])
@pytest.mark.parametrize("past", [0, 1, 8])
def test_codes_have_the_bits_of_the_reference(
    kernels: ctypes.CDLL, past: int, multiprocessors: int
) -> None:
    """Of rows that a block holds, with a table and without, and of rows by single elements."""
    own = [c for c in cases.coded_cases() if c.problem.input_dtype == "float16"]
    fused = [c for c in own if is_fused(c.problem) and c.size <= 2 * MOST]
    assert len(fused) >= 10
    for case in fused:
        problem, wanted = case.problem, expected(case)
        held = held_by(inputs_of(case), wanted, past, backwards=case.seed % 3 == 0)
        kernels.run_codes(
            ctypes.byref(shape_of(problem.shape)),
            cases.FUNCTIONS.index(problem.function),
            problem.gated,
            LAYOUTS.index(problem.layout),
            *codes_of(problem),
            multiprocessors,
            listed(OPERANDS, held),
        )
        assert_same(held, wanted, f"{case.id}, past={past}")


@pytest.mark.parametrize("nonfinite", ["propagate", "saturate"])
@pytest.mark.parametrize("scale_ub", [None, 1.0, 1200.0, 2.0**-10])
@pytest.mark.parametrize("past", [0, 1])
def test_vllms_codes_have_the_bits_of_their_formula(
    kernels: ctypes.CDLL, past: int, scale_ub: float | None, nonfinite: str
) -> None:
    """What RELU leaves as it is: ranges about the bound, zeros, subnormals, and no numbers."""
    for width in (64, 520, 1025, 4096):
        x = abs(vllm.hostile(np.float16, width, 1.0 if scale_ub is None else scale_ub, width))
        x = abs(vllm.spoiled(x)) if width != 64 else x
        problem = cases.Problem(
            x.shape,
            "relu",
            gated=False,
            layout="halves",
            input_dtype="float16",
            output_dtype="float8_e4m3fn",
            nonfinite=nonfinite,
            convention="vllm",
            scale_ub=scale_ub,
        )
        wanted = vllm.quantized(x, scale_ub, nonfinite)
        held = held_by({"input": x}, wanted, past)
        kernels.run_codes(
            ctypes.byref(shape_of(problem.shape)),
            cases.FUNCTIONS.index(problem.function),
            problem.gated,
            LAYOUTS.index(problem.layout),
            *codes_of(problem),
            0,
            listed(OPERANDS, held),
        )
        assert_same(held, wanted, f"{problem}, past={past}")
