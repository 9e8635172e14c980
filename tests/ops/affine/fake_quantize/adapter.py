"""`fake_quantize` for the tests that are generated from the registry."""

from __future__ import annotations

from ops.affine.adapter import AffineTests
from ops.affine.fake_quantize.cases import SAMPLE

TESTS = AffineTests("fake_quantize", SAMPLE)
