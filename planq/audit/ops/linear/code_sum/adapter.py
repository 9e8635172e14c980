"""`code_sum` for the tests that are generated from the registry."""

from __future__ import annotations

from planq.audit.ops.linear.code_sum.cases import cases, empty_cases
from planq.audit.ops.linear.products import ProductTests

TESTS = ProductTests("code_sum", cases(), empty_cases())
