"""`dequantize` for the tests that are generated from the registry."""

from __future__ import annotations

from planq.audit.ops.affine.adapter import AffineTests
from planq.audit.ops.affine.dequantize.cases import SAMPLE

TESTS = AffineTests("dequantize", SAMPLE)
