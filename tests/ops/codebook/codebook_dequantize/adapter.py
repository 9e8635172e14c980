"""`codebook_dequantize` for the tests that are generated from the registry."""

from __future__ import annotations

from ops.codebook.adapter import CodebookTests

TESTS = CodebookTests("codebook_dequantize")
