"""`dequantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.affine import microscaling
from planq.audit.ops.affine.reference import Problem, Tensor, dequantized, fma
from planq.audit.reference.formats import FLOATS, Array, Arrays, narrowed

# bitsandbytes' 1 / 127 and 1 / 127^2, in float32.
INVERSE, INVERSE_SQUARE = np.array([0x3C010204, 0x38820610], np.uint32).view(np.float32)


@dataclass(frozen=True)
class DequantizeProblem(Problem):
    """One dequantization of codes or of int32 accumulators."""

    input_dtype: str = "int8"
    output_dtype: str = "float32"
    mode: str = "symmetric"
    zero_point_dtype: str | None = None
    nibble_order: str = "low_first"
    bias_dtype: str | None = None
    convention: str = "planq"

    @property
    def float_dtype(self) -> str:
        """The type of the results."""
        return self.output_dtype

    @property
    def stored_scale(self) -> str:
        """The dtype of the stored scales, which a format of groups fixes."""
        return self.scale_dtype or microscaling.SCALES.get(
            self.convention, np.dtype(self.compute).name
        )

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Codes, scales, and what else the fields ask for."""
        given = {
            "input": Tensor(self.input_dtype),
            "scale": Tensor(self.stored_scale, "parameters"),
        }
        if self.mode == "asymmetric":
            given["zero_point"] = Tensor(self.zero_point_dtype or "int32", "parameters")
        if self.scope[0] == "pair":
            given["column_scale"] = Tensor(self.stored_scale, "columns")
        if self.bias_dtype:
            given["bias"] = Tensor(self.bias_dtype, "columns")
        if self.convention == "nvfp4":
            given["tensor_scale"] = Tensor("float32", "one")
        return given

    @property
    def outputs(self) -> dict[str, Tensor]:
        """The elements."""
        return {"output": Tensor(self.output_dtype)}

    def expected(self, given: Arrays) -> Arrays:
        """`round_T(fl(s * fl(q - z)))`, with a second scale or a bias where there is one."""
        C = self.compute
        with np.errstate(all="ignore"):
            codes = self.logical(self.inputs["input"], given["input"])
            if self.convention in microscaling.GROUP:
                return {"output": narrowed(self.of_groups(codes, given), self.output_dtype)}
            codes = codes.astype(C) if self.input_dtype in FLOATS else codes
            if self.convention != "planq":
                values = self.by_convention(codes.astype(C), given)
                return {"output": narrowed(values, self.output_dtype)}
            z: Array | int = 0
            if self.mode == "asymmetric":
                tensor = self.inputs["zero_point"]
                z = self.spread(self.logical(tensor, given["zero_point"]))
            y = dequantized(codes, z, self.spread(self.scale(given)))
            if "column_scale" in given:
                y = y * self.scale(given, "column_scale")
            if "bias" in given:
                y = y + given["bias"].astype(C)
            return {"output": narrowed(y, self.output_dtype)}

    def of_groups(self, codes: Array, given: Arrays) -> Array:
        """`fl(v * s)` of MX and NVFP4, in float32."""
        factor = given["tensor_scale"][0] if "tensor_scale" in given else np.float32(1)
        s = microscaling.scale_values(given["scale"], self.convention, factor)
        return np.asarray(microscaling.code_values(codes, self.input_dtype) * self.spread(s))

    def by_convention(self, q: Array, given: Arrays) -> Array:
        """bitsandbytes' and baracuda's orders of scales, in C."""
        C = self.compute
        row = self.spread(self.scale(given))
        bias = given["bias"].astype(C) if "bias" in given else None
        if self.input_dtype == "int8":
            return np.asarray(q * row * C(INVERSE))
        column = self.scale(given, "column_scale")
        if self.convention == "baracuda":
            y = row * column * q
            return np.asarray(y if bias is None else y + bias)
        return fma(q * row * column, C(INVERSE_SQUARE), C(0) if bias is None else bias)
