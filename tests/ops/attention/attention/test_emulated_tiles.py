"""The CUDA kernels of `attention`, run on a processor."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ops.attention.attention.sequences import Batch, Chunk, Options, Paging, rows
from planq.audit.operators import expected, inputs_of
from planq.audit.ops.attention.attention import cases
from planq.audit.ops.attention.attention.reference import Problem, attention
from planq.audit.reference.formats import STORAGE, Array, Arrays
from support.emulated_operands import assert_same, held_by
from support.emulation import emulated

ELEMENTS = {"float16": "Float16", "bfloat16": "BFloat16"}
CACHES = (None, "int8", "float8_e4m3fn", "float8_e5m2")
OUTPUTS = ("float16", "bfloat16", "float32")
BODIES = ("tiles", "model", "wgmma")
SCOPES = (None, "tensor", "head", "token")
NAMES = (
    *("query", "key_cache", "value_cache", "output", "query_start", "key_length", "block_table"),
    *("key_scale", "value_scale", "sink", "lse", "scale", "invalid"),
)
EXTENTS = (
    *("tokens", "heads", "columns", "key_heads", "value_dim", "batch", "max_query", "max_key"),
    *("pages", "page_size", "window"),
)
CHOICES = ("layout", "cache", "output", "scope", "causal", "with_lse", "with_sink")


class Given(ctypes.Structure):
    """An operand, as the C++ half takes it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("strides", ctypes.c_int64 * 4),
        ("rank", ctypes.c_int32),
    )


class Fields(ctypes.Structure):
    """A problem, likewise."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in EXTENTS),
        ("soft_cap", ctypes.c_double),
        *((name, ctypes.c_int32) for name in CHOICES),
    )


def fields_of(problem: Problem) -> Fields:
    """In the order of the C++ half."""
    return Fields(
        *problem.query_shape,
        problem.key_heads,
        problem.columns("value"),
        problem.batch,
        problem.max_query,
        problem.max_key,
        problem.pages or 0,
        problem.page_size or 0,
        problem.window or 0,
        np.nan if problem.soft_cap is None else problem.soft_cap,
        ("nhd", "hnd").index(problem.layout),
        CACHES.index(problem.cache_dtype),
        OUTPUTS.index(problem.output_dtype or problem.input_dtype),
        SCOPES.index(problem.scale_scope),
        problem.causal,
        problem.with_lse,
        problem.with_sink,
    )


def given_to(values: Array | None) -> Given:
    """One operand."""
    if values is None:
        return Given()
    strides = (*(stride // values.itemsize for stride in values.strides), 0, 0, 0, 0)[:4]
    return Given(values.ctypes.data, (ctypes.c_int64 * 4)(*strides), values.ndim)


@pytest.fixture(scope="module", params=ELEMENTS)
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ctypes.CDLL]:
    """The type of queries, and the kernels compiled for the host."""
    source = Path(__file__).with_name("emulated_tiles.cpp")
    flag = f"-DPLANQ_ELEMENT={ELEMENTS[request.param]}"
    folder = tmp_path_factory.mktemp("emulated")
    return request.param, emulated(source, folder, "-mfma", flag)


def run(library: ctypes.CDLL, problem: Problem, held: Arrays, body: str = "tiles") -> None:
    """The kernels of a body on these operands."""
    given = (Given * len(NAMES))(*(given_to(held.get(name)) for name in NAMES))
    library.attend(ctypes.byref(fields_of(problem)), given, ctypes.c_int(BODIES.index(body)))


@pytest.mark.parametrize("body", BODIES)
def test_kernels_have_the_bits_of_the_reference(
    kernels: tuple[str, ctypes.CDLL], body: str
) -> None:
    """All cases: tiles of few rows, of many and of wide values; spans together and apart.

    Of `wgmma`, wide tiles are left to others, as if each had a value that is NaN or infinite.

    In vectors, with rows that begin anywhere and lie apart, and with caches that run backwards.
    """
    dtype, library = kernels
    every = (*cases.cases(cases.SIZES), *cases.many_cases(), *cases.cases(cases.EMPTY))
    chosen = [case for case in every if case.problem.input_dtype == dtype]
    assert len(chosen) > 55
    for case in chosen:
        wanted = expected(case)
        past, backwards = (0, 8, 3)[case.seed % 3], case.seed // 3 % 2 == 1
        held = held_by(inputs_of(case), wanted, past, backwards=backwards)
        for name in ("query_start", "key_length", "block_table", "scale", "sink", "invalid"):
            if name not in held:
                continue
            held[name] = np.ascontiguousarray(held[name])
        run(library, case.problem, held, body)
        assert_same(held, wanted, case.id)


@pytest.mark.parametrize("body", ["tiles", "wgmma"])
def test_prefill_chunks_and_decode_agree(kernels: tuple[str, ctypes.CDLL], body: str) -> None:
    """Tiles of 64 rows and of 16, whatever tokens are in them, and spans that are merged apart."""
    dtype, library = kernels
    options = Options(dtype, None, None, heads=6, key_heads=2, columns=16, sink=True, window=1100)
    batch = Batch(options, (1200, 70))

    def attend(chunks: list[Chunk]) -> dict[tuple[int, int], bytes]:
        problem, given = batch.operands(chunks, Paging(16))
        made = {
            "output": np.empty(problem.output_shape, STORAGE["float32"]),
            "lse": np.empty(problem.query_shape[:2], np.float32),
            "invalid": np.empty(1, np.int64),
        }
        run(library, replace(problem, max_key=1200), given | made, body)
        return rows(made, chunks)

    wanted = attend([Chunk(0, 1090, 1200), Chunk(1, 0, 70)])
    for first, end in ((1090, 1099), (1150, 1153), (1199, 1200)):
        found = attend([Chunk(1, 60, 70), Chunk(0, first, end)])
        assert found.items() <= wanted.items(), first


@pytest.mark.parametrize("body", ["tiles", "wgmma"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, 0.0])
def test_a_scale_reaches_the_rows_that_see_its_key(
    kernels: tuple[str, ctypes.CDLL], body: str, odd: float
) -> None:
    """One that is NaN or infinite, of a key that only later tokens see or none."""
    dtype, library = kernels
    batch = Batch(Options(dtype, "int8", "token", heads=2, key_heads=1, columns=32), (70,))
    batch.sequences[0].value_scale[[3, 68, 69]] = odd
    for window in (None, 9):
        problem, given = batch.operands([Chunk(0, 66, 70)], Paging(16))
        problem = replace(problem, window=window)
        wanted = attention(problem, given)
        made = {name: np.empty_like(values) for name, values in wanted.items()}
        run(library, problem, given | made, body)
        for name, values in wanted.items():
            assert made[name].tobytes() == values.tobytes(), (name, window)
