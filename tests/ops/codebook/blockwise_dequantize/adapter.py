"""`blockwise_dequantize` for the tests that are generated from the registry."""

from __future__ import annotations

from ops.codebook.adapter import CodebookTests
from ops.codebook.blockwise_dequantize.cases import SAMPLE

TESTS = CodebookTests("blockwise_dequantize", SAMPLE)
