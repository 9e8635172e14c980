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
    """Floats of a tensor of blocks."""

    shape: tuple[int, ...]
    type: str
    output_dtype: str

    @property
    def format(self) -> Format:
        """What the blocks are."""
        return FORMATS[self.type]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of the bytes."""
        *rows, width = self.shape
        return (*rows, width // self.format.elements * self.format.nbytes)

    @cached_property
    def id(self) -> str:
        """A stable name."""
        return f"{shape_text(self.shape)},{self.type}_{self.output_dtype}"


def values_of(form: Format, blocks: Array) -> Array:
    """`fl(fl(E * q) + C)` of each element of rows of bytes, without C `fl(E * q)`."""
    code, scale, minimum = form.decode(blocks.astype(np.int64))
    product = scale * code.astype(np.float32)
    return product if minimum is None else product + minimum


def gguf_dequantize(problem: Problem, given: Arrays) -> Arrays:
    """The operator's output."""
    form = problem.format
    with np.errstate(all="ignore"):
        values = values_of(form, given["input"].reshape(-1, form.nbytes))
        return {"output": narrowed(values, problem.output_dtype).reshape(problem.shape)}
