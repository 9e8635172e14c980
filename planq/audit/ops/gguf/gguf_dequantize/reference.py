"""`gguf_dequantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.elementwise.elements import shape_text
from planq.audit.ops.gguf.blocks import FORMATS, Format
from planq.audit.reference.formats import Array, Arrays, narrowed


@dataclass(frozen=True)
class Problem:
    """Floats of a tensor of blocks, or of rows of it."""

    shape: tuple[int, ...]
    type: str
    output_dtype: str
    table_rows: int | None = None
    index_dtype: str | None = None

    @property
    def format(self) -> Format:
        """What the blocks are."""
        return FORMATS[self.type]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of the bytes."""
        *rows, width = self.shape
        if self.table_rows is not None:
            rows = [self.table_rows]
        return (*rows, width // self.format.elements * self.format.nbytes)

    @cached_property
    def id(self) -> str:
        """A stable name."""
        rows = f",of={self.table_rows},{self.index_dtype}" if self.table_rows else ""
        return f"{shape_text(self.shape)},{self.type}_{self.output_dtype}{rows}"


def values_of(form: Format, blocks: Array) -> Array:
    """`fl(fl(E * q) + C)` of each element of rows of bytes, without C `fl(E * q)`."""
    code, scale, minimum = form.decode(blocks.astype(np.int64))
    product = scale * code.astype(np.float32)
    return product if minimum is None else product + minimum


def gguf_dequantize(problem: Problem, given: Arrays) -> Arrays:
    """The operator's outputs."""
    form, blocks = problem.format, given["input"]
    counts = {}
    if problem.table_rows is not None:
        index = given["index"].astype(np.int64).reshape(-1)
        named = (index >= 0) & (index < problem.table_rows)
        counts["invalid"] = np.array([np.count_nonzero(~named)], np.int64)
        blocks = blocks[np.where(named, index, 0)]
    with np.errstate(all="ignore"):
        values = values_of(form, blocks.reshape(-1, form.nbytes))
        output = narrowed(values, problem.output_dtype).reshape(problem.shape)
    if counts:
        output[~named.reshape(problem.shape[:-1])] = 0
    return {"output": output} | counts
