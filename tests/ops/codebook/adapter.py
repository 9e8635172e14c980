"""The codebook operators for the tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ops.codebook.cases import Case, empty_cases, sampled_cases
from ops.codebook.reference import CodebookQuantizeProblem, Problem
from reference.formats import Array
from support.from_reference import ReferenceTests
from support.memory import Device

VECTOR = 8  # elements; whole vectors of 16 bytes of every type of elements


@dataclass(frozen=True)
class CodebookTests(ReferenceTests):
    """A codebook operator against its NumPy reference."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases(self.operator)

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases(self.operator)

    def variety(self, problem: Problem) -> str:
        """Whether blocks, or the tensor, are whole vectors."""
        size = getattr(problem, "block_size", problem.count)
        whole = size % VECTOR == 0 and problem.count % size == 0
        return "vectors" if whole else "edges"


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
    tests, swapped = CodebookTests("codebook_quantize"), 0
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
            tests.check(nearest, device, input=y, codebook=values)
            drawn = replace(nearest, rounding="stochastic")
            keys = {"seed": np.array(3), "offset": np.array(4)}
            tests.check(drawn, device, input=y, codebook=values, **keys)
    assert swapped > 20
