"""The CUDA kernels of the family, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from planq.audit.operators import expected, inputs_of
from planq.audit.ops.routing.moe_permute import cases as permutations
from planq.audit.ops.routing.moe_unpermute import cases as sums
from support.emulated_operands import assert_same, held_by, listed
from support.emulation import emulated

# All that the operators have, in their order.
PERMUTED = (
    *("input", "expert_index", "scale"),
    *("output", "expert_offset", "destination", "permuted_scale"),
)
SUMMED = ("input", "destination", "weight", "output")
MOST = 31_000  # elements: threads take turns, each until it waits for others
FEW_PAIRS = 2048


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_rows.cpp")
    return emulated(source, tmp_path_factory.mktemp("emulated"), "-mfma")


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("past", [0, 1, 3])
def test_rows_go_where_the_reference_puts_them(
    kernels: ctypes.CDLL, past: int, backwards: bool
) -> None:
    """By both bodies, in words of every size."""
    every = (*permutations.cases(), *permutations.empty_cases())
    chosen = [case for case in every if case.size <= MOST][past::4]
    bodies = set()
    for case in chosen:
        problem, wanted = case.problem, expected(case)
        for compared in (True, False) if problem.pairs <= FEW_PAIRS else (False,):
            held = held_by(inputs_of(case), wanted, past, backwards=backwards)
            kernels.permute(
                compared,
                *(ctypes.c_int64(extent) for extent in problem.input_shape),
                held["input"].itemsize,
                ctypes.c_int64(problem.top_k),
                ctypes.c_int64(problem.experts),
                listed(PERMUTED, held),
            )
            assert_same(held, wanted, f"{case.id}, past={past}, compared={compared}")
            bodies.add((compared, problem.pairs > FEW_PAIRS))
    assert bodies == {(True, False), (False, False), (False, True)}


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("past", [0, 1])
def test_sums_have_the_bits_of_the_reference(
    kernels: ctypes.CDLL, past: int, backwards: bool
) -> None:
    """By vectors, and, where rows do not begin at one, element by element."""
    every = (*sums.cases(), *sums.empty_cases())
    types = {"bfloat16": 2, "float32": 4}
    chosen = [c for c in every if c.problem.input_dtype == "bfloat16" and c.size <= MOST]
    chosen = [case for case in chosen if case.problem.output_dtype in types]
    assert len(chosen) > 10
    for case in chosen:
        problem, wanted = case.problem, expected(case)
        held = held_by(inputs_of(case), wanted, past, backwards=backwards)
        kernels.unpermute(
            *(ctypes.c_int64(extent) for extent in problem.input_shape),
            types[problem.output_dtype],
            listed(SUMMED, held),
        )
        assert_same(held, wanted, f"{case.id}, past={past}")
