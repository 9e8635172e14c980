"""The arithmetic models that bits are promised by, with their parameters.

References compute by these. docs/tensor-cores.md and docs/numerics have the formulas.
"""

from __future__ import annotations

from typing import Any, Final

from planq.audit.ops.linear import float_sums
from planq.audit.ops.statistics import sums

_FACTORS: Final = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def models() -> dict[str, Any]:
    """Each order of sums by its name, with what decides its bits."""
    return {
        "tensor_sm90": {
            "instructions": {factor: _instruction(factor) for factor in _FACTORS},
            "least_exponent": float_sums.FLOOR,
            "slice_terms": float_sums.SLICE,
        },
        "groups_sm90": {"slice_terms": float_sums.SLICE, "spans": float_sums.SPANS},
        "lanes": {"sums": float_sums.LANES, "neighbours": float_sums.RUN},
        "tree": {"order": "neighbours in pairs, filled with +0", "run": sums.RUN},
    }


def _instruction(factor: str) -> dict[str, int]:
    """What an instruction adds at once, and the fraction bits of addends and of results."""
    core = float_sums.tensor_core(factor)
    return {"group": core.group, "fraction_bits": core.fraction, "result_bits": core.out}
