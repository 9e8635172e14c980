"""The recipes' formulas in NumPy, and problems for them; nothing here is planq's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
F32 = np.float32
DTYPES: dict[str, Any] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
}
FORMS = ("linear", "row", "vector", "truncated", "zeropoint", "row_zeropoint", "vector_zeropoint")
LAYOUTS = ("row", "col", "col32", "col_turing", "col_ampere")


@dataclass(frozen=True)
class Problem:
    """A recipe's name, its fields, its inputs, and the output that the formula has.

    ``output`` has the values as float32 or integers of the output's type.
    """

    name: str
    fields: dict[str, Any]
    inputs: dict[str, Array]
    output: Array


def up(count: int, unit: int) -> int:
    """The next multiple."""
    return -(-count // unit) * unit


def in_memory(layout: str, matrix: Array, padding: int = 0) -> Array:
    """A matrix in a layout of cuBLASLt, by the places of its elements one by one."""
    rows, columns = matrix.shape
    shape = {
        "row": (rows, columns),
        "col": (columns, rows),
        "col32": (rows, up(columns, 32)),
        "col_turing": (up(rows, 8), up(columns, 32)),
        "col_ampere": (up(rows, 32), up(columns, 32)),
    }[layout]
    memory = np.full(shape, padding, matrix.dtype)
    flat = memory.reshape(-1)
    for r, c in itertools.product(range(rows), range(columns)):
        panel, s = c // 32 * 32, r % 32
        place = {
            "row": r * columns + c,
            "col": c * rows + r,
            "col32": panel * rows + 32 * r + c % 32,
            "col_turing": panel * up(rows, 8)
            + r // 8 * 256
            + r % 2 * 128
            + c % 32 // 4 * 16
            + r % 8 // 2 * 4
            + c % 4,
            "col_ampere": panel * up(rows, 32)
            + r // 32 * 1024
            + 32 * (s % 8 // 2 * 8 + s // 8 * 2 + s % 2)
            + c % 32,
        }[layout]
        flat[place] = matrix[r, c]
    return memory


def igemmlt_problems() -> Iterator[Problem]:
    """Every layout, sizes that fill tiles and that do not, both outputs, three axes."""
    sizes = (((19, 70), (37, 70)), ((32, 64), (32, 64)), ((1, 1), (1, 1)), ((2, 3, 33), (9, 33)))
    empty = (((0, 40), (8, 40)), ((8, 40), (0, 40)), ((5, 0), (6, 0)))
    for (shape, weight_shape), layout, dtype in itertools.product(
        (*sizes, *empty), LAYOUTS, ("int32", "int8")
    ):
        draw = np.random.default_rng(len(layout))
        a, w = (draw.integers(-128, 128, s).astype(np.int8) for s in (shape, weight_shape))
        a = a.reshape(-1, shape[-1]) if shape[-1] else np.empty((5, 0), np.int8)
        sums = a.astype(np.int32) @ w.astype(np.int32).T
        output = np.clip(sums, -128, 127).astype(np.int8) if dtype == "int8" else sums
        fields = {
            "shape": shape,
            "weight_shape": weight_shape,
            "weight_layout": layout,
            "output_dtype": dtype,
        }
        # Padding of inputs may hold anything.
        inputs = {"input": in_memory("col32", a, 77), "weight": in_memory(layout, w, -55)}
        yield Problem("igemmlt", fields, inputs, in_memory("col32", output))


def mm_dequant(x: Array, one: Array, other: Array, form: str) -> Array:
    """bitsandbytes' ``vectorwise_mm_dequant`` in float32."""
    c = F32(127)
    with np.errstate(all="ignore"):
        y: Array = x.astype(F32)
        if form in ("linear", "row"):
            return y * (one * other / (c * c))
        if form in ("vector", "truncated"):
            return y * (one / c) * (other / c)
        if form in ("zeropoint", "row_zeropoint"):
            return y * (F32(1) / (one * other))
        return y * (F32(1) / one) * (F32(1) / other)


def statistics(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Positive numbers of many sizes, and among them those that are special."""
    made = np.exp(draw.uniform(-12, 12, shape)).astype(F32)
    special = F32([0, np.nan, np.inf, 1e-40, 3e38, -2])
    flat = made.reshape(-1)
    if flat.size > 12:
        flat[: 2 * special.size : 2] = special
    return made


def mm_dequant_problems() -> Iterator[Problem]:
    """Every form and output; shapes of one to four axes, and empty ones."""
    shapes = ((6, 5), (17, 40), (1, 1), (3,), (2, 3, 4, 21), (0, 5), (5, 0))
    for shape, form, dtype in itertools.product(shapes, FORMS, DTYPES):
        draw = np.random.default_rng(len(form) + len(shape))
        x = draw.integers(-(2**31), 2**31, shape).astype(np.int32)
        x.reshape(-1)[::5] = 0
        scalars = form in ("linear", "zeropoint")
        one = statistics(draw, (1,) if scalars else (*shape[:-1], 1))
        other = statistics(draw, (1,) if scalars else (1, shape[-1]))
        column = other if scalars else other[0]
        inputs = {"input": x, "row_scale": one, "column_scale": other}
        fields = {"shape": shape, "form": form, "output_dtype": dtype}
        output = mm_dequant(x, one, column, form)
        yield Problem("vectorwise_mm_dequant", fields, inputs, output)


def lane_sums(w: Array) -> Array:
    """The sums of rows in float32: 32 sums, of which each has runs of 32 terms; then a tree."""
    w = w.astype(F32)
    lanes = np.zeros((w.shape[0], 32), F32)
    with np.errstate(all="ignore"):
        for k in range(w.shape[1]):
            lanes[:, k // 32 % 32] += w[:, k]
        for d in (16, 8, 4, 2, 1):
            lanes[:, :d] = lanes[:, :d] + lanes[:, d : 2 * d]
    return lanes[:, 0]


def dequant_min_max_problems() -> Iterator[Problem]:
    """Both types of weights, every output, k below and above a round of the 32 sums."""
    sizes = (((6, 5), 64), ((3, 33), 1100), ((1, 1), 1), ((2, 2, 14), 40), ((0, 5), 8))
    sizes = (*sizes, ((4, 0), 8), ((4, 3), 0))
    for (shape, k), kind, dtype in itertools.product(sizes, ("float16", "bfloat16"), DTYPES):
        draw = np.random.default_rng(k)
        x = draw.integers(-(2**24), 2**24, shape).astype(np.int32)
        weight = draw.standard_normal((shape[-1], k)).astype(DTYPES[kind])
        low, half = (statistics(draw, (*shape[:-1], 1)) for _ in range(2))
        low = -low
        scale = statistics(draw, (shape[-1], 1))
        with np.errstate(all="ignore"):
            offset = lane_sums(weight) * (low + half)
            y = x.astype(F32) * (scale[:, 0] / F32(127))
            output = y * (half / F32(127)) + offset
        inputs = {"input": x, "weight": weight, "minimum": low, "half_range": half}
        fields = {
            "shape": shape,
            "weight_shape": (shape[-1], k),
            "weight_dtype": kind,
            "output_dtype": dtype,
        }
        inputs["weight_scale"] = scale
        yield Problem("dequant_min_max", fields, inputs, output)


PROBLEMS = {
    "igemmlt": igemmlt_problems,
    "vectorwise_mm_dequant": mm_dequant_problems,
    "dequant_min_max": dequant_min_max_problems,
}


def rounded(problem: Problem) -> Array:
    """The output as its type has it; of all NaN the positive quiet one."""
    dtype = problem.fields["output_dtype"]
    if dtype not in DTYPES:
        return problem.output
    with np.errstate(all="ignore"):
        stored: Array = problem.output.astype(DTYPES[dtype])
    nan = {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000}[dtype]
    bits = stored.view(f"u{stored.dtype.itemsize}")
    bits[np.isnan(problem.output)] = nan
    return stored
