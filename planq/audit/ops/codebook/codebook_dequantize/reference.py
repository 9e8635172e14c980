"""`codebook_dequantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.codebook.reference import DequantizeProblem, Operand
from planq.audit.reference.formats import Array, Arrays


@dataclass(frozen=True, kw_only=True)
class CodebookDequantizeProblem(DequantizeProblem):
    """`codebook_dequantize`: one absmax for the tensor, or none."""

    normalized: bool = False

    @property
    def statistics(self) -> dict[str, Operand]:
        """One absmax, or none."""
        return {} if self.normalized else {"absmax": Operand(self.stored_absmax, (1,))}

    def absmax(self, given: Arrays) -> Array:
        """The one of all elements."""
        return np.asarray(given["absmax"].astype(self.compute))
