"""`quantize_backward` for the tests that are generated from the registry."""

from __future__ import annotations

from support.affine import AffineTests

TESTS = AffineTests("quantize_backward")
