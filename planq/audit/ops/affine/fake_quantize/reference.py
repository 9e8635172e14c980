"""`fake_quantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.affine.dynamic_range_quantize import reference as dynamic_range
from planq.audit.ops.affine.reference import Faked, Tensor, clamped, dequantized
from planq.audit.reference.formats import Array, Arrays, narrowed
from planq.audit.reference.philox import uniform


@dataclass(frozen=True)
class FakeQuantizeProblem(Faked):
    """One quantization and back, with given parameters or with those of the range."""

    nonfinite: str = "propagate"
    include_zero: bool = True
    rounding: str = "nearest_even"
    dynamic: bool = False

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Elements, parameters that are given, and what the draws depend on."""
        given = {"input": Tensor(self.input_dtype)}
        if not self.dynamic:
            given |= self.parameters
        if self.rounding == "stochastic":
            given |= {name: Tensor("int64", "scalar") for name in ("seed", "offset")}
        return given

    @property
    def outputs(self) -> dict[str, Tensor]:
        """Elements, and parameters that are computed."""
        made = {"output": Tensor(self.input_dtype)}
        return {**made, **self.parameters} if self.dynamic else made

    @property
    def as_dynamic_range(self) -> dynamic_range.Problem:
        """The quantization that has the same ranges."""
        return dynamic_range.Problem(
            shape=self.shape,
            input_dtype=self.input_dtype,
            scope=self.scope,
            mode=self.mode,
            q_min=self.bounds[0],
            q_max=self.bounds[1],
            scale_dtype=self.scale_dtype,
            nonfinite=self.nonfinite,
            include_zero=self.include_zero,
        )

    def codes(self, t: Array, z: Array, given: Arrays) -> Array:
        """Codes of quotients, rounded as the descriptor says."""
        if self.rounding == "nearest_even":
            return clamped(np.rint(t), z, self.bounds)
        u = uniform(int(given["seed"]), int(given["offset"]), self.shape).astype(self.compute)
        counted = np.where(np.isnan(t), self.compute(0), t)
        return clamped(np.floor(counted + u), z, self.bounds)

    def expected(self, given: Arrays) -> Arrays:
        """The elements, and the parameters that were computed."""
        x = given["input"]
        with np.errstate(all="ignore"):
            if self.dynamic:
                return self.expected_dynamic(x, given)
            s, z = self.spread(self.scale(given)), self.zero_point(given)
            y = dequantized(self.codes(self.divided(x, s), z, given), z, s)
            if self.nonfinite == "propagate":
                y = np.where(np.isnan(x), self.compute(np.nan), y)
            return {"output": narrowed(y, self.input_dtype)}

    def expected_dynamic(self, x: Array, given: Arrays) -> Arrays:
        """The same with the parameters of the dynamic quantization's own reference."""
        found = dynamic_range.dynamic_range_quantize(self.as_dynamic_range, x)
        s = self.spread(found.scale.astype(self.compute))
        z = np.zeros(self.shape, np.int64)
        parameters = {"scale": found.scale}
        if found.zero_point is not None:
            z = self.spread(found.zero_point.astype(np.int64))
            parameters["zero_point"] = found.zero_point
        t = self.divided(x, s) if self.quotient != "ratio" else self.by_ratio(x)
        y = dequantized(self.codes(t, z, given), z, s)
        return {"output": narrowed(y, self.input_dtype), **parameters}

    def by_ratio(self, x: Array) -> Array:
        """`fl(x * fl(q_max / M))` with the segment's largest finite magnitude; x where it is 0."""
        wide = x.astype(self.compute)
        view, axes = dynamic_range.segmented(self.as_dynamic_range, wide)
        M = np.max(np.abs(view), axis=axes, initial=0, where=np.isfinite(view))
        M = self.spread(M.astype(self.compute).reshape(self.parameter_shape))
        return np.where(M == 0, wide, wide * (self.compute(self.bounds[1]) / M))
