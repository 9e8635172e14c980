"""`dequantize_backward` for the tests that are generated from the registry."""

from __future__ import annotations

from ops.affine.adapter import AffineTests

TESTS = AffineTests("dequantize_backward")
