"""`codebook_dequantize` for the tests that are generated from the registry."""

from __future__ import annotations

from ops.codebook.adapter import CodebookTests
from ops.codebook.codebook_dequantize.cases import SAMPLE

TESTS = CodebookTests("codebook_dequantize", SAMPLE)
