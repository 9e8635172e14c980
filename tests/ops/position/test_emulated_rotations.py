"""The CUDA kernels of the family, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from planq.audit.operators import expected, inputs_of
from planq.audit.ops.position.rotary_embedding import cases
from planq.audit.ops.position.rotary_embedding.adapter import TESTS
from support.emulated_operands import assert_same, held_by, listed
from support.emulation import emulated

# All that the operator has, in its order.
OPERANDS = (
    *("query", "key", "cos_sin", "position"),
    *("query_weight", "key_weight", "eps", "invalid"),
)
ELEMENTS = {"bfloat16": "BFloat16", "float32": "Float32"}
NUMBERS = {None: 0, "float16": 1, "bfloat16": 2, "float32": 3}
# Elements: threads take turns, each until it waits for others. Many tokens are a case of their own.
MOST, MANY = 12_000, 9001


@pytest.fixture(scope="module", params=ELEMENTS)
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ctypes.CDLL]:
    """A type of elements, and its kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_rotations.cpp")
    flags = ("-mfma", f"-DPLANQ_ELEMENT={ELEMENTS[request.param]}")
    support = f"-I{Path(__file__).parents[2] / 'support'}"
    return request.param, emulated(source, tmp_path_factory.mktemp("own"), *flags, support)


@pytest.mark.parametrize("multiprocessors", [1, 1000])
@pytest.mark.parametrize("past", [0, 1, 4])
def test_heads_have_the_bits_of_the_reference(
    kernels: tuple[str, ctypes.CDLL], past: int, multiprocessors: int
) -> None:
    """By vectors and by single elements; several heads of a thread, and one; with a norm."""
    every = (*cases.cases(cases.SIZES), *cases.cases(cases.EMPTY))
    own = [case for case in every if case.problem.dtype == kernels[0]]
    many = [case for case in own if case.problem.tokens == MANY and case.kind != "spread"]
    reached = set()
    for case in [*[case for case in own if case.size <= MOST], many[past % len(many)]]:
        p, wanted = case.problem, expected(case)
        given = {name: np.atleast_1d(values) for name, values in inputs_of(case).items()}
        held = held_by(given, {"invalid": wanted["invalid"]}, past, backwards=past == 1)
        kernels[1].turn(
            (ctypes.c_int64 * 3)(*p.query_shape),
            ctypes.c_int64(p.key_heads or 0),
            ctypes.c_int64(p.rotary),
            ctypes.c_int64(p.max_position),
            p.pairs == "interleaved",
            p.position_dtype == "int64",
            NUMBERS[p.norm_weight_dtype],
            multiprocessors,
            listed(OPERANDS, held),
        )
        assert_same(held, wanted, f"{case.id}, past={past}")
        reached.add((p.pairs, p.norm_weight_dtype is None, TESTS.variety(p)))
    assert len(reached) == 8
