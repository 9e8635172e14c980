"""`add` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.elementwise.elements import shape_text, stored
from planq.audit.reference.formats import Arrays


@dataclass(frozen=True)
class Problem:
    """Two tensors of one shape."""

    shape: tuple[int, ...]
    input_dtype: str
    other_dtype: str
    output_dtype: str

    @cached_property
    def id(self) -> str:
        """A stable name."""
        types = f"{self.input_dtype}_{self.other_dtype}_{self.output_dtype}"
        return f"{shape_text(self.shape)},{types}"


def add(problem: Problem, given: Arrays) -> Arrays:
    """The operator's output."""
    with np.errstate(all="ignore"):
        alpha = given["alpha"].astype(np.float32)
        product = given["input"].astype(np.float32) * alpha
        total = product + given["other"].astype(np.float32)
        return {"output": stored(total, problem.output_dtype)}
