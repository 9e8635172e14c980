"""The CUDA kernels of the family, run on a processor."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planq.audit.operators import expected, inputs_of
from planq.audit.ops.affine.quantized_output import is_coded
from planq.audit.ops.norm.adapter import NormTests
from planq.audit.ops.norm.layer_norm.adapter import TESTS as LAYER
from planq.audit.ops.norm.rms_norm.adapter import TESTS as RMS
from planq.audit.reference.formats import Arrays
from support import int8_groups, vllm
from support.emulated_codes import codes_of, is_fused
from support.emulated_operands import assert_same, held_by, listed
from support.emulation import emulated

# All that the operators have, in their order.
CODED = ("output", "scale", "zero_point", "inverse_tensor_scale", "floating_output")
RMS_OPERANDS = ("input", "weight", "residual", *CODED, "eps")
LAYER_OPERANDS = ("input", "weight", "bias", "residual", *CODED, "eps")
ELEMENTS = {"bfloat16": "BFloat16", "float32": "Float32"}
NUMBERS = {None: 0, "float16": 1, "bfloat16": 2, "float32": 3}
# Elements: threads take turns, each until it waits for others. The longest row that is held, and
# the longest of all, are cases of their own.
MOST = 10_000
LONG = (16384, 65536)
# Rows that are not held take a block each: a few are enough where no block has two.
FEW_ROWS = 40


@pytest.fixture(scope="module", params=ELEMENTS)
def kernels(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ctypes.CDLL]:
    """An input type, and its kernels, compiled for the host."""
    source, folder = Path(__file__).with_name("emulated_norms.cpp"), tmp_path_factory.mktemp("own")
    flags = ("-mfma", f"-DPLANQ_ELEMENT={ELEMENTS[request.param]}")
    support = f"-I{Path(__file__).parents[2] / 'support'}"
    return request.param, emulated(source, folder, *flags, support)


def chosen(tests: NormTests, dtype: str, past: int, multiprocessors: int) -> Iterator[Any]:
    """Cases of an input type, as many long ones and many rows as there is time for."""
    every = (*tests.cases(), *tests.empty_cases())
    own = [c for c in every if c.problem.input_dtype == dtype and not is_coded(c.problem)]
    for case in [case for case in own if case.size <= MOST][past % 2 :: 2]:
        rows = case.size // max(case.problem.shape[-1], 1)
        if rows <= FEW_ROWS or past == 0 or multiprocessors == 1:
            yield case
    for length in LONG:
        yield next(c for c in own if c.problem.shape[-1] == length and c.size <= 65536)


def call(kernels: ctypes.CDLL, tests: NormTests, p: Any, held: Any, multiprocessors: int) -> None:
    """Runs the kernel that the library would, on a GPU of so many multiprocessors."""
    rows, length = held["input"].size // p.shape[-1], p.shape[-1]
    coded = is_coded(p)
    types = [NUMBERS[e] for e in (p.weight_dtype, None if coded else p.output_dtype)]
    given = (
        *(ctypes.c_int64(rows), ctypes.c_int64(length)),
        *((ctypes.c_int * 3)(*types, NUMBERS[p.residual_dtype]), ctypes.c_double(p.weight_offset)),
    )
    codes = codes_of(p) if coded else (None, None)
    if tests is RMS:
        last = (*codes, multiprocessors, listed(RMS_OPERANDS, held))
        kernels.rms_norm(*given, p.round_before_weight, *last)
    else:
        last = (*codes, multiprocessors, listed(LAYER_OPERANDS, held))
        kernels.layer_norm(*given, NUMBERS[p.bias_dtype], *last)


def check(
    kernels: ctypes.CDLL,
    tests: NormTests,
    case: Any,
    past: int,
    multiprocessors: int,
    others: Arrays | None = None,
) -> None:
    """Every output has the bits of the reference, or others where these are given."""
    p, wanted, given = case.problem, expected(case) | (others or {}), inputs_of(case)
    rows = given["input"].size // p.shape[-1]

    def folded(name: str, values: Any) -> Any:
        if name in ("scale", "zero_point"):
            whole = p.scale_given or p.scope[0] == "token"
            return values.reshape(-1) if whole else values.reshape(rows, values.shape[-1])
        one = name in ("weight", "bias", "eps", "inverse_tensor_scale")
        return values.reshape(-1) if one else values.reshape(rows, values.shape[-1])

    outputs = {name: folded(name, v) for name, v in wanted.items() if name != "residual"}
    held = held_by(
        {name: folded(name, v) for name, v in given.items()}, outputs, past, backwards=past == 1
    )
    call(kernels, tests, p, held, multiprocessors)
    assert_same(held, wanted, f"{case.id}, past={past}")


@pytest.mark.parametrize("multiprocessors", [1, 1000])
@pytest.mark.parametrize("past", [0, 1, 4])
@pytest.mark.parametrize("tests", [RMS, LAYER], ids=["rms_norm", "layer_norm"])
def test_rows_have_the_bits_of_the_reference(
    kernels: tuple[str, ctypes.CDLL], tests: NormTests, past: int, multiprocessors: int
) -> None:
    """Held by warps and blocks, few and many, and by single elements where they do not lie so."""
    for case in chosen(tests, kernels[0], past, multiprocessors):
        check(kernels[1], tests, case, past, multiprocessors)


@pytest.mark.parametrize("multiprocessors", [1, 1000])
@pytest.mark.parametrize("past", [0, 1, 8])
@pytest.mark.parametrize("tests", [RMS, LAYER], ids=["rms_norm", "layer_norm"])
def test_codes_have_the_bits_of_the_reference(
    kernels: tuple[str, ctypes.CDLL], tests: NormTests, past: int, multiprocessors: int
) -> None:
    """Of rows that are held, and of those that are made again."""
    own = [c for c in tests.cases() if is_coded(c.problem) and c.size <= 2 * MOST]
    fused = [c for c in own if c.problem.input_dtype == kernels[0] and is_fused(c.problem)]
    assert len(fused) >= 10
    for case in fused:
        check(kernels[1], tests, case, past, multiprocessors)


@pytest.mark.parametrize("multiprocessors", [1, 1000])
@pytest.mark.parametrize("past", [0, 1, 8])
@pytest.mark.parametrize("kernels", ["float32"], indirect=True)
def test_codes_of_groups_for_ggufs_products(
    kernels: tuple[str, ctypes.CDLL], past: int, multiprocessors: int
) -> None:
    """Of rows that blocks hold, a vector for each thread and several, and of rows of warps."""
    shapes = ((1, 640), (1, 2048), (3, 672), (9, 320), (40, 64), (2, 4128), (1, 32), (3, 16384))
    for place, shape in enumerate(shapes):
        for residual, weight in (
            (None, "float32"),
            ("float32", "float32"),
            ("float16", "bfloat16"),
        ):
            seed = place + len(residual or "")
            problem = RMS.make_problem(
                shape=shape,
                input_dtype="float32",
                weight_dtype=weight,
                residual_dtype=residual,
                also_output=place % 2 == 0,
                **RMS.others[place % len(RMS.others)],
                **int8_groups.CODES,
            )
            data = ("normal", "nonfinite", "ties", "patterns")[seed % 4]
            check(
                kernels[1],
                RMS,
                int8_groups.NormCase(problem, RMS.formula, data, 1e-6, seed),
                past,
                multiprocessors,
            )


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("tests", [RMS, LAYER], ids=["rms_norm", "layer_norm"])
def test_vllms_codes_about_their_bound(
    kernels: tuple[str, ctypes.CDLL], tests: NormTests, past: int
) -> None:
    """By the formula: a bound at the range of a row, next to it on both sides, and far below."""
    own = [c for c in tests.cases() if c.problem.convention == "vllm" and c.size <= 2 * MOST]
    fused = [c for c in own if c.problem.input_dtype == kernels[0] and is_fused(c.problem)]
    assert fused
    for case in fused:
        problem = replace(case.problem, also_output=True)
        floating = expected(replace(case, problem=problem))["floating_output"].astype(np.float32)
        ranges = np.sort(np.abs(floating).max(axis=-1), axis=None)
        middle = ranges[np.isfinite(ranges) & (ranges > 0)][-1:]
        ends = (np.float32(0), middle, np.float32(np.inf))
        bounds = [None, *(np.nextafter(middle, end) for end in ends), middle / np.float32(2**20)]
        for bound in bounds if middle.size else bounds[:1]:
            told = None if bound is None else float(bound[0])
            bounded = replace(case, problem=replace(problem, scale_ub=told))
            wanted = vllm.quantized(floating, told, problem.nonfinite)
            check(kernels[1], tests, bounded, past, 1000, wanted)
