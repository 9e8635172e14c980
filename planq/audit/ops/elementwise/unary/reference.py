"""`unary` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.elementwise.elements import of_each, shape_text, stored
from planq.audit.reference.formats import Array, Arrays


@dataclass(frozen=True)
class Problem:
    """A function of the elements of a tensor."""

    shape: tuple[int, ...]
    function: str
    input_dtype: str
    output_dtype: str

    @cached_property
    def id(self) -> str:
        """A stable name."""
        types = f"{self.input_dtype}_{self.output_dtype}"
        return f"{shape_text(self.shape)},{self.function},{types}"


def unary(problem: Problem, x: Array) -> Arrays:
    """The operator's output."""
    found = of_each(problem.function, x.astype(np.float32))
    return {"output": stored(found, problem.output_dtype)}
