"""`matmul` for the tests that are generated from the registry."""

from __future__ import annotations

import planq
from planq.audit.ops.linear.float_layers import FloatLayerTests
from planq.audit.ops.linear.matmul.cases import cases, empty_cases

TESTS = FloatLayerTests("matmul", cases(), empty_cases(), planq.Rounding.NEAREST_EVEN)
