"""A norm and a gate in Triton, with the codes of their tokens in the same kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from harness.core.workload import Operands
from harness.peers.layer_peers import LIMITS

GATE_BLOCK = 2048


@triton.jit
def store_row(
    y, output, scale, row, place, inside, limit: tl.constexpr, integer: tl.constexpr
):  # fmt: skip
    if limit > 0:
        largest = tl.max(tl.abs(y), 0)
        tl.store(scale + row, largest / limit)
        y = y * (limit / tl.maximum(largest, 1e-30))
        if integer:
            y = (y + 12582912.0) - 12582912.0  # to the nearest integer
    tl.store(output + place, y.to(output.dtype.element_ty), mask=inside)


@triton.jit
def norm_rows(
    x, residual, weight, output, scale, eps,
    width: tl.constexpr, block: tl.constexpr, adds: tl.constexpr,
    limit: tl.constexpr, integer: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < width
    place = row * width + column
    y = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if adds:
        y += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual + place, y.to(residual.dtype.element_ty), mask=inside)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    y = y * tl.rsqrt(tl.sum(y * y, 0) / width + eps) * w
    store_row(y, output, scale, row, place, inside, limit, integer)


@triton.jit
def gate_rows(
    x, output, scale,
    width: tl.constexpr, block: tl.constexpr, limit: tl.constexpr, integer: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    first = x + row * (2 * width) + column
    gate = tl.load(first, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(first + width, mask=inside, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    store_row(y, output, scale, row, row * width + column, inside, limit, integer)


def of_triton(desc: Any, code: str) -> Callable[[Operands], tuple[torch.Tensor, ...]]:
    """A norm, or SiLU of the first half times the second, of this type; of codes with scales."""
    columns = desc.shape[-1]
    codes = {"limit": LIMITS.get(code, 0.0), "integer": code == "int8"}
    row = triton.next_power_of_2(columns)

    def results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = x.new_empty((*x.shape[:-1], columns), dtype=getattr(torch, code))
        return made, x.new_empty(x.shape[:-1], dtype=torch.float32)

    def norm(given: Operands) -> tuple[torch.Tensor, ...]:
        x, residual = given["input"], given.get("residual")
        made, scale = results(x)
        norm_rows[(scale.numel(),)](
            x, x if residual is None else residual, given["weight"], made, scale, given["eps"],
            width=columns, block=row, adds=residual is not None, **codes,
            num_warps=min(16, max(4, row // 512)),
        )  # fmt: skip
        return made, scale

    def gate(given: Operands) -> tuple[torch.Tensor, ...]:
        x = given["input"]
        made, scale = results(x)
        block = row if code in LIMITS else min(row, GATE_BLOCK)
        gate_rows[(scale.numel(), triton.cdiv(columns, block))](
            x, made, scale, width=columns, block=block, **codes,
            num_warps=min(16, max(4, block // 512)),
        )  # fmt: skip
        return made, scale

    return norm if desc.operator == "rms_norm" else gate
