"""What the operands of a case hold: normal values, codes of such values, fitting parameters."""

from __future__ import annotations

from typing import Any, Final

import torch

import planq
from harness.codebook import codes_of_normal, given_values

# What a plan reads beside its elements.
PARAMETERS: Final = (
    "scale",
    "zero_point",
    "column_scale",
    "bias",
    "previous_absmax",
    "previous_minimum",
    "previous_maximum",
    "absmax",
    "codebook",
    "nested_absmax",
    "nested_offset",
    "nested_codebook",
    "input_scale",
    "weight_scale",
    "input_zero_point",
    "weight_zero_point",
    "input_sum",
    "weight_sum",
    "residual",
)
_NUMBERS: Final = {"seed": 20240229, "offset": 4096}

_CODES: Final = {  # mean and deviation of codes, and the range that holds them
    "int8": (0.0, 40.0, -127.0, 127.0),
    "uint8": (128.0, 40.0, 0.0, 255.0),
    "int32": (0.0, 20000.0, -(2.0**20), 2.0**20),
    "float8_e4m3fn": (0.0, 100.0, -448.0, 448.0),
    "float8_e5m2": (0.0, 100.0, -448.0, 448.0),
}
_RANGE: Final = 6.0  # standard deviations that the codes of a segment span: a few are clamped


def number(spec: planq.OperandSpec) -> float:
    """What an operand that is one number is given."""
    return _NUMBERS.get(spec.name, 0.75 if spec.dtype is planq.DType.FLOAT64 else 1)


def fill_elements(values: torch.Tensor, dtype: str, source: Any = None) -> None:
    """Fills storage of a logical type with normal values, or with codes of such values.

    Args:
        values: The storage.
        dtype: The logical type.
        source: The descriptor of a codebook operator, whose codes they are.
    """
    if source is not None:
        values.copy_(codes_of_normal(source, values.device))
    elif values.is_floating_point():
        values.normal_()
    elif dtype in ("int4", "uint4"):
        values.random_(0, 256)
    else:
        mean, deviation, low, high = _CODES[dtype]
        drawn = torch.empty(values.shape, device=values.device).normal_(mean, deviation)
        drawn.clamp_(low, high)
        codes = drawn.to(getattr(torch, dtype)) if dtype.startswith("float8") else drawn.round_()
        values.copy_(codes.view(torch.uint8) if dtype.startswith("float8") else codes)


def fill_parameter(values: torch.Tensor, name: str, desc: Any) -> None:
    """Fills a parameter so that normal elements take all the codes there are, and some too few."""
    bounds: Any = getattr(desc, "q_min", None), getattr(desc, "q_max", None)
    drawn = torch.empty(values.shape, device=values.device).uniform_(0.9, 1.1)
    if name in ("scale", "column_scale", "input_scale", "weight_scale"):
        values.copy_(drawn * (1 / 32 if None in bounds else _RANGE / (bounds[1] - bounds[0])))
    elif name in ("input_zero_point", "weight_zero_point"):
        codes = getattr(desc, f"{name.split('_')[0]}_dtype").value
        values.copy_((drawn * 10 - 10).round_() + _CODES[codes][0])
    elif name in ("input_sum", "weight_sum"):  # any will do: they are operands
        fill_elements(values, "int32")
    elif name == "zero_point":
        middle = _CODES[desc.input_dtype.value][0] if None in bounds else (sum(bounds) + 1) // 2
        values.copy_((drawn * 10 - 10).round_() + middle)
    elif name in ("codebook", "nested_codebook"):
        values.copy_(given_values(len(values)))
    elif name == "absmax" and values.dtype is torch.uint8:
        fill_elements(values, "uint8")
    else:
        values.copy_(drawn)
