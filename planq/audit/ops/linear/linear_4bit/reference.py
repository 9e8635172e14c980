"""`linear_4bit` in NumPy: the weights of other references, and sums from the contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planq.audit.ops.codebook import inputs as codebook_inputs
from planq.audit.ops.codebook.blockwise_dequantize.reference import BlockwiseDequantizeProblem
from planq.audit.ops.codebook.reference import table
from planq.audit.ops.linear.float_layers import CodedLayer
from planq.audit.reference.formats import Array, Arrays, narrowed, unpack_nibbles

STATISTICS = ("absmax", "codebook", "nested_absmax", "nested_offset", "nested_codebook")


@dataclass(frozen=True)
class FourBitProblem(CodedLayer):
    """One linear layer of 4-bit weights, in blocks of a codebook or in groups."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, int]
    input_dtype: str = "bfloat16"
    output_dtype: str = "float32"
    code_dtype: str = "uint4"
    weight_dtype: str | None = None
    codebook: str = "nf4"
    block_size: int | None = None
    nested_block_size: int | None = None
    weight_scope: tuple[Any, ...] = ("tensor",)
    weight_mode: str = "symmetric"
    nibble_order: str = "high_first"
    weight_layout: str = "row_major"
    accumulation: str = "tensor_sm90"
    bias_dtype: str | None = None
    residual_dtype: str | None = None
    scale_dtype: str = "float32"
    zero_point_dtype: str = "int32"

    @property
    def blocks(self) -> BlockwiseDequantizeProblem:
        """What gives the codes of blocks back."""
        return BlockwiseDequantizeProblem(
            shape=self.weight_shape,
            input_dtype="uint4",
            output_dtype=self.values,
            codebook=self.codebook,
            nibble_order=self.nibble_order,
            block_size=self.block_size or 1,
            nested_block_size=self.nested_block_size,
        )

    def codes(self, plain: Array) -> Array:
        """Row-major codes as (n, k), a byte each; those of blocks are flat."""
        if self.block_size is None:
            return super().codes(plain)
        n, k = self.weight_shape
        return unpack_nibbles(plain, n * k, self.nibble_order).reshape(n, k)

    def plain(self, codes: Array) -> Array:
        """The other way."""
        return super().plain(codes if self.block_size is None else codes.reshape(-1))

    def weights(self, kind: str, seed: int) -> Arrays:
        """Codes and what gives them back."""
        if self.block_size is None:
            return super().weights(kind, seed)
        parameters = "special" if kind == "ends" else "ordinary"
        made = codebook_inputs.make(self.blocks, "normal", parameters, seed)
        return {"weight" if name == "input" else name: value for name, value in made.items()}

    @property
    def segment(self) -> int:
        """Terms that share a scale: those of a block, too."""
        return self.block_size or super().segment

    def unscaled(self, given: Arrays) -> tuple[Array, Array]:
        """v and the scales: of blocks the codebook's values, and an absmax for each."""
        if self.block_size is None:
            return super().unscaled(given)
        n, k = self.weight_shape
        values = given["codebook"] if self.codebook == "given" else table(self.codebook)
        v = narrowed(values, self.values)[self.codes(given["weight"])]
        absmax = self.blocks.absmax(given)[:: self.block_size]
        return v, absmax.reshape(n, k // self.block_size)

    def numbers(self, given: Arrays) -> Array:
        """w."""
        if self.block_size is None:
            return super().numbers(given)
        stored = {name: given[name] for name in STATISTICS if name in given}
        return self.blocks.expected({"input": given["weight"], **stored})["output"]
