"""`codebook_quantize` for the tests that are generated from the registry."""

from __future__ import annotations

from planq.audit.ops.codebook.adapter import CodebookTests
from planq.audit.ops.codebook.codebook_quantize.cases import SAMPLE

# Pairs of flat 4-bit codes go across the ends of rows.
TESTS = CodebookTests("codebook_quantize", SAMPLE, without_dims="*u4*")
