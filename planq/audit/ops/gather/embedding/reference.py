"""`embedding` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.reference.formats import FLOATS, Array, Arrays, narrowed, unpack_nibbles


@dataclass(frozen=True)
class Problem:
    """Rows of a table, for each index."""

    shape: tuple[int, ...]
    table_rows: int
    table_dtype: str
    output_dtype: str
    index_dtype: str = "int64"
    scope: tuple[str | int, ...] = ("token",)
    scale_dtype: str = "float32"
    nibble_order: str = "low_first"

    @property
    def count(self) -> int:
        """How many indices there are."""
        return math.prod(self.shape[:-1])

    @property
    def width(self) -> int:
        """Elements of a row."""
        return self.shape[-1]

    @property
    def has_codes(self) -> bool:
        """Whether there are scales."""
        return self.table_dtype not in FLOATS

    @property
    def group(self) -> int:
        """Elements of a row that share a scale."""
        return int(self.scope[1]) if self.scope[0] == "group" else self.width

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """One for each row, or for each group."""
        rows = (self.table_rows,)
        return (*rows, -(-self.width // self.group)) if self.scope[0] == "group" else rows

    @cached_property
    def id(self) -> str:
        """A stable name."""
        scales = f",{''.join(map(str, self.scope))},{self.scale_dtype}" if self.has_codes else ""
        order = f",{self.nibble_order}" if self.table_dtype == "int4" else ""
        return (
            f"{'x'.join(map(str, self.shape))},of={self.table_rows},{self.table_dtype}_"
            f"{self.output_dtype},{self.index_dtype}{scales}{order}"
        )


def values_of(problem: Problem, given: Arrays) -> Array:
    """The table as float32."""
    table = given["table"]
    if not problem.has_codes:
        return table.astype(np.float32)
    if problem.table_dtype == "int4":
        patterns = unpack_nibbles(table, problem.width, problem.nibble_order).astype(np.int32)
        table = np.where(patterns >= 8, patterns - 16, patterns)
    scale = given["scale"].astype(np.float32)
    grouped = problem.scope[0] == "group"
    own = scale[:, np.arange(problem.width) // problem.group] if grouped else scale[:, None]
    return np.asarray(own * table.astype(np.float32))


def embedding(problem: Problem, given: Arrays) -> Arrays:
    """`round(fl(v * factor))`, and rows of +0 where an index names none."""
    index = given["index"].reshape(-1).astype(np.int64)
    named = (index >= 0) & (index < problem.table_rows)
    rows = np.zeros((problem.count, problem.width), np.float32)
    with np.errstate(all="ignore"):
        factor = np.float32(given["factor"].reshape(-1)[0])
        rows[named] = values_of(problem, given)[index[named]] * factor
        output = narrowed(rows, problem.output_dtype).reshape(problem.shape)
    return {"output": output, "invalid": np.array([np.count_nonzero(~named)], np.int64)}
