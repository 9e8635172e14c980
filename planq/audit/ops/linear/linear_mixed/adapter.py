"""`linear_mixed` for the tests that are generated from the registry."""

from __future__ import annotations

import planq
from planq.audit.ops.linear.float_layers import FloatLayerTests
from planq.audit.ops.linear.linear_mixed.cases import cases, empty_cases

TESTS = FloatLayerTests("linear_mixed", cases(), empty_cases(), planq.Rounding.NEAREST_EVEN)
