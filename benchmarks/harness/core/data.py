"""What the operands of a case hold: normal values, codes of such values, fitting parameters."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

import planq
from harness.formulas.codebook import codes_of_normal, given_values

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
    "tensor_scale",
    "input_zero_point",
    "weight_zero_point",
    "input_sum",
    "weight_sum",
    "index",
    "count",
    "outlier",
    "row_index",
    "column_index",
    "value",
    "stats",
    "parameters",
    "minimum",
    "expert_index",
    "destination",
    "expert_offset",
    "cos_sin",
    "position",
    "query_weight",
    "key_weight",
    "key_scale",
    "value_scale",
    "slot",
    "query_start",
    "key_length",
    "block_table",
    "sink",
    *("seed", "temperature", "top_k", "top_p", "min_p"),
)
# The scalars of an optimizer's step.
SCALARS: Final = {
    "lr": 1e-3,
    "beta1": 0.9,
    "beta2": 0.999,
    "beta3": 0.9999,
    "alpha": 5.0,
    "eps": 1e-8,
    "weight_decay": 0.01,
    "gradient_scale": 1.0,
    "max_unorm": 0.02,
    "step": 100,
}
_NUMBERS: Final = {"seed": 20240229, "offset": 4096, **SCALARS}

_CODES: Final = {  # mean and deviation of codes, and the range that holds them
    "int8": (0.0, 40.0, -127.0, 127.0),
    "uint8": (128.0, 40.0, 0.0, 255.0),
    "int32": (0.0, 20000.0, -(2.0**20), 2.0**20),
    "float8_e4m3fn": (0.0, 100.0, -448.0, 448.0),
    "float8_e5m2": (0.0, 100.0, -448.0, 448.0),
}
_RANGE: Final = 6.0  # standard deviations that the codes of a segment span: a few are clamped


def has_blocks(desc: Any) -> bool:
    """Whether bytes of a descriptor's operands are blocks of GGUF files."""
    return isinstance(getattr(desc, "type", None), planq.GgufType)


def number(spec: planq.OperandSpec) -> float:
    """What an operand that is one number is given."""
    return _NUMBERS.get(spec.name, 0.75 if spec.dtype is planq.DType.FLOAT64 else 1)


def fill_elements(values: torch.Tensor, dtype: str, source: Any = None) -> None:
    """Fills storage of a logical type with normal values, or with codes of such values.

    Args:
        values: The storage.
        dtype: The logical type.
        source: The descriptor of a codebook operator, whose codes they are, or of blocks.
    """
    if has_blocks(source):
        values.random_(0, 0x3C)  # so that every float16 number in them is finite
    elif source is not None:
        values.copy_(codes_of_normal(source, values.device))
    elif values.is_floating_point():
        values.normal_()
    elif dtype in ("int4", "uint4", "float4_e2m1fn"):
        values.random_(0, 256)
    else:
        mean, deviation, low, high = _CODES[dtype]
        drawn = torch.empty(values.shape, device=values.device).normal_(mean, deviation)
        drawn.clamp_(low, high)
        codes = drawn.to(getattr(torch, dtype)) if dtype.startswith("float8") else drawn.round_()
        values.copy_(codes.view(torch.uint8) if dtype.startswith("float8") else codes)


def _of_list(name: str, desc: Any, device: torch.device) -> torch.Tensor:
    """A full list with equally many entries in every row, at columns far from each other."""
    if name == "count":
        return torch.tensor([desc.capacity], device=device)
    each = -(-desc.capacity // math.prod(desc.shape[:-1]))
    places = torch.arange(desc.capacity, device=device)
    if name == "row_index":
        return places // each
    return places % each * (desc.shape[-1] // each)


def _of_router(name: str, desc: Any, values: torch.Tensor) -> torch.Tensor:
    """Other experts for every rank of a token, a row of its own for each pair, or equal shares."""
    if name == "expert_offset":
        experts, rows = len(values) - 1, desc.input_shape[0]
        return torch.arange(experts + 1, device=values.device) * rows // experts
    if name == "destination":
        return torch.randperm(values.numel(), device=values.device).view_as(values)
    tokens, top_k = values.shape
    drawn = torch.rand(tokens, desc.experts, device=values.device)
    return drawn.argsort(1)[:, torch.arange(top_k, device=values.device) % desc.experts]


def _of_positions(name: str, desc: Any, values: torch.Tensor) -> torch.Tensor:
    """A table of angles, positions in it, or other slots for all tokens, in no order."""
    if name == "cos_sin":
        angles = torch.empty(len(values), values.shape[1] // 2, device=values.device).uniform_(0, 7)
        return torch.cat([angles.cos(), angles.sin()], 1)
    if name == "position":
        return torch.randint_like(values, getattr(desc, "max_position", 2**40))
    return torch.randperm(desc.pages * desc.page_size, device=values.device)[: len(values)]


def _of_sequences(name: str, desc: Any, values: torch.Tensor) -> torch.Tensor:
    """Sequences with equally many tokens and as many keys as there may be, in pages in no order."""
    if name == "query_start":
        places = torch.arange(len(values), device=values.device)
        return places * desc.query_shape[0] // desc.batch
    if name == "key_length":
        return torch.full_like(values, desc.max_key)
    places = torch.randperm(desc.pages, device=values.device)
    return places[torch.arange(values.numel(), device=values.device) % desc.pages].view_as(values)


def _of_draws(name: str, desc: Any, values: torch.Tensor) -> torch.Tensor:
    """What tokens are usually drawn by, where normal logits stand for wider ones."""
    if name == "seed":
        return torch.randint_like(values, 2**40)
    usual = {"temperature": 0.25, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
    return torch.full_like(values, usual[name])


_OF_TOKENS: Final = {
    **dict.fromkeys(("expert_index", "destination", "expert_offset"), _of_router),
    **dict.fromkeys(("cos_sin", "position", "slot"), _of_positions),
    **dict.fromkeys(("query_start", "key_length", "block_table"), _of_sequences),
    **dict.fromkeys(("seed", "temperature", "top_k", "top_p", "min_p"), _of_draws),
}


_SCALES: Final = (
    *("scale", "column_scale", "input_scale", "weight_scale", "key_scale", "value_scale"),
)


def fill_parameter(values: torch.Tensor, name: str, desc: Any) -> None:
    """Fills a parameter so that normal elements take all the codes there are, and some too few."""
    bounds: Any = getattr(desc, "q_min", None), getattr(desc, "q_max", None)
    drawn = torch.empty(values.shape, device=values.device).uniform_(0.9, 1.1)
    if name == "weight_scale" and values.dtype is torch.uint8:  # powers of two, or e4m3 codes
        values.random_(112, 126)
    elif name == "weight_zero_point" and hasattr(desc, "code_dtype"):
        values.random_(4, 12)
    elif name in _SCALES:
        values.copy_(drawn * (1 / 32 if None in bounds else _RANGE / (bounds[1] - bounds[0])))
    elif name in ("input_zero_point", "weight_zero_point"):
        kind = getattr(desc, name.replace("zero_point", "dtype")).value
        values.copy_((drawn * 200 - 200).round_() + _CODES[kind][0])
    elif name == "zero_point":
        middle = _CODES[desc.input_dtype.value][0] if None in bounds else (sum(bounds) + 1) // 2
        values.copy_((drawn * 10 - 10).round_() + middle)
    elif name in ("codebook", "nested_codebook"):
        values.copy_(given_values(len(values)))
    elif name in ("row_index", "column_index", "count"):
        values.copy_(_of_list(name, desc, values.device))
    elif name in _OF_TOKENS:
        values.copy_(_OF_TOKENS[name](name, desc, values))
    elif name == "index" and hasattr(desc, "table_rows"):  # all rows in turn, in no order
        places = torch.randperm(values.numel(), device=values.device)
        values.copy_((places % desc.table_rows).view_as(values))
    elif name == "index":  # columns spread over the matrix
        last = getattr(desc, "input_shape", getattr(desc, "shape", ()))[-1] - 1
        values.copy_(torch.linspace(0, last, len(values)).round_())
    elif name == "absmax" and values.dtype is torch.uint8:
        fill_elements(values, "uint8")
    else:
        values.copy_(drawn)


def fill_state(values: torch.Tensor, name: str) -> None:
    """Fills what is updated in place: parameters as normal, states without a sign."""
    if values.dtype is torch.uint8:
        values.random_(0, 256)
    elif name.startswith("absmax") or name == "history":
        values.uniform_(0.9, 1.1)
    else:
        values.normal_()
        if name.startswith("state"):
            values.square_()
