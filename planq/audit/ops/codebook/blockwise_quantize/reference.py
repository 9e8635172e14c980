"""`blockwise_quantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.codebook.reference import Operand, QuantizeProblem, nest, statistics
from planq.audit.reference.formats import Arrays, canonical


@dataclass(frozen=True, kw_only=True)
class BlockwiseQuantizeProblem(QuantizeProblem):
    """`blockwise_quantize`: an absmax for every block of the flat tensor."""

    block_size: int = 64
    nested_block_size: int | None = None

    @property
    def blocks(self) -> int:
        """Blocks, the last of which may be shorter."""
        return -(-self.count // self.block_size)

    @property
    def statistics(self) -> dict[str, Operand]:
        """absmax in C, or as codes with an absmax of their own."""
        return statistics(self.blocks, self.compute_dtype, self.nested_block_size)

    def expected(self, given: Arrays) -> Arrays:
        """Codes and statistics."""
        with np.errstate(all="ignore"):
            codes, found = self.in_blocks(given, self.block_size)
            absmax = found[: self.blocks]
            made = {"output": self.as_stored(codes)}
            if self.absmax_given:
                return made
            if self.nested_block_size is None:
                return {**made, "absmax": canonical(absmax, self.compute_dtype)}
            nested = nest(absmax, self.nested_block_size)
        return {
            **made,
            "absmax": nested.codes,
            "nested_absmax": canonical(nested.absmax, self.compute_dtype),
            "nested_offset": canonical(nested.offset, self.compute_dtype),
        }
