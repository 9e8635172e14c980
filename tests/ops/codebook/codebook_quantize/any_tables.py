"""Callers' tables, on the host and on GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planq.audit.memory import Device
from planq.audit.ops.codebook.codebook_quantize.adapter import TESTS
from planq.audit.ops.codebook.codebook_quantize.reference import CodebookQuantizeProblem
from planq.audit.reference.formats import Array


def any_table(seed: int, most: int) -> Array:
    """Ascending values: equal neighbours, zeros of both signs in any order, subnormal and huge."""
    rng = np.random.default_rng(seed)
    entries = int(rng.integers(2, most + 1))
    spread = rng.normal(size=entries) * rng.choice([1.0, 1e-3, 1e-38, 1e-44, 3e37], entries)
    grid = np.rint(rng.normal(size=entries)) * rng.choice([0.25, 2.0**-149])
    chosen = np.where(rng.random(entries) < rng.random(), grid, spread)
    values: Array = np.sort(chosen.astype(np.float32))
    zeros = values == 0
    values[zeros] = np.where(rng.random(entries) < 0.5, -0.0, 0.0)[zeros]
    return values


def check_any_tables(device: Device, codes: str, dtype: str) -> None:
    """Callers' tables: on, beside and between thresholds and values; few elements, many, draws."""
    swapped = 0
    for seed in range(80):
        values = any_table(seed, 256 if codes == "uint8" else 16)
        negative = np.signbit(values[values == 0]).astype(int)
        swapped += bool((np.diff(negative) > 0).any())
        problem = CodebookQuantizeProblem(
            shape=(1,), input_dtype=dtype, output_dtype=codes, entries=len(values), normalized=True
        )
        limits = problem.searched({"codebook": values}).thresholds
        on = np.concatenate([limits, values, [0.0, -0.0]]).astype(dtype)
        x = np.concatenate(
            [on, *(np.nextafter(on, on.dtype.type(end)) for end in (-np.inf, np.inf))]
        )
        for y in (x[:40], np.resize(x, max(x.size, 4099))):
            nearest = replace(problem, shape=y.shape)
            TESTS.check(nearest, device, input=y, codebook=values)
            drawn = replace(nearest, rounding="stochastic")
            keys = {"seed": np.array(3), "offset": np.array(4)}
            TESTS.check(drawn, device, input=y, codebook=values, **keys)
    assert swapped > 20
