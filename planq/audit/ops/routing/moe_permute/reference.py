"""`moe_permute` in NumPy, written from the numeric contract alone: a stable sort by experts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Problem:
    """Rows of tokens, and how many experts each goes to."""

    input_shape: tuple[int, int]
    input_dtype: str
    top_k: int
    experts: int
    scale_dtype: str | None = None

    @property
    def pairs(self) -> int:
        """Of a token and a rank."""
        return self.input_shape[0] * self.top_k

    @cached_property
    def id(self) -> str:
        """A stable name."""
        scales = ",scales" if self.scale_dtype else ""
        tokens, width = self.input_shape
        return f"{tokens}x{width},{self.input_dtype},top_k={self.top_k},of={self.experts}{scales}"


def moe_permute(problem: Problem, given: dict[str, Array]) -> dict[str, Array]:
    """The operator's outputs by name."""
    tokens, width = problem.input_shape
    experts = given["expert_index"].reshape(-1).astype(np.int64)
    inside = np.flatnonzero((experts >= 0) & (experts < problem.experts))
    order = inside[np.argsort(experts[inside], kind="stable")]
    counts = np.bincount(experts[order], minlength=problem.experts)
    destination = np.full(problem.pairs, -1, np.int32)
    destination[order] = np.arange(len(order))
    output = np.zeros((problem.pairs, width), given["input"].dtype)
    output[: len(order)] = given["input"][order // problem.top_k]
    made = {
        "output": output.reshape(tokens, problem.top_k, width),
        "expert_offset": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "destination": destination.reshape(tokens, problem.top_k),
    }
    if problem.scale_dtype:
        scale = np.zeros(problem.pairs, np.float32)
        scale[: len(order)] = given["scale"][order // problem.top_k]
        made["permuted_scale"] = scale.reshape(tokens, problem.top_k)
    return made
