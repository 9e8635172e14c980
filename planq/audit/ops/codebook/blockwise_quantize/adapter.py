"""`blockwise_quantize` for the tests that are generated from the registry."""

from __future__ import annotations

from planq.audit.ops.codebook.adapter import CodebookTests
from planq.audit.ops.codebook.blockwise_quantize.cases import SAMPLE

TESTS = CodebookTests("blockwise_quantize", SAMPLE)
