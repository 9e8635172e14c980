"""Straight-through gradients in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.affine.reference import Coded, Tensor, within
from planq.audit.reference.formats import INTEGER_RANGES, Arrays, narrowed


@dataclass(frozen=True)
class QuantizeBackwardProblem(Coded):
    """The gradient of `quantize`."""

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The gradient, and the forward's inputs."""
        elements = {name: Tensor(self.input_dtype) for name in ("grad_output", "input")}
        return {**elements, **self.parameters}

    @property
    def outputs(self) -> dict[str, Tensor]:
        """The gradient of the input."""
        return {"grad_input": Tensor(self.input_dtype)}

    def expected(self, given: Arrays) -> Arrays:
        """`round_T(dy / s)` where the code was not clamped, +0 elsewhere."""
        with np.errstate(all="ignore"):
            s = self.spread(self.scale(given))
            t = self.divided(given["input"], s)
            if self.output_dtype in INTEGER_RANGES:
                mask = within(t, self.zero_point(given), self.bounds)
            else:
                q_min, q_max = (self.compute(q) for q in self.bounds)
                mask = (t >= q_min) & (t <= q_max)
            gradient = self.divided(given["grad_output"], s)
            return {"grad_input": narrowed(np.where(mask, gradient, 0), self.input_dtype)}
