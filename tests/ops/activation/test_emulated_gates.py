"""The CUDA kernels of the family, run on a processor."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.operators import expected, inputs_of
from planq.audit.ops.activation.activation import cases
from planq.audit.ops.activation.activation.reference import activation
from planq.audit.ops.elementwise.elements import TYPES
from planq.audit.reference.formats import Arrays
from support import int8_groups, vllm
from support.emulated_codes import codes_of, is_fused
from support.emulated_operands import assert_same, held_by, listed, shape_of
from support.emulation import emulated

MOST = 8192  # elements: threads take turns
LAYOUTS = [layout.value for layout in planq.GateLayout]
OPERANDS = (
    *("input", "up", "output", "scale", "zero_point", "inverse_tensor_scale", "floating_output"),
)


ELEMENTS = {"float16": "Float16", "float32": "Float32"}


@pytest.fixture(scope="module", params=ELEMENTS)
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ctypes.CDLL]:
    """An input type, and its kernels, compiled for the host."""
    source, folder = Path(__file__).with_name("emulated_gates.cpp"), tmp_path_factory.mktemp("own")
    flags = ("-mfma", f"-DPLANQ_ELEMENT={ELEMENTS[request.param]}")
    return request.param, emulated(source, folder, *flags)


def run_codes(kernels: ctypes.CDLL, problem: Any, held: Arrays, multiprocessors: int) -> None:
    """Runs the kernel that the library would, on a GPU of so many multiprocessors."""
    kernels.run_codes(
        ctypes.byref(shape_of(problem.shape)),
        cases.FUNCTIONS.index(problem.function),
        problem.gated,
        LAYOUTS.index(problem.layout),
        *codes_of(problem),
        multiprocessors,
        listed(OPERANDS, held),
    )


@pytest.mark.parametrize("multiprocessors", [0, 1, 16])
@pytest.mark.parametrize("past", [0, 1, 8])
def test_activations_have_the_bits_of_the_reference(
    kernels: tuple[str, ctypes.CDLL], past: int, multiprocessors: int
) -> None:
    """Of every layout, in vectors and one by one; threads have one unit, or several.

    Without multiprocessors any elements are enough for a table.
    """
    every = (*cases.cases(), *cases.empty_cases())
    chosen = [c for c in every if c.problem.input_dtype == kernels[0] and c.size <= MOST]
    assert {c.problem.layout for c in chosen} == set(LAYOUTS)
    for case in chosen:
        problem, wanted = case.problem, expected(case)
        held = held_by(inputs_of(case), wanted, past, backwards=case.seed % 3 == 0)
        kernels[1].run_activation(
            ctypes.byref(shape_of(problem.shape)),
            cases.FUNCTIONS.index(problem.function),
            problem.gated,
            LAYOUTS.index(problem.layout),
            TYPES.index(problem.output_dtype),
            multiprocessors,
            listed(("input", "up", "output"), held),
        )
        assert_same(held, wanted, f"{case.id}, past={past}")


@pytest.mark.parametrize("multiprocessors", [0, 1])
@pytest.mark.parametrize("past", [0, 1, 8])
def test_codes_have_the_bits_of_the_reference(
    kernels: tuple[str, ctypes.CDLL], past: int, multiprocessors: int
) -> None:
    """Of rows that a block holds, with a table and without, and of rows by single elements."""
    own = [c for c in cases.coded_cases() if c.problem.input_dtype == kernels[0]]
    fused = [c for c in own if is_fused(c.problem) and c.size <= 2 * MOST]
    assert len(fused) >= 10
    for case in fused:
        wanted = expected(case)
        held = held_by(inputs_of(case), wanted, past, backwards=case.seed % 3 == 0)
        run_codes(kernels[1], case.problem, held, multiprocessors)
        assert_same(held, wanted, f"{case.id}, past={past}")


@pytest.mark.parametrize("multiprocessors", [0, 1000])
@pytest.mark.parametrize("past", [0, 1, 8])
@pytest.mark.parametrize("kernels", ["float32"], indirect=True)
def test_codes_of_groups_for_ggufs_products(
    kernels: tuple[str, ctypes.CDLL], past: int, multiprocessors: int
) -> None:
    """Every function and gate, of groups of every largest magnitude: blocks end inside of rows."""
    shapes = ((1, 2048), (3, 672), (1, 32), (40, 64), (2, 2, 96), (9, 320))
    gates = [(function, *gate) for function in cases.FUNCTIONS for gate in cases.GATES]
    for place, (function, gated, layout) in enumerate(gates):
        shape = shapes[place % len(shapes)]
        fields = (shape, function, gated, layout, "float32")
        problem = cases.Problem(*fields, **int8_groups.CODES, also_output=place % 3 == 0)
        columns, rows = problem.input_shape[-1], math.prod(shape[:-1])
        given = {"input": int8_groups.hostile(rows, columns, place).reshape(problem.input_shape)}
        if layout == "separate":
            given["up"] = int8_groups.hostile(rows, shape[-1], place + 1).reshape(shape)
        if function == "relu":
            given["input"] = (
                np.ones_like(given["input"]) if layout == "separate" else given["input"]
            )
        with np.errstate(all="ignore"):
            wanted = activation(problem, given)
        held = held_by(given, wanted, past, backwards=place % 2 == 0)
        run_codes(kernels[1], problem, held, multiprocessors)
        assert_same(held, wanted, f"{problem}, past={past}")


@pytest.mark.parametrize("nonfinite", ["propagate", "saturate"])
@pytest.mark.parametrize("scale_ub", [None, 1.0, 1200.0, 2.0**-10])
@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("kernels", ["float16"], indirect=True)
def test_vllms_codes_have_the_bits_of_their_formula(
    kernels: tuple[str, ctypes.CDLL], past: int, scale_ub: float | None, nonfinite: str
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
        run_codes(kernels[1], problem, held, 0)
        assert_same(held, wanted, f"{problem}, past={past}")
