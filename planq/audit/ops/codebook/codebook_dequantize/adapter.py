"""`codebook_dequantize` for the tests that are generated from the registry."""

from __future__ import annotations

from planq.audit.ops.codebook.adapter import CodebookTests
from planq.audit.ops.codebook.codebook_dequantize.cases import SAMPLE

# Pairs of flat 4-bit codes go across the ends of rows.
TESTS = CodebookTests("codebook_dequantize", SAMPLE, without_dims="*u4*")
