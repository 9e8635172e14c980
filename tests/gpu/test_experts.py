"""Grouped weight-only products: tiles of all experts have the bits of an output at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import planq

DEVICE = "cuda:0"
EXPERTS, MOST_ROWS = 6, 300
KINDS: dict[str, dict[str, Any]] = {
    "int4": {"code_dtype": "int4", "weight_scope": planq.Scope.group(128)},
    "awq": {
        "code_dtype": "uint4",
        "weight_scope": planq.Scope.group(64),
        "weight_mode": "asymmetric",
        "scale_dtype": "float16",
        "zero_point_dtype": "uint8",
    },
    "int8": {"code_dtype": "int8", "weight_scope": planq.Scope.token(), "scale_dtype": "bfloat16"},
    "mxfp4": {
        "code_dtype": "float4_e2m1fn",
        "weight_scope": planq.Scope.group(32),
        "scale_dtype": "float8_e8m0fnu",
    },
    "nvfp4": {
        "code_dtype": "float4_e2m1fn",
        "weight_scope": planq.Scope.group(16),
        "scale_dtype": "float8_e4m3fn",
    },
    "e4m3": {"code_dtype": "float8_e4m3fn", "weight_scope": planq.Scope.token()},
    "nf4": {"block_size": 64, "nibble_order": "high_first"},
    "nested": {"block_size": 64, "nested_block_size": 256, "codebook": "af4"},
    "short": {"block_size": 32, "codebook": "fp4"},
}
# Codes on both sides.
BOTH: dict[str, dict[str, Any]] = {
    "w8a8": {"input_dtype": "int8", "code_dtype": "int8"},
    "rows": {"input_dtype": "float8_e5m2", "code_dtype": "float8_e4m3fn"},
    "tiles": {
        "input_dtype": "float8_e4m3fn",
        "code_dtype": "float8_e4m3fn",
        "input_scope": planq.Scope.group(128),
        "weight_scope": planq.Scope.block(128, 128),
    },
}
OFFSETS = (
    (0, 3, 3, 40, 41, 200, MOST_ROWS),  # an expert without rows, one with several tiles
    (0, 0, 0, 0, 0, 0, MOST_ROWS),
    (7, 8, 9, 10, 11, 12, 13),  # rows of nobody at both ends
    (0, 90, 20, 150, -4, 1000, 2),  # not in order, and outside
    (5, 5, 5, 5, 5, 5, 5),
)


def operands_of(desc: planq.Descriptor) -> dict[str, torch.Tensor]:
    """Any codes, and scales above 0."""
    made = {}
    for name, spec in desc.operands().items():
        dtype = getattr(torch, spec.storage)
        if dtype == torch.float8_e8m0fnu:
            bits = torch.randint(115, 135, spec.extents, device=DEVICE, dtype=torch.uint8)
            made[name] = bits.view(dtype)
        elif dtype == torch.float8_e4m3fn and name != "input":
            bits = torch.randint(0, 126, spec.extents, device=DEVICE, dtype=torch.uint8)
            made[name] = bits.view(dtype)
        elif dtype.is_floating_point:
            value = torch.randn(spec.extents, device=DEVICE)
            made[name] = (value.abs() + 0.1 if "scale" in name else value).to(dtype)
        else:
            high = 128 if dtype == torch.int8 else 256
            made[name] = torch.randint(0, high, spec.extents, device=DEVICE).to(dtype)
    if made["input"].dtype.itemsize == 2:
        made["input"][11, 5] = float("inf")
    return made


def output_of(plan: planq.Plan, given: dict[str, torch.Tensor]) -> tuple[torch.Tensor, str]:
    """The output's bits over what was there before, and the body that made them."""
    output = torch.full_like(given["output"], -7.0)
    workspace = torch.full((max(plan.workspace_size(), 1),), 255, device=DEVICE, dtype=torch.uint8)
    args = planq.GroupedLinearArgs(**{**given, "output": output})
    stream = torch.cuda.current_stream()
    launch = plan.bind(workspace, args)
    launch(stream)
    return output.view(torch.int32), launch.body


def check(desc: planq.Descriptor, body: str) -> None:
    """Of the preferred kernel: the bits of an output at a time for offsets of every kind."""
    given = operands_of(desc)
    stream = torch.cuda.current_stream()
    plans = [
        planq.Plan.select(stream, desc, planq.PlanPreference(body=pinned))
        for pinned in (None, "outputs")
    ]
    for offset in OFFSETS:
        given["expert_offset"] = torch.tensor(offset, device=DEVICE, dtype=torch.int32)
        (found, preferred), (wanted, other) = (output_of(plan, given) for plan in plans)
        assert (preferred, other) == (body, "outputs")
        assert torch.equal(found, wanted), (desc, offset)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_tiles_of_experts_have_the_bits_of_the_model(kind: str, dtype: str) -> None:
    """For offsets of every kind, and few and many rows an expert."""
    rest = 1216 if "block_size" in KINDS[kind] else 1184
    for n, k in ((272, rest), (96, 2048)):
        for rows in (MOST_ROWS, 13):
            desc = planq.GroupedLinearDescriptor(
                input_shape=(rows, k),
                weight_shape=(EXPERTS, n, k),
                input_dtype=dtype,
                output_dtype="float32",
                bias_dtype="float32",
                **KINDS[kind],
            )
            check(desc, "wgmma_tiles")


@pytest.mark.parametrize("kind", BOTH)
def test_codes_on_both_sides_have_the_bits_of_the_model(kind: str) -> None:
    """Tiles that begin at any row, with and without whole blocks of columns and slices of k."""
    for n, k in ((272, 1184), (129, 2048), (384, 512)):
        for rows in (MOST_ROWS, 13):
            desc = planq.GroupedLinearDescriptor(
                input_shape=(rows, k),
                weight_shape=(EXPERTS, n, k),
                output_dtype="float32",
                bias_dtype="float32",
                **BOTH[kind],
            )
            check(desc, "wgmma_tiles")


def test_a_graph_follows_the_offsets() -> None:
    """Captured once, with other experts at each replay."""
    desc = planq.GroupedLinearDescriptor(
        input_shape=(64, 512),
        weight_shape=(EXPERTS, 64, 512),
        input_dtype="bfloat16",
        output_dtype="float32",
        **KINDS["int4"],
    )
    given = operands_of(desc)
    given["expert_offset"] = torch.zeros(EXPERTS + 1, device=DEVICE, dtype=torch.int32)
    plan = planq.Plan.select(torch.cuda.current_stream(), desc)
    workspace = torch.empty(plan.workspace_size(), device=DEVICE, dtype=torch.uint8)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.run(torch.cuda.current_stream(), workspace, planq.GroupedLinearArgs(**given))
    outputs = planq.Plan.select(
        torch.cuda.current_stream(), desc, planq.PlanPreference(body="outputs")
    )
    for offset in ((0, 10, 20, 30, 40, 50, 64), (0, 0, 64, 64, 64, 64, 64)):
        given["expert_offset"].copy_(torch.tensor(offset, dtype=torch.int32))
        graph.replay()
        wanted, _ = output_of(outputs, given)
        assert torch.equal(given["output"].view(torch.int32), wanted)
