"""The CUDA kernels of `linear_gguf` for codes, run on a processor."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import pytest

import planq
from planq.audit.operators import expected, inputs_of
from planq.audit.ops.gguf.linear_gguf import cases
from planq.audit.ops.linear.products import Case
from support.emulated_operands import (
    arriving,
    assert_same,
    held_by,
    listed,
    shape_of,
    watched,
)
from support.emulation import emulated

KINDS = ("q8_0", "q5_k", "q6_k", "q2_k", "iq2_xs", "iq3_s", "iq1_m")  # that the emulation has
MOST = 200_000  # products: threads take turns
MOST_RANK = 3  # of the operands that the emulation is given
# Architectures, and bytes of shared memory of a block.
GPUS = ((90, 227 << 10), (80, 163 << 10), (90, 227 << 10), (89, 99 << 10))
TYPES = [member.value for member in planq.GgufType]
DTYPES = [member.value for member in planq.DType]
BODIES = ("few rows", "many rows")
OPERANDS = ("input", "weight", "output", "input_scale", "bias", "residual")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_products.cpp")
    return emulated(source, tmp_path_factory.mktemp("emulated"))


def chosen() -> list[Case]:
    """Small ones of codes, of these types."""
    every = (*cases.cases(), *cases.empty_cases())
    found = [c for c in every if c.problem.input_dtype == "int8" and c.problem.type in KINDS]
    found = [c for c in found if len(c.problem.input_shape) <= MOST_RANK]
    return [
        c for c in found if math.prod(c.problem.input_shape) * c.problem.weight_shape[0] <= MOST
    ]


@pytest.mark.parametrize("body", BODIES)
def test_products_have_the_bits_of_the_reference(kernels: ctypes.CDLL, body: str) -> None:
    """Of rows that begin anywhere, one after another and backwards.

    Operands arrive when the kernel waits; weights are there before if it is not its plan's first.
    Behind an operand nothing is read.
    """
    kinds, alone = set(), set()
    for case in chosen():
        problem, wanted = case.problem, expected(case)
        past = (0, 1, 16, 2)[case.seed % 4]
        inputs = inputs_of(case)
        held = held_by(inputs, wanted, past, backwards=case.seed % 3 == 0)
        dtypes = (
            "int8",
            "uint8",
            problem.output_dtype,
            "float32",
            problem.bias_dtype,
            problem.residual_dtype,
        )
        follows = case.seed % 2 == 0
        missing = {"input", "input_scale"} if follows else set(inputs)
        arguments = (
            ctypes.byref(shape_of(problem.input_shape)),
            ctypes.byref(shape_of(problem.weight_shape)),
            TYPES.index(problem.type),
            (ctypes.c_int * 6)(*(DTYPES.index(name) + 1 if name else 0 for name in dtypes)),
            BODIES.index(body),
            1 + case.seed % 3,
            *GPUS[case.seed // 4 % len(GPUS)],
            listed(OPERANDS, held),
            follows,
        )
        late = missing if wanted["output"].size > 0 else ()
        with arriving(kernels, held, late), watched(kernels, held):
            kernels.multiply(*arguments)
        assert_same(held, wanted, f"{case.id}, past={past}")
        kinds.add(problem.type)
        alone.add(math.prod(problem.input_shape[:-1]) == 1)
    assert kinds == set(KINDS)
    assert alone == {True, False}
