"""`dequantize_backward` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.affine.reference import Problem, Tensor
from planq.audit.reference.formats import Arrays, narrowed


@dataclass(frozen=True)
class DequantizeBackwardProblem(Problem):
    """The gradient of `dequantize`."""

    output_dtype: str = "float32"

    @property
    def float_dtype(self) -> str:
        """The type of both gradients."""
        return self.output_dtype

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The gradient and the scales."""
        return {
            "grad_output": Tensor(self.output_dtype),
            "scale": Tensor(self.stored_scale, "parameters"),
        }

    @property
    def outputs(self) -> dict[str, Tensor]:
        """The gradient of the codes."""
        return {"grad_input": Tensor(self.output_dtype)}

    def expected(self, given: Arrays) -> Arrays:
        """`round_T(fl(dy * s))`."""
        with np.errstate(all="ignore"):
            s = self.spread(self.scale(given))
            y = given["grad_output"].astype(self.compute) * s
            return {"grad_input": narrowed(y, self.output_dtype)}
