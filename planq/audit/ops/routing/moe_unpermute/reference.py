"""`moe_unpermute` in NumPy, written from the numeric contract alone: one rank after another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.affine.reference import fma
from planq.audit.reference.formats import Array, narrowed


@dataclass(frozen=True)
class Problem:
    """Rows that experts made, one for each rank of each token."""

    input_shape: tuple[int, int, int]
    input_dtype: str
    output_dtype: str

    @cached_property
    def id(self) -> str:
        """A stable name."""
        shape = "x".join(map(str, self.input_shape))
        return f"{shape},{self.input_dtype}_{self.output_dtype}"


def moe_unpermute(problem: Problem, given: dict[str, Array]) -> dict[str, Array]:
    """The operator's output."""
    tokens, top_k, width = problem.input_shape
    rows = given["input"].reshape(tokens * top_k, width)
    sums = np.zeros((tokens, width), np.float32)
    with np.errstate(all="ignore"):
        for rank in range(top_k):
            destination = given["destination"][:, rank].astype(np.int64)
            named = np.flatnonzero((destination >= 0) & (destination < tokens * top_k))
            x = rows[destination[named]].astype(np.float32)
            sums[named] = fma(x, given["weight"][named, rank, None], sums[named])
        return {"output": narrowed(sums, problem.output_dtype)}
