"""The CUDA kernels of the family, run on a processor."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from planq.audit.operators import expected, inputs_of
from planq.audit.ops.kv_cache.kv_cache_append import cases
from planq.audit.ops.kv_cache.kv_cache_append.adapter import TESTS
from planq.audit.reference.formats import Array, Arrays
from support.emulated_operands import assert_same, held_by
from support.emulation import emulated

# All that the operator has, in its order.
OPERANDS = (
    *("key", "value", "key_cache", "value_cache", "slot"),
    *("key_scale", "value_scale", "invalid"),
)
ELEMENTS = {"bfloat16": "BFloat16", "float32": "Float32"}
CACHES = (*cases.CACHES, *cases.ROUNDED)
SCALES = (None, "tensor", "head", "token")
# Elements: threads take turns, each until it waits for others.
MOST = 90_000


class Given(ctypes.Structure):
    """An operand, as emulated_appends.cpp takes it."""

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


@pytest.fixture(scope="module", params=ELEMENTS)
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ctypes.CDLL]:
    """A type of inputs, and its kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_appends.cpp")
    flags = ("-mfma", f"-DPLANQ_ELEMENT={ELEMENTS[request.param]}")
    return request.param, emulated(source, tmp_path_factory.mktemp("own"), *flags)


@pytest.mark.parametrize("multiprocessors", [1, 6, 1000])
@pytest.mark.parametrize("past", [0, 1, 4])
def test_caches_have_the_bits_of_the_reference(
    kernels: tuple[str, ctypes.CDLL], past: int, multiprocessors: int
) -> None:
    """By vectors and by single elements; with a token to a block, with several, and with 512."""
    every = (*cases.cases(cases.SIZES), *cases.cases(cases.EMPTY))
    own = [case for case in every if case.problem.input_dtype == kernels[0]]
    chosen = [case for case in own if case.size <= MOST]
    if multiprocessors == 1000:  # as many blocks as tokens
        chosen = [case for case in chosen if case.problem.tokens <= 64]
    types = 6 if kernels[0] == "float32" else 4
    kinds = {(case.problem.cache_dtype, TESTS.variety(case.problem)) for case in chosen}
    assert len(kinds) == 2 * types
    reached = set()
    for case in chosen:
        p, wanted = case.problem, expected(case)
        held = held_by(inputs_of(case), {"invalid": wanted["invalid"]}, past, backwards=past == 1)
        reached.add((p.cache_dtype, p.scale_scope, TESTS.variety(p)))
        kernels[1].append(
            (ctypes.c_int64 * 3)(*p.key_shape),
            ctypes.c_int64(p.value_dim or 0),
            ctypes.c_int64(p.pages),
            ctypes.c_int64(p.page_size),
            p.layout == "hnd",
            CACHES.index(p.cache_dtype),
            SCALES.index(p.scale_scope),
            multiprocessors,
            listed(held),
        )
        assert_same(held, wanted, f"{case.id}, past={past}")
    codes = {(cache, scale) for cache, scale, _ in reached if scale}
    assert len(codes) == 9
