"""`quantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.affine.reference import Coded, Tensor, float8_codes, integer_codes
from planq.audit.reference.formats import INTEGER_RANGES, Arrays


@dataclass(frozen=True)
class QuantizeProblem(Coded):
    """One static quantization."""

    nonfinite: str = "propagate"
    nibble_order: str = "low_first"

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Elements, scales and, where there are any, zero points."""
        return {"input": Tensor(self.input_dtype), **self.parameters}

    @property
    def outputs(self) -> dict[str, Tensor]:
        """The codes."""
        return {"output": Tensor(self.output_dtype)}

    def expected(self, given: Arrays) -> Arrays:
        """The codes as stored, fp8 as bytes."""
        with np.errstate(all="ignore"):
            t = self.divided(given["input"], self.spread(self.scale(given)))
            if self.output_dtype in INTEGER_RANGES:
                codes = integer_codes(t, self.zero_point(given), self.bounds)
                return {"output": self.stored(self.outputs["output"], codes)}
            return {"output": float8_codes(t, self.bounds, self.output_dtype, self.nonfinite)}
