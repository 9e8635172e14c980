"""`codebook_quantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planq.audit.ops.codebook.reference import Operand, QuantizeProblem
from planq.audit.reference.formats import Arrays, canonical


@dataclass(frozen=True, kw_only=True)
class CodebookQuantizeProblem(QuantizeProblem):
    """`codebook_quantize`: one absmax for the tensor, or values that are used as they are."""

    normalized: bool = False

    @property
    def statistics(self) -> dict[str, Operand]:
        """One absmax, or none."""
        return {} if self.normalized else {"absmax": Operand(self.compute_dtype, (1,))}

    def expected(self, given: Arrays) -> Arrays:
        """Codes, and the absmax that was measured."""
        with np.errstate(all="ignore"):
            if self.normalized:
                codes = self.searched(given).codes(self.elements(given), self.draws(given))
                return {"output": self.as_stored(codes)}
            codes, found = self.in_blocks(given, max(self.count, 1))
            made = {"output": self.as_stored(codes)}
            if self.absmax_given:
                return made
            absmax = found if self.count else np.zeros(1, self.compute)
            return {**made, "absmax": canonical(absmax, self.compute_dtype)}
