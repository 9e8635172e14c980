"""`blockwise_dequantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.codebook.reference import (
    NESTED_ENTRIES,
    Codebook,
    DequantizeProblem,
    Operand,
    statistics,
    unnest,
)
from planq.audit.reference.formats import Array, Arrays


@dataclass(frozen=True, kw_only=True)
class BlockwiseDequantizeProblem(DequantizeProblem):
    """`blockwise_dequantize`: an absmax for every block of the flat tensor."""

    block_size: int = 64
    nested_block_size: int | None = None

    @property
    def blocks(self) -> int:
        """Blocks, the last of which may be shorter."""
        return -(-self.count // self.block_size)

    @property
    def statistics(self) -> dict[str, Operand]:
        """absmax, or its codes with all that they need."""
        made = statistics(self.blocks, self.stored_absmax, self.nested_block_size)
        if self.nested_block_size is not None:
            made["nested_codebook"] = Operand("float32", (NESTED_ENTRIES,))
        return made

    def absmax(self, given: Arrays) -> Array:
        """That of each element's block, restored where it is nested."""
        absmax = given["absmax"]
        if self.nested_block_size is not None:
            absmax = unnest(
                absmax,
                Codebook(given["nested_codebook"], "given", "even"),
                given["nested_absmax"].astype(self.compute),
                given["nested_offset"].astype(self.compute),
                self.nested_block_size,
            )
        return np.asarray(absmax.astype(self.compute)[np.arange(self.count) // self.block_size])
