"""`fake_quantize_backward` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.affine.reference import Faked, Tensor, within
from planq.audit.reference.formats import Arrays


@dataclass(frozen=True)
class FakeQuantizeBackwardProblem(Faked):
    """The gradient of `fake_quantize` with given parameters."""

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
        """The bits of `dy` where the code was not clamped, +0 elsewhere."""
        with np.errstate(all="ignore"):
            t = self.divided(given["input"], self.spread(self.scale(given)))
            mask = within(t, self.zero_point(given), self.bounds)
        dy = given["grad_output"]
        raw = np.where(mask, dy.view(f"u{dy.dtype.itemsize}"), 0)
        return {"grad_input": raw.astype(f"u{dy.dtype.itemsize}").view(dy.dtype)}
