"""`gguf_quantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.elementwise.elements import shape_text
from planq.audit.ops.gguf.blocks import FORMATS, Format
from planq.audit.ops.gguf.gguf_quantize import searches, simple
from planq.audit.reference.formats import Array, Arrays

QUANTIZERS = {
    "q4_0": simple.q4_0,
    "q4_1": simple.q4_1,
    "q5_0": simple.q5_0,
    "q5_1": simple.q5_1,
    "q8_0": simple.q8_0,
    "q8_1": simple.q8_1,
    "q8_k": simple.q8_k,
    "q2_k": searches.q2_k,
    "q3_k": searches.q3_k,
    "q4_k": searches.q4_k,
    "q5_k": searches.q5_k,
    "q6_k": searches.q6_k,
    "iq4_nl": searches.iq4_nl,
    "iq4_xs": searches.iq4_xs,
    "mxfp4": simple.mxfp4,
    "nvfp4": simple.nvfp4,
    "tq1_0": simple.tq1_0,
    "tq2_0": simple.tq2_0,
    "q1_0": simple.q1_0,
    "q2_0": simple.q2_0,
}


@dataclass(frozen=True)
class Problem:
    """Blocks of a tensor of floats."""

    shape: tuple[int, ...]
    input_dtype: str
    type: str

    @property
    def format(self) -> Format:
        """What the blocks are."""
        return FORMATS[self.type]

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of the bytes."""
        *rows, width = self.shape
        return (*rows, width // self.format.elements * self.format.nbytes)

    @cached_property
    def id(self) -> str:
        """A stable name."""
        return f"{shape_text(self.shape)},{self.input_dtype}_{self.type}"


def blocks_of(kind: str, x: Array) -> Array:
    """Blocks of rows of float32 elements, as rows of bytes."""
    with np.errstate(all="ignore"):
        return QUANTIZERS[kind](x)


def gguf_quantize(problem: Problem, given: Arrays) -> Arrays:
    """The operator's output."""
    if not given["input"].size:
        return {"output": np.zeros(problem.output_shape, np.uint8)}
    x = given["input"].astype(np.float32).reshape(-1, problem.format.elements)
    return {"output": blocks_of(problem.type, x).reshape(problem.output_shape)}
