"""The collectives in NumPy, written from docs/distributed.md; nothing is shared with the library.

Codes and their values are those of the references of the group operators, which are independent of
it as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planq.audit.ops.group.reference import F32, GroupDequantizeProblem, GroupQuantizeProblem
from planq.audit.reference.formats import Array, narrowed


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A collective of one tensor; ``levels`` are the ranks of one level, or nodes and devices."""

    shape: tuple[int, ...]
    levels: tuple[int, ...]
    input_dtype: str = "float32"
    dtype: str = "int8"
    group_size: int = 256
    mode: str = "symmetric"
    mean: bool = False

    @property
    def ranks(self) -> int:
        """All of them."""
        return math.prod(self.levels)

    @property
    def length(self) -> int:
        """Elements of a part."""
        return -(-math.prod(self.shape) // self.ranks)

    @property
    def options(self) -> dict[str, Any]:
        """Those of the library's functions."""
        return {"dtype": self.dtype, "group_size": self.group_size, "mode": self.mode}

    def inputs(self, seed: int) -> list[Array]:
        """What each rank has: of other sizes on each, with zeros of either sign among them."""
        rng = np.random.default_rng(seed)
        made = [rng.standard_normal(self.shape) * (rank + 1) for rank in range(self.ranks)]
        for x in made:
            x.reshape(-1)[::7] = -0.0
        return [narrowed(x.astype(F32), self.input_dtype) for x in made]

    def rows(self, x: Array) -> Array:
        """A row for each rank: its part, filled up with zeros to whole groups."""
        width = -(-self.length // self.group_size) * self.group_size
        made = np.zeros((self.ranks, width), x.dtype)
        for rank in range(self.ranks):
            part = x.reshape(-1)[rank * self.length : (rank + 1) * self.length]
            made[rank, : part.size] = part
        return made

    def values(self, rows: Array, input_dtype: str) -> Array:
        """What others see of elements: those of their codes, in float32."""
        shared: dict[str, Any] = {"group_size": self.group_size, "mode": self.mode}
        made = GroupQuantizeProblem(
            shape=(rows.size,), input_dtype=input_dtype, output_dtype=self.dtype, **shared
        ).expected({"input": rows.reshape(-1)})
        back = GroupDequantizeProblem(
            shape=(rows.size,), input_dtype=self.dtype, output_dtype="float32", **shared
        ).expected({"input": made["output"], "parameters": made["parameters"]})
        return back["output"].astype(F32).reshape(rows.shape)

    def added(self, values: Sequence[Array]) -> Array:
        """The sum in the order of the ranks, or the mean."""
        total = np.zeros_like(values[0])
        for each in values:
            total = total + each
        return total / F32(len(values)) if self.mean else total

    def summed(self, inputs: Sequence[Array]) -> Array:
        """Float32 rows of the sum, by all levels."""
        values = [self.values(self.rows(x), self.input_dtype) for x in inputs]
        if len(self.levels) == 2:
            devices = self.levels[1]
            sums = [
                self.added(values[first : first + devices])
                for first in range(0, len(values), devices)
            ]
            values = [self.values(each, "float32") for each in sums]
        return self.added(values)

    def reduce_scatter(self, inputs: Sequence[Array]) -> list[Array]:
        """Each rank's part."""
        flat = self._flat(narrowed(self.summed(inputs), self.input_dtype))
        firsts = (
            range(0, self.ranks * self.length, self.length) if self.length else [0] * self.ranks
        )
        return [flat[first : first + self.length] for first in firsts]

    def all_reduce(self, inputs: Sequence[Array]) -> Array:
        """What all ranks have."""
        values = self.values(self.summed(inputs), "float32")
        return self._flat(narrowed(values, self.input_dtype)).reshape(self.shape)

    def all_gather(self, whole: Array) -> Array:
        """What all ranks have, of a tensor whose parts they gave."""
        values = self.values(self.rows(whole), self.input_dtype)
        return self._flat(narrowed(values, self.input_dtype)).reshape(self.shape)

    def _flat(self, rows: Array) -> Array:
        return rows[:, : self.length].reshape(-1)[: math.prod(self.shape)]
