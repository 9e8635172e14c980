"""From the reference's plain values of `layer_norm` to the library."""

from __future__ import annotations

from typing import Any

import planq
from planq.audit.ops.norm.adapter import NormTests
from planq.audit.ops.norm.layer_norm.reference import Problem, layer_norm

OTHERS: tuple[dict[str, Any], ...] = (
    {},
    {"bias_dtype": "float32"},
    {"bias_dtype": "bfloat16", "weight_offset": 1.0},
    {"bias_dtype": "float16"},
    {"weight_offset": 0.1},
)
TESTS = NormTests(planq.LayerNormDescriptor, Problem, layer_norm, OTHERS)
