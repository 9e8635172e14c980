"""Floating products on a GPU's own tensor cores: large ones, against sums in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import planq

DEVICE = "cuda:0"
LARGEST_SUM = 2.0**127
# Rows of every tile and beyond; terms of vectors and not; few columns and many.
SHAPES = (
    (1, 4096, 4096),
    (16, 1000, 2049),
    (33, 520, 4096),
    (64, 4096, 1025),
    (129, 257, 8192),
    (1000, 2200, 520),
    (4096, 1408, 393),
)
KINDS = ("normal", "wide", "sparse", "tiny", "cancelling", "bits")
TYPES = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


def stream() -> Any:
    """torch's own."""
    return torch.cuda.current_stream(DEVICE)


def numbers(shape: tuple[int, int], dtype: str, kind: str, seed: int) -> torch.Tensor:
    """Of a kind; `cancelling` are pairs whose products with equal factors nearly cancel."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    if kind == "bits":
        bits = torch.randint(-(2**31), 2**31 - 1, shape, device=DEVICE, generator=generator)
        whole = torch.int16 if dtype in {"bfloat16", "float16"} else torch.int8
        return bits.to(whole).view(getattr(torch, dtype))
    values = torch.randn(shape, device=DEVICE, generator=generator)
    if kind == "wide":
        exponents = torch.randint(-7, 7, shape, device=DEVICE, generator=generator)
        values = torch.ldexp(values, exponents)
    elif kind == "sparse":
        values = values * (torch.rand(shape, device=DEVICE, generator=generator) < 0.1)
    elif kind == "tiny":
        values = values * 2.0**-16
    elif kind == "cancelling":
        half = shape[1] // 2
        values[:, half : 2 * half] = values[:, :half] * (-1 if seed % 2 else 1)
    return values.to(getattr(torch, dtype))


def descriptor(
    types: tuple[str, str], shape: tuple[int, int, int]
) -> tuple[planq.Descriptor, str, dict[str, torch.Tensor]]:
    """A product in float32, the SKU of its kernel, and scales of 1 where it has any."""
    m, n, k = shape
    fields: dict[str, Any] = {"input_shape": (m, k), "weight_shape": (n, k)}
    fields |= {"input_dtype": types[0], "weight_dtype": types[1], "output_dtype": "float32"}
    if "float8" not in types[0]:
        short = {"bfloat16": "bf16", "float16": "f16"}[types[0]]
        return planq.MatmulDescriptor(**fields), f"matmul/cuda/mma/{short}", {}
    short = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}[types[0]]
    scales = {
        "input_scale": torch.ones(m, device=DEVICE),
        "weight_scale": torch.ones(n, device=DEVICE),
    }
    return planq.LinearFp8Descriptor(**fields), f"linear_fp8/cuda/mma/{short}", scales


def magnitudes(values: torch.Tensor, least: float) -> torch.Tensor:
    """Of finite numbers, none below the least."""
    return torch.nan_to_num(values.abs(), nan=0.0, posinf=0.0).clamp(min=least)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
def test_large_products_are_within_the_bound(dtype: str, kind: str) -> None:
    """Ten runs have the same bits. 8-bit codes of one type meet those of the other."""
    types = (dtype, TYPES[5 - TYPES.index(dtype)] if "float8" in dtype else dtype)
    for seed, shape in enumerate(SHAPES):
        m, n, k = shape
        desc, sku, scales = descriptor(types, shape)
        plan = planq.Plan.select(stream(), desc, planq.PlanPreference(sku=sku))
        a, w = (
            numbers((m, k), types[0], kind, 2 * seed),
            numbers((n, k), types[1], kind, 2 * seed + 1),
        )
        output = torch.empty(m, n, device=DEVICE)
        made = planq.MatmulArgs if not scales else planq.LinearFp8Args
        args: Any = made(input=a, weight=w, output=output, **scales)
        plan.run(stream(), None, args)
        first = output.clone()
        for _ in range(10):
            plan.run(stream(), None, args)
            assert torch.equal(output.view(torch.int32), first.view(torch.int32)), shape
        check(plan, first, a.double(), w.double(), shape)


def check(
    plan: planq.Plan,
    found: torch.Tensor,
    a: torch.Tensor,
    w: torch.Tensor,
    shape: tuple[int, int, int],
) -> None:
    """Every output is as near to the exact sum as the plan says, or as infinite."""
    bound = plan.precision_guarantee().error_bound
    assert bound is not None
    assert bound.terms == shape[2]
    exact = a @ w.mT
    magnitude = magnitudes(a, bound.least_factor) @ magnitudes(w, bound.least_factor).mT
    promised = magnitude < LARGEST_SUM
    error = (found.double() - exact).abs()
    near = (error <= (bound.relative + 2.0**-24) * magnitude) | (found.double() == exact)
    near |= found.isnan() & exact.isnan()
    assert bool((near | ~promised).all()), (plan.sku, shape, error.max())


def test_capability_90_has_the_bits_of_the_model() -> None:
    """Where the tensor cores are those that the model describes, both kernels are one."""
    if torch.cuda.get_device_capability(DEVICE) != (9, 0):
        return
    for dtype, short in (("bfloat16", "bf16"), ("float16", "f16")):
        for seed, (m, n, k) in enumerate(SHAPES):
            a, w = numbers((m, k), dtype, "wide", seed), numbers((n, k), dtype, "wide", seed + 1)
            desc, *_ = descriptor((dtype, dtype), (m, n, k))
            found = []
            for arithmetic, body in (
                ("mma", "mma"),
                ("tensor_sm90", "mma"),
                ("tensor_sm90", "outputs"),
            ):
                sku = f"matmul/cuda/{arithmetic}/{short}"
                pref = planq.PlanPreference(sku=sku, body=body)
                output = torch.empty(m, n, device=DEVICE)
                args = planq.MatmulArgs(input=a, weight=w, output=output)
                planq.Plan.select(stream(), desc, pref).run(stream(), None, args)
                found.append(output.view(torch.int32))
            assert torch.equal(found[0], found[1])
            assert torch.equal(found[1], found[2])


# --- GROUPS_SM90 ---------------------------------------------------------------------------------

# Groups of every length of a run and beyond, and rows of every tile; terms of vectors and not.
GROUPS = ((16, SHAPES[0]), (32, SHAPES[2]), (64, SHAPES[4]), (128, SHAPES[5]), (1024, SHAPES[3]))


def grouped(dtype: str, size: int, shape: tuple[int, int, int], seed: int) -> dict[str, Any]:
    """The descriptor of int4 codes in groups, its arguments, and v and s in float64."""
    m, n, k = shape
    desc = planq.Linear4BitDescriptor(
        input_shape=(m, k),
        weight_shape=(n, k),
        input_dtype=dtype,
        output_dtype="float32",
        code_dtype="int4",
        weight_scope=planq.Scope.group(size),
        weight_mode="asymmetric",
    )
    generator = torch.Generator(DEVICE).manual_seed(seed)
    drawn: dict[str, Any] = {"device": DEVICE, "generator": generator}
    weight = torch.randint(0, 256, (n, -(-k // 2)), dtype=torch.uint8, **drawn)
    nibbles = torch.stack([weight >> 4, weight & 15], -1).flatten(-2)[:, :k].to(torch.int32)
    codes = torch.where(nibbles > 7, nibbles - 16, nibbles)
    zero_point = torch.randint(-8, 8, (n, -(-k // size)), dtype=torch.int32, **drawn)
    scale = torch.rand(zero_point.shape, **drawn) + 0.5
    scale = torch.ldexp(scale, torch.randint(-4, 4, scale.shape, **drawn))
    of_term = torch.arange(k, device=DEVICE) // size
    return {
        "desc": desc,
        "args": {
            "input": numbers((m, k), dtype, "wide", seed + 1),
            "weight": weight,
            "weight_scale": scale,
            "weight_zero_point": zero_point,
        },
        "v": (codes - zero_point[:, of_term]).double(),
        "s": scale[:, of_term].double(),
    }


def output_of(made: dict[str, Any], sku: str, body: str) -> tuple[planq.Plan, torch.Tensor]:
    """By one kernel, with a workspace that was full of NaNs."""
    desc = made["desc"]
    plan = planq.Plan.select(stream(), desc, planq.PlanPreference(sku=sku, body=body))
    shape = (desc.input_shape[0], desc.weight_shape[0])
    output = torch.full(shape, 3.0, device=DEVICE)
    room = torch.full((plan.workspace_size(),), 0xFF, dtype=torch.uint8, device=DEVICE)
    args = planq.Linear4BitArgs(output=output, **made["args"])
    plan.run(stream(), room if len(room) else None, args)
    return plan, output


@pytest.mark.parametrize(("dtype", "short"), [("bfloat16", "bf16"), ("float16", "f16")])
def test_large_groups_are_within_the_bound(dtype: str, short: str) -> None:
    """Factors are values before they meet their scales: only these are aligned by exponents."""
    for seed, (size, shape) in enumerate(GROUPS):
        made = grouped(dtype, size, shape, seed)
        plan, found = output_of(made, f"linear_4bit/cuda/groups_mma/{short}", "mma")
        bound = plan.precision_guarantee().error_bound
        assert bound is not None
        a, v, s = made["args"]["input"].double(), made["v"], made["s"]
        magnitude = magnitudes(a, bound.least_factor) @ (magnitudes(v, bound.least_factor) * s).mT
        error = (found.double() - a @ (v * s).mT).abs()
        assert bool((error <= (bound.relative + 2.0**-24) * magnitude).all()), (size, shape)


def test_capability_90_has_the_bits_of_the_model_in_groups() -> None:
    """As one kernel with two promises, and beside the model, an output at a time."""
    if torch.cuda.get_device_capability(DEVICE) != (9, 0):
        return
    for dtype, short in (("bfloat16", "bf16"), ("float16", "f16")):
        for seed, (size, shape) in enumerate(GROUPS):
            made = grouped(dtype, size, shape, seed)
            exact = f"linear_4bit/cuda/groups_sm90/{short}"
            every = (
                (f"linear_4bit/cuda/groups_mma/{short}", "mma"),
                (exact, "mma"),
                (exact, "outputs"),
            )
            bits = [output_of(made, *kernel)[1].view(torch.int32) for kernel in every]
            assert torch.equal(bits[0], bits[1])
            assert torch.equal(bits[1], bits[2]), (size, shape)
