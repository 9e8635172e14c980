"""`code_sum` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planq.audit.ops.linear.products import codes, logical, named, stored, wrapped
from planq.audit.reference.formats import Arrays


@dataclass(frozen=True)
class SumProblem:
    """One sum of codes along an axis."""

    shape: tuple[int, ...]
    input_dtype: str = "int8"
    axis: int = -1

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        return named(self)

    @property
    def free_axis(self) -> int | None:
        """The first axis that is not summed."""
        rank = len(self.shape)
        free = [axis for axis in range(rank) if axis != self.axis % rank]
        return free[0] if free else None

    @property
    def rows(self) -> int:
        """Of the first axis that is not summed; 0 where there is none."""
        return 0 if self.free_axis is None else self.shape[self.free_axis]

    @property
    def terms(self) -> int:
        """Of a sum."""
        return self.shape[self.axis]

    @property
    def size(self) -> int:
        """Codes."""
        return math.prod(self.shape)

    def with_rows(self, rows: int) -> SumProblem:
        """The same with another extent of the first axis that is not summed."""
        assert self.free_axis is not None
        shape = list(self.shape)
        shape[self.free_axis] = rows
        return replace(self, shape=tuple(shape))

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some indices of that axis, as stored when they are alone."""
        made = dict(values)
        at = (slice(None),) * (self.free_axis or 0) + (piece,)
        if "input" in values:
            whole = logical(values["input"], self.input_dtype, self.shape[-1])
            made["input"] = stored(whole[at], self.input_dtype)
        if "output" in values:
            made["output"] = np.ascontiguousarray(values["output"][piece])
        return made

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Codes."""
        return {"input": stored(codes(self.input_dtype, self.shape, kind, seed), self.input_dtype)}

    def expected(self, given: Arrays) -> Arrays:
        """The sums in int32."""
        values = logical(given["input"], self.input_dtype, self.shape[-1])
        return {"output": wrapped(np.asarray(values.sum(axis=self.axis)))}
