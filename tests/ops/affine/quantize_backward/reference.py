"""Straight-through gradients in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ops.affine.fake_quantize.reference import Faked
from ops.affine.quantize.reference import Coded
from ops.affine.reference import Arrays, Problem, Tensor, narrowed, within
from reference.formats import INTEGER_RANGES


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
