"""Weight-only products in the order of GROUPS_SM90: every body has the bits of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import planq

DEVICE = "cuda:0"
BODIES = ("wgmma", "few_rows", "wgmma_tiles", "wgmma_panels", "mma")
MOST_ROWS = 200
ROWS = (1, 2, 5, 8, 9, 16, 17, 33, 64, 65, 97, 129, MOST_ROWS)
SHAPES = ((96, 1024), (272, 1184), (80, 2048), (160, 11_008))
"""Columns and terms: spans with and without a rest, half a stage more, and spans of no terms."""

GROUPS: dict[str, dict[str, Any]] = {
    "int4": {"code_dtype": "int4", "weight_scope": planq.Scope.group(128)},
    "uint4_shifted": {
        "code_dtype": "uint4",
        "weight_scope": planq.Scope.group(64),
        "weight_mode": "asymmetric",
    },
    "int4_of_32": {
        "code_dtype": "int4",
        "weight_scope": planq.Scope.group(32),
        "nibble_order": "low_first",
    },
    "uint4_of_256": {
        "code_dtype": "uint4",
        "weight_scope": planq.Scope.group(256),
        "weight_mode": "asymmetric",
        "nibble_order": "low_first",
    },
    "nf4": {"codebook": "nf4", "block_size": 64},
    "fp4_of_32": {"codebook": "fp4", "block_size": 32},
    "given": {"codebook": "given", "block_size": 32},
    "nested": {"codebook": "nf4", "block_size": 64, "nested_block_size": 256},
    "int8": {"code_dtype": "int8", "weight_scope": planq.Scope.channel(0)},
    "int8_shifted": {
        "code_dtype": "int8",
        "weight_scope": planq.Scope.group(128),
        "weight_mode": "asymmetric",
    },
    "mxfp4": {
        "code_dtype": "float4_e2m1fn",
        "weight_scope": planq.Scope.group(32),
        "scale_dtype": "float8_e8m0fnu",
        "nibble_order": "low_first",
    },
    "nvfp4": {
        "code_dtype": "float4_e2m1fn",
        "weight_scope": planq.Scope.group(16),
        "scale_dtype": "float8_e4m3fn",
        "nibble_order": "low_first",
    },
    "e2m1_of_16": {"code_dtype": "float4_e2m1fn", "weight_scope": planq.Scope.group(16)},
    "gptq": {
        "code_dtype": "uint4",
        "weight_scope": planq.Scope.group(128),
        "weight_mode": "asymmetric",
        "scale_dtype": "float16",
        "zero_point_dtype": "uint8",
        "nibble_order": "low_first",
    },
    "uint4_of_32": {
        "code_dtype": "uint4",
        "weight_scope": planq.Scope.group(32),
        "weight_mode": "asymmetric",
        "zero_point_dtype": "int8",
    },
    "int4_of_64": {
        "code_dtype": "int4",
        "weight_scope": planq.Scope.group(64),
        "scale_dtype": "bfloat16",
    },
    "int4_of_16": {
        "code_dtype": "int4",
        "weight_scope": planq.Scope.group(16),
        "scale_dtype": "bfloat16",
    },
    "fp8": {
        "code_dtype": "float8_e4m3fn",
        "weight_scope": planq.Scope.channel(0),
        "scale_dtype": "bfloat16",
    },
    "fp8_of_128": {"code_dtype": "float8_e5m2", "weight_scope": planq.Scope.group(128)},
    "mxfp8": {
        "code_dtype": "float8_e4m3fn",
        "weight_scope": planq.Scope.group(32),
        "scale_dtype": "float8_e8m0fnu",
    },
    "mxfp8_e5m2": {
        "code_dtype": "float8_e5m2",
        "weight_scope": planq.Scope.group(32),
        "scale_dtype": "float8_e8m0fnu",
    },
    "uint8_shifted": {
        "code_dtype": "uint8",
        "weight_scope": planq.Scope.group(128),
        "weight_mode": "asymmetric",
        "scale_dtype": "float16",
        "zero_point_dtype": "uint8",
    },
    "int8_of_64": {"code_dtype": "int8", "weight_scope": planq.Scope.group(64)},
    "int8_of_32": {"code_dtype": "int8", "weight_scope": planq.Scope.group(32)},
}


def stream() -> Any:
    return torch.cuda.current_stream()


def layer(kind: str, m: int, n: int, k: int, dtype: str) -> planq.Descriptor:
    fields = GROUPS[kind] | {"input_shape": (m, k), "weight_shape": (n, k), "input_dtype": dtype}
    fields |= {"bias_dtype": "float32", "residual_dtype": dtype, "output_dtype": "float32"}
    make = planq.LinearMixedDescriptor if has_bytes(kind) else planq.Linear4BitDescriptor
    return make(**fields)


def has_bytes(kind: str) -> bool:
    """Whether a code is a byte."""
    return GROUPS[kind].get("code_dtype", "uint4") not in ("int4", "uint4", "float4_e2m1fn")


def random_operands(desc: planq.Descriptor) -> dict[str, torch.Tensor]:
    """Any codes; scales above 0; rows of the input that are large, tiny, and not finite."""
    operands = {}
    for name, spec in desc.operands().items():
        dtype = getattr(torch, spec.storage)
        if name == "weight_zero_point":
            low, high = {torch.int8: (-128, 128), torch.uint8: (0, 256)}.get(dtype, (-300, 300))
            value = torch.randint(low, high, spec.extents, device=DEVICE, dtype=dtype)
        elif dtype == torch.float8_e8m0fnu:
            value = torch.randint(115, 135, spec.extents, device=DEVICE, dtype=torch.uint8)
            value = value.view(dtype)
        elif dtype.is_floating_point:
            value = torch.randn(spec.extents, device=DEVICE)
            value = (value.abs() + 0.1 if "scale" in name or "absmax" in name else value).to(dtype)
        else:
            low, high = (0, 256) if dtype == torch.uint8 else (-128, 128)
            value = torch.randint(low, high, spec.extents, device=DEVICE, dtype=dtype)
        operands[name] = value
    if operands["weight"].dtype.is_floating_point and operands["weight"].shape[1] > 9:
        # Codes that are no numbers: of one dtype an infinity, of both NaN.
        operands["weight"].view(torch.uint8)[5, 7:9] = torch.tensor([0x7C, 0x7F], device=DEVICE)
    x = operands["input"]
    x[3 % len(x)] *= 1e4
    x[7 % len(x)] *= 1e-5
    x[11 % len(x), 5] = float("inf")
    x[13 % len(x), 17] = float("nan")
    del operands["output"]
    return operands


def bodies(kind: str, m: int, given: dict[str, torch.Tensor], body: str | None) -> tuple[Any, str]:
    """The outputs as integers, and the body that made them."""
    n, k = given["residual"].shape[1], given["input"].shape[1]
    desc = layer(kind, m, n, k, str(given["input"].dtype).removeprefix("torch."))
    by_row = {name: of[:m] if name in ("input", "residual") else of for name, of in given.items()}
    output = torch.full((m, n), -7.0, device=DEVICE)
    args = type(desc).__name__.replace("Descriptor", "Args")
    plan = planq.Plan.select(stream(), desc, planq.PlanPreference(body=body))
    workspace = torch.empty(max(plan.workspace_size(), 1), device=DEVICE, dtype=torch.uint8)
    launch = plan.bind(workspace, getattr(planq, args)(**by_row, output=output))
    launch(stream())
    return output.view(torch.int32), launch.body


def cases() -> Iterator[Any]:
    for kind, fields in GROUPS.items():
        for n, k in SHAPES:
            if k % fields.get("block_size", 1) == 0:
                yield pytest.param(kind, n, k, id=f"{kind}-{n}x{k}")


def bodies_of(kind: str, k: int) -> set[str]:
    """The bodies that some number of rows has, by what each takes of codes."""
    fields = GROUPS[kind]
    scope = fields.get("weight_scope")
    run = fields.get("block_size") or (min(scope.size, 128) if scope and scope.size else 128)
    found = {"wgmma_panels", "mma"}
    floats = "float" in fields.get("code_dtype", "")
    shortest = 32 if not has_bytes(kind) else 128
    if run >= shortest or (floats and run == (32 if has_bytes(kind) else 16)):
        found.add("few_rows")
        if kind != "given" or k % 128 == 0:
            found.add("wgmma_tiles")
    return found


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("kind", "n", "k"), list(cases()))
def test_every_body_has_the_bits_of_the_model(kind: str, n: int, k: int, dtype: str) -> None:
    """For every number of rows on both sides of each kernel's width; the model is `outputs`."""
    given = random_operands(layer(kind, MOST_ROWS, n, k, dtype))
    wanted, body = bodies(kind, MOST_ROWS, given, "outputs")
    assert body == "outputs"
    ran = set()
    for name in BODIES:
        for m in ROWS:
            found, body = bodies(kind, m, given, name)
            assert torch.equal(found, wanted[:m]), (name, body, m)
            ran.add(body)
    assert ran == bodies_of(kind, k)


# Columns for which heuristics.h takes each width of tiles at some number of rows, and blocks have
# more than one tile.
MANY_COLUMNS = ((8448, 2176), (17000, 1280))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("kind", "n", "k"),
    [
        (kind, n, k)
        for kind in GROUPS
        for n, k in MANY_COLUMNS
        if "wgmma_tiles" in bodies_of(kind, k)
    ],
)
def test_every_width_of_tiles_has_the_bits_of_the_model(
    kind: str, n: int, k: int, dtype: str
) -> None:
    """With several tiles a block and several spans, again and again."""
    given = random_operands(layer(kind, MOST_ROWS, n, k, dtype))
    wanted, _ = bodies(kind, MOST_ROWS, given, "outputs")
    for m in (17, 32, 33, 64, 65, 128, MOST_ROWS):
        for _ in range(3):
            found, body = bodies(kind, m, given, "wgmma_tiles")
            assert body == "wgmma_tiles"
            assert torch.equal(found, wanted[:m]), m
