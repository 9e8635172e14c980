"""From the reference's plain values of `rms_norm` to the library."""

from __future__ import annotations

from typing import Any

import planq
from planq.audit.ops.norm.adapter import NormTests
from planq.audit.ops.norm.rms_norm.reference import Problem, rms_norm

OTHERS: tuple[dict[str, Any], ...] = (
    {},
    {"weight_offset": 1.0},
    {"round_before_weight": True},
    {"weight_offset": 1.0, "round_before_weight": True},
    {"weight_offset": 0.1},
)
TESTS = NormTests(planq.RmsNormDescriptor, Problem, rms_norm, OTHERS)
