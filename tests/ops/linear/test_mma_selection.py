"""Floating products on any GPU's tensor cores: who gets these kernels, and what they promise."""

from __future__ import annotations

from typing import Any

import pytest

import planq
from planq.audit.operators import name_of

EXACT = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT)
LOOSEST = planq.PlanPreference(determinism=planq.Determinism.NOT_GUARANTEED)
HAS_CUDA = planq.build_info().cuda
OTHERS = (80, 86, 89, 100, 120)

MATMUL: dict[str, Any] = {"input_shape": (300, 520), "weight_shape": (64, 520)}
LAYERS: dict[str, planq.Descriptor] = {
    "matmul/cuda/mma/bf16": planq.MatmulDescriptor(**MATMUL, input_dtype="bfloat16"),
    "matmul/cuda/mma/f16": planq.MatmulDescriptor(
        **{**MATMUL, "weight_shape": (520, 64)}, input_dtype="float16", transpose_weight=True
    ),
    "linear_4bit/cuda/mma/bf16": planq.Linear4BitDescriptor(
        **MATMUL, input_dtype="bfloat16", block_size=64, accumulation="tensor_sm90"
    ),
    "linear_mixed/cuda/mma/f16": planq.LinearMixedDescriptor(
        **MATMUL, input_dtype="float16", accumulation="tensor_sm90"
    ),
    "linear_4bit/cuda/groups_mma/f16": planq.Linear4BitDescriptor(
        **MATMUL, input_dtype="float16", weight_scope=planq.Scope.group(16), code_dtype="int4"
    ),
    "linear_mixed/cuda/groups_mma/bf16": planq.LinearMixedDescriptor(
        input_shape=(3, 521), weight_shape=(64, 521), input_dtype="bfloat16"
    ),
    "linear_fp8/cuda/mma/e4m3": planq.LinearFp8Descriptor(**MATMUL, output_dtype="bfloat16"),
    "linear_fp8/cuda/mma/e5m2": planq.LinearFp8Descriptor(
        **MATMUL,
        input_dtype="float8_e5m2",
        output_dtype="float32",
        input_scope=planq.Scope.group(128),
        weight_scope=planq.Scope.block(128, 128),
    ),
}


def exact_of(sku: str) -> str:
    """The SKU of the bits of the model."""
    return sku.replace("/groups_mma/", "/groups_sm90/").replace("/mma/", "/tensor_sm90/")


def gpu(arch: int) -> planq.DeviceFacts:
    """One that need not be there."""
    return planq.DeviceFacts(
        name="a GPU",
        arch=arch,
        multiprocessors=108,
        shared_memory_per_block=101376,
        l2_bytes=40 << 20,
    )


def chosen(desc: planq.Descriptor, arch: int, pref: planq.PlanPreference) -> str | None:
    """The kernel; None where no kernel is left, as in a build without CUDA."""
    found = planq.explain(desc, pref, device=gpu(arch)).chosen
    assert HAS_CUDA or found is None
    return found and name_of(found)


def expected(name: str) -> str | None:
    """What a build with CUDA answers."""
    return name if HAS_CUDA else None


@pytest.mark.parametrize("sku", LAYERS)
@pytest.mark.parametrize("arch", OTHERS)
def test_other_gpus_have_it_unless_bits_are_asked_for(sku: str, arch: int) -> None:
    """A preference for the bits of every machine has those, an output at a time."""
    for pref in (planq.PlanPreference(), LOOSEST, planq.PlanPreference(sku=sku)):
        assert chosen(LAYERS[sku], arch, pref) == expected(f"{sku}:mma"), pref
    model = expected(f"{exact_of(sku)}:outputs")
    for least in (planq.Determinism.GPU_TO_GPU, planq.Determinism.BIT_EXACT):
        assert chosen(LAYERS[sku], arch, planq.PlanPreference(determinism=least)) == model


@pytest.mark.parametrize("sku", [sku for sku in LAYERS if "/mma/" in sku and "fp8" not in sku])
def test_capability_90_has_its_own_kernels_first(sku: str) -> None:
    """Whatever is asked for: they are faster, and have the bits."""
    wgmma = expected(f"{exact_of(sku)}:wgmma")
    for pref in (planq.PlanPreference(), EXACT, LOOSEST):
        assert chosen(LAYERS[sku], 90, pref) == wgmma


@pytest.mark.parametrize("sku", [sku for sku in LAYERS if "groups" in sku])
def test_capability_90_has_the_bits_of_groups_by_any_body(sku: str) -> None:
    """For any number of terms: the same kernel, with the promise of the model's bits."""
    for pref in (planq.PlanPreference(), EXACT, LOOSEST):
        found = chosen(LAYERS[sku], 90, pref)
        assert found is None or found.startswith(f"{exact_of(sku)}:")
    pin = planq.PlanPreference(sku=exact_of(sku), body="mma")
    assert chosen(LAYERS[sku], 90, pin) == expected(f"{exact_of(sku)}:mma")
    assert [chosen(LAYERS[sku], arch, pin) for arch in OTHERS] == [None] * len(OTHERS)


def test_panels_of_any_number_of_terms_have_room() -> None:
    """Rows of a panel are whole vectors."""
    for terms, row in ((521, 528), (520, 520), (1, 8)):
        desc = planq.LinearMixedDescriptor(
            input_shape=(3, terms), weight_shape=(64, terms), input_dtype="bfloat16"
        )
        candidates = planq.explain(desc, device=gpu(80)).candidates
        found = [c.workspace for c in candidates if "groups_mma" in c.sku and not c.reason]
        assert found == [64 * row * 2] * HAS_CUDA


def test_capability_90_has_it_for_codes_that_its_own_kernels_do_not_read() -> None:
    """Rows of 520 bytes are no vectors, and 8-bit factors have no exact kernel on mma.sync."""
    sku = "linear_fp8/cuda/mma/e4m3"
    assert chosen(LAYERS[sku], 90, planq.PlanPreference()) == expected(f"{sku}:mma")
    model = f"{exact_of(sku)}:outputs"
    assert chosen(LAYERS[sku], 90, EXACT) == expected(model)


@pytest.mark.parametrize("sku", LAYERS)
def test_a_pin_is_no_way_around_a_promise(sku: str) -> None:
    """Asked for more than it guarantees, it is refused by what is missing."""
    for pref, words in (
        (planq.PlanPreference(sku=sku, determinism=planq.Determinism.GPU_TO_GPU), "run_to_run"),
        (planq.PlanPreference(sku=sku, max_ulp=7), "7 ulp"),
    ):
        selection = planq.explain(LAYERS[sku], pref, device=gpu(80))
        assert selection.chosen is None
        reasons = [c.reason for c in selection.candidates if c.sku == sku]
        assert all(words in reason for reason in reasons)
        assert len(reasons) == HAS_CUDA


def test_capability_90_has_its_bits_for_any_product() -> None:
    """Where rows are no vectors, by mma.sync, whose bits there are the model's."""
    fields: Any = {"input_shape": (300, 521), "weight_shape": (64, 521), "input_dtype": "float16"}
    desc = planq.MatmulDescriptor(**fields)
    assert chosen(desc, 90, EXACT) == expected("matmul/cuda/tensor_sm90/f16:mma")
    for arch in OTHERS:
        pin = planq.PlanPreference(sku="matmul/cuda/tensor_sm90/f16", body="mma")
        assert chosen(desc, arch, pin) is None


def promised() -> dict[str, planq.PrecisionGuarantee]:
    """Of the kernels above, as far as this build has them."""
    return {k.sku: k.guarantee for o in planq.operators() for k in o.kernels if k.sku in LAYERS}


def test_every_one_promises_a_bound() -> None:
    """One for all products of an order; least factors are those of the type that is multiplied."""
    found = promised()
    assert set(found) == (set(LAYERS) if HAS_CUDA else set())
    for sku, promise in found.items():
        assert promise.determinism is planq.Determinism.RUN_TO_RUN
        assert promise.batch_invariant
        assert promise.max_ulp is None
        bound = promise.error_bound
        assert bound is not None
        constant = 208 if "groups" in sku else 200
        assert (bound.constant, bound.per_term, bound.epsilon) == (constant, 1 / 256, 2.0**-23)
        assert bound.least_factor == (2.0**-63 if "bf16" in sku else 2.0**-14)
        assert bound.output_rounding


def test_more_terms_than_it_counts_are_refused() -> None:
    """With the number."""
    k = 2**30
    desc = planq.MatmulDescriptor(input_shape=(1, k), weight_shape=(1, k), input_dtype="float16")
    candidates = planq.explain(desc, device=gpu(80)).candidates
    reasons = [c.reason for c in candidates if c.sku == "matmul/cuda/mma/f16"]
    assert reasons == [f"has up to {k - 1} terms, not {k}"] * HAS_CUDA
