"""The CUDA kernels of `rotary_kv_cache_append`, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from planq.audit.operators import expected, inputs_of
from planq.audit.ops.kv_cache.kv_cache_append.cases import CACHES, ROUNDED
from planq.audit.ops.kv_cache.rotary_kv_cache_append import cases
from planq.audit.ops.kv_cache.rotary_kv_cache_append.reference import Problem
from planq.audit.reference.formats import Array, Arrays
from support.emulated_operands import assert_same, held_by
from support.emulation import emulated

# All that the operator has, in its order.
OPERANDS = (
    *("query", "key", "value", "key_cache", "value_cache", "cos_sin", "position", "slot"),
    *("query_weight", "key_weight", "eps", "key_scale", "value_scale", "query_output", "invalid"),
)
ELEMENTS = {"bfloat16": "BFloat16", "float32": "Float32"}
SCALES = (None, "tensor", "head", "token")
WEIGHTS = (None, "float16", "bfloat16", "float32")
OUTPUTS = (None, "float16", "bfloat16", "float32")
# What the kernel answers.
RUN, REJECTED, LEFT = range(3)
# Elements: threads take turns, each until it waits for others.
MOST = 110_000


class Given(ctypes.Structure):
    """An operand, as emulated_turned_appends.cpp takes it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("strides", ctypes.c_int64 * 4),
        ("rank", ctypes.c_int32),
    )


def given_to(values: Array | None) -> Given:
    """One operand."""
    if values is None:
        return Given()
    strides = (*(stride // values.itemsize for stride in values.strides), 0, 0, 0)[:4]
    return Given(values.ctypes.data, (ctypes.c_int64 * 4)(*strides), values.ndim)


def listed(held: Arrays) -> ctypes.Array[Given]:
    """The operands in the order of the operator."""
    return (Given * len(OPERANDS))(*(given_to(held.get(name)) for name in OPERANDS))


def fields_of(p: Problem) -> ctypes.Array[ctypes.c_int64]:
    """The numbers of a problem, and its words by number."""
    return (ctypes.c_int64 * 16)(
        *p.query_shape,
        p.key_heads,
        p.value_dim or 0,
        p.turn.rotary,
        p.pairs == "interleaved",
        p.position_dtype == "int64",
        p.max_position,
        WEIGHTS.index(p.norm_weight_dtype),
        p.pages,
        p.page_size,
        p.layout == "hnd",
        (*CACHES, *ROUNDED).index(p.cache_dtype),
        SCALES.index(p.scale_scope),
        OUTPUTS.index(p.output_dtype),
    )


def is_taken(p: Problem) -> bool:
    """Whether the kernel takes it: vectors; with a norm, a power of two; scales that are given."""
    vector, columns = 4 if p.dtype == "float32" else 8, p.query_shape[2]
    whole = cases.is_whole(p) and p.turn.rotary % (2 * vector) == 0
    lanes = columns // (2 * vector)
    held = p.turn.rotary == columns and lanes & (lanes - 1) == 0 and lanes <= 32
    given = p.scale_scope != "token"
    return whole and given and (p.norm_weight_dtype is None or held)


@pytest.fixture(scope="module", params=ELEMENTS)
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ctypes.CDLL]:
    """A type of elements, and its kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_turned_appends.cpp")
    flags = ("-mfma", f"-DPLANQ_ELEMENT={ELEMENTS[request.param]}")
    return request.param, emulated(source, tmp_path_factory.mktemp("own"), *flags)


@pytest.mark.parametrize("multiprocessors", [1, 6, 1000])
@pytest.mark.parametrize("past", [0, 1, 8])
def test_heads_and_caches_have_the_bits_of_the_reference(
    kernels: tuple[str, ctypes.CDLL], past: int, multiprocessors: int
) -> None:
    """With a token to a block, several, and many; what is misaligned is left to the parts."""
    every = (*cases.cases(cases.SIZES), *cases.cases(cases.EMPTY))
    own = [case for case in every if case.problem.dtype == kernels[0] and case.size <= MOST]
    if multiprocessors == 1000:  # as many blocks as tokens
        own = [case for case in own if case.problem.query_shape[0] <= 70]
    reached, outputs = set(), set()
    for case in own:
        p, wanted = case.problem, expected(case)
        given = {name: np.atleast_1d(values) for name, values in inputs_of(case).items()}
        made = {name: wanted[name] for name in ("query_output", "invalid") if name in wanted}
        for by_warps in (False, True) if p.output_dtype else (False,):
            held = held_by(given, made, past, backwards=past == 8)
            room = listed(held)
            answer = kernels[1].turn_and_append(fields_of(p), by_warps, multiprocessors, room)
            # With an output, warps take what is misaligned.
            taken = LEFT if past == 1 and not p.output_dtype else RUN
            assert answer == (taken if by_warps or is_taken(p) else REJECTED), case.id
            if answer != RUN:
                continue
            assert_same(held, wanted, f"{case.id}, past={past}, by_warps={by_warps}")
            if p.output_dtype:
                assert_inputs_stay(held, given, case.id)
                outputs.add((p.cache_dtype, p.output_dtype, by_warps))
            else:
                reached.add((p.norm_weight_dtype is None, p.cache_dtype, p.pairs))
    assert len({own for own in reached if own[1] not in ROUNDED}) == (0 if past == 1 else 16)
    rounds = kernels[0] == "float32" and past != 1
    assert {own[1] for own in reached} >= ({*ROUNDED} if rounds else set())
    types = {own[1:] for own in cases.OUTPUTS if own[0] == kernels[0]}
    assert outputs == {(*own, by_warps) for own in types for by_warps in (False, True)}


def assert_inputs_stay(held: Arrays, given: Arrays, what: str) -> None:
    """Queries and keys are read alone where queries have an output."""
    for name in ("query", "key"):
        assert np.ascontiguousarray(held[name]).tobytes() == given[name].tobytes(), (what, name)
