"""`linear_gguf` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem as Quantization
from planq.audit.ops.affine.dynamic_range_quantize.reference import dynamic_range_quantize
from planq.audit.ops.gguf.blocks import FORMATS, Format
from planq.audit.ops.gguf.inputs import made
from planq.audit.ops.linear.float_layers import ADDENDS, FACTORS, FloatLayer, addends, finished
from planq.audit.ops.linear.products import codes, fused, stored
from planq.audit.reference.formats import Array, Arrays
from planq.audit.reference.inputs import make

STEP = 32  # activations that share a scale
SPAN = 256  # elements of a sum of its own
# Types with a scale for each 16 elements.
HALVES = ("q2_k", "q3_k", "q6_k", "nvfp4", "iq2_xs", "iq2_s", "iq1_m")
# What blocks of a kind may hold.
BLOCKS = {
    "any": ("near", "near", "near", "finite"),
    "ends": ("extreme", "near", "bytes"),
    "sparse": ("near", "nonfinite", "zeros"),
    "lowest": ("near", "ones", "finite"),
}


@dataclass(frozen=True)
class Weights:
    """Rows of blocks by their sub-blocks.

    Attributes:
        code: q, as (n, sub-blocks, elements of one).
        scale: E, as (n, sub-blocks).
        minimum: C likewise; None where the type has none.
    """

    code: Array
    scale: Array
    minimum: Array | None


@dataclass(frozen=True)
class LinearGgufProblem(FloatLayer):
    """One linear layer whose weights are blocks."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, int]
    type: str = "q8_0"
    input_dtype: str = "int8"
    output_dtype: str = "float32"
    bias_dtype: str | None = None
    residual_dtype: str | None = None

    @property
    def format(self) -> Format:
        """What the blocks are."""
        return FORMATS[self.type]

    @property
    def sub_block(self) -> int:
        """How many elements have a sum of integers: those of a scale, or some of them."""
        return 16 if self.type in HALVES else STEP

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """Of the activations' scales."""
        return (*self.input_shape[:-1], self.terms // STEP)

    @property
    def row_bytes(self) -> int:
        """Of a row of the weight."""
        return self.terms // self.format.elements * self.format.nbytes

    @property
    def quantization(self) -> Quantization:
        """What makes codes of floating activations."""
        return Quantization(
            self.input_shape, self.input_dtype, scope=("group", STEP, -1), quotient="ratio"
        )

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some rows, as stored when they are alone."""
        made = super().cut(values, piece)
        if "input_scale" in values:
            made["input_scale"] = np.ascontiguousarray(values["input_scale"][..., piece, :])
        return made

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Activations or their codes, blocks, and what is added to the sums."""
        shape = self.input_shape
        if self.input_dtype == "int8":
            scale = make(ADDENDS[kind], self.scale_shape, "float32", seed + 3000)
            given = {"input": stored(codes("int8", shape, kind, seed), "int8")}
            given["input_scale"] = scale
        else:
            given = {"input": make(FACTORS[kind], shape, self.input_dtype, seed)}
        blocks = BLOCKS[kind][seed % len(BLOCKS[kind])]
        weight = made(self.format, (self.columns, self.row_bytes), blocks, seed + 1000)
        return given | {"weight": weight, **addends(self, kind, seed + 2000)}

    def quantized(self, given: Arrays) -> tuple[Array, Array]:
        """The codes x and the scales d of all rows."""
        x, d = given["input"], given.get("input_scale")
        if d is None:
            codes_of = dynamic_range_quantize(self.quantization, x)
            x, d = codes_of.output, codes_of.scale
        rows = math.prod(self.input_shape[:-1])
        return x.reshape(rows, self.terms), d.reshape(rows, self.terms // STEP)

    def weights(self, blocks: Array) -> Weights:
        """The rows' codes, scales and minima."""
        n, k, g = self.columns, self.terms, self.sub_block
        decoded = self.format.decode(blocks.reshape(-1, self.format.nbytes).astype(np.int64))
        code, *parameters = decoded

        def by_sub_block(each: Array) -> Array:
            """The first of every sub-block, of which all are alike."""
            return np.broadcast_to(each, code.shape).reshape(n, k)[:, ::g]

        scale, minimum = (None if each is None else by_sub_block(each) for each in parameters)
        assert scale is not None
        return Weights(code.reshape(n, k // g, g), scale, minimum)

    def sums(self, given: Arrays) -> Array:
        """t before the addends, as (rows, n)."""
        x, d = self.quantized(given)
        w, g = self.weights(given["weight"]), self.sub_block
        x = x.reshape(len(x), self.terms // g, g).astype(np.float64)
        t = np.zeros((len(x), self.columns), np.float32)
        for span in range(0, self.terms, SPAN):
            a = np.zeros_like(t)
            for i in range(span // g, min(span + SPAN, self.terms) // g):
                # float64 holds the sums of integers, and so does float32.
                dots = (x[:, i] @ w.code[:, i].T.astype(np.float64)).astype(np.float32)
                own = d[:, i * g // STEP, None]
                a = fused(w.scale[:, i] * own, dots, a)
                if w.minimum is not None:
                    u = own * x[:, i].sum(axis=1, keepdims=True).astype(np.float32)
                    a = fused(np.broadcast_to(w.minimum[:, i], a.shape), u, a)
            t = t + a
        return t

    def expected(self, given: Arrays) -> Arrays:
        """Sums, addends, one rounding."""
        with np.errstate(all="ignore"):
            return finished(self, self.sums(given).reshape(self.output_shape), given)
