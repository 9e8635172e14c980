"""`matmul_int8` for the tests that are generated from the registry."""

from __future__ import annotations

from planq.audit.ops.linear.matmul_int8.cases import cases, empty_cases
from planq.audit.ops.linear.products import ProductTests

TESTS = ProductTests("matmul_int8", cases(), empty_cases())
