"""`linear_w8a8_dynamic` for the tests that are generated from the registry."""

from __future__ import annotations

import planq
from planq.audit.ops.linear.linear_w8a8_dynamic.cases import cases, empty_cases
from planq.audit.ops.linear.products import ProductTests

TESTS = ProductTests("linear_w8a8_dynamic", cases(), empty_cases(), planq.Rounding.NEAREST_EVEN)
