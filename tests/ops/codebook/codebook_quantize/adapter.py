"""`codebook_quantize` for the tests that are generated from the registry."""

from __future__ import annotations

from ops.codebook.adapter import CodebookTests
from ops.codebook.codebook_quantize.cases import SAMPLE

TESTS = CodebookTests("codebook_quantize", SAMPLE)
