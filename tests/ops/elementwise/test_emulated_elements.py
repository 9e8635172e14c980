"""The CUDA kernels of the family, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from planq.audit.operators import expected, inputs_of
from planq.audit.ops.elementwise.add import cases as sums
from planq.audit.ops.elementwise.elements import TYPES
from planq.audit.ops.elementwise.unary import cases as functions
from support.emulated_operands import assert_same, held_by, listed, shape_of
from support.emulation import emulated

MOST = 8192  # elements: threads take turns
# With none, threads have several units each.
MULTIPROCESSORS = (0, 16)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_elements.cpp")
    return emulated(source, tmp_path_factory.mktemp("emulated"), "-mfma")


@pytest.mark.parametrize("multiprocessors", MULTIPROCESSORS)
@pytest.mark.parametrize("past", [0, 1, 8])
def test_functions_have_the_bits_of_the_reference(
    kernels: ctypes.CDLL, past: int, multiprocessors: int
) -> None:
    """In vectors and one by one, with rows that begin anywhere."""
    every = (*functions.cases(), *functions.empty_cases())
    chosen = [c for c in every if c.problem.input_dtype == "bfloat16" and c.size <= MOST]
    assert len(chosen) > 40
    for case in chosen:
        problem, wanted = case.problem, expected(case)
        held = held_by(inputs_of(case), wanted, past, backwards=case.seed % 3 == 0)
        kernels.run_unary(
            ctypes.byref(shape_of(problem.shape)),
            functions.FUNCTIONS.index(problem.function),
            TYPES.index(problem.output_dtype),
            multiprocessors,
            listed(("input", "output"), held),
        )
        assert_same(held, wanted, f"{case.id}, past={past}")


@pytest.mark.parametrize("multiprocessors", MULTIPROCESSORS)
@pytest.mark.parametrize("past", [0, 1, 8])
def test_sums_have_the_bits_of_the_reference(
    kernels: ctypes.CDLL, past: int, multiprocessors: int
) -> None:
    """Likewise, with a number in memory or none."""
    every = (*sums.cases(), *sums.empty_cases())
    chosen = [c for c in every if c.problem.input_dtype == "bfloat16" and c.size <= MOST]
    assert len(chosen) > 30
    for case in chosen:
        problem, wanted, given = case.problem, expected(case), dict(inputs_of(case))
        alpha = given.pop("alpha").reshape(1)
        if alpha != 1 or case.seed % 2:
            given["alpha"] = alpha
        held = held_by(given, wanted, past, backwards=case.seed % 3 == 0)
        kernels.run_add(
            ctypes.byref(shape_of(problem.shape)),
            TYPES.index(problem.other_dtype),
            TYPES.index(problem.output_dtype),
            multiprocessors,
            listed(("input", "other", "output", "alpha"), held),
        )
        assert_same(held, wanted, f"{case.id}, past={past}")
