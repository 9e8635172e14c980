"""vLLM's fp8 codes of tokens, by its formula, on rows of every size and hostile values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.affine.dynamic_range_quantize.adapter import quantize
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.ops.affine.dynamic_range_quantize.reference import (
    dynamic_range_quantize as reference,
)
from planq.audit.reference.formats import Array
from support import vllm

F32 = np.float32
DTYPES: dict[str, Any] = {
    "float16": np.dtype("float16"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype("float32"),
}
# Below and above the range of the least scale, 1 / 512; what float32 rounds; the ends of float32.
BOUNDS = (None, 1.0, 0.1, 1200.0, 2.0**-9, 2.0**-10, 1e-45, 3.4e38)
FIELDS: dict[str, Any] = {
    "shape": (4, 64),
    "input_dtype": "float16",
    "output_dtype": "float8_e4m3fn",
    "convention": "vllm",
}


def check(x: Array, dtype: str, scale_ub: float | None, nonfinite: str = "propagate") -> None:
    """The library and the audit's reference have the bits of the formula."""
    problem = Problem(
        x.shape,
        dtype,
        "float8_e4m3fn",
        nonfinite=nonfinite,
        convention="vllm",
        scale_ub=scale_ub,
    )
    wanted = vllm.quantized(x, scale_ub, nonfinite)
    for threads in (1, 2):
        ours = quantize(problem, x, Host(threads))
        assert np.array_equal(ours["output"], wanted["output"])
        assert ours["scale"].tobytes() == wanted["scale"].tobytes()
    made = reference(problem, x)
    assert np.array_equal(made.output, wanted["output"])
    assert made.scale.tobytes() == wanted["scale"].tobytes()


@pytest.mark.parametrize("scale_ub", BOUNDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_have_the_bits_of_the_formula(dtype: str, scale_ub: float | None) -> None:
    """Zeros, subnormals, ties, ranges about the bound and about the least scale, of any length."""
    bound = scale_ub if scale_ub is not None and 1e-4 < scale_ub < 1e4 else 1.0
    for width in (1, 7, 16, 33, 64, 300, 4096, 20011):
        check(vllm.hostile(DTYPES[dtype], width, bound, width), dtype, scale_ub)


@pytest.mark.parametrize("nonfinite", ["propagate", "saturate"])
@pytest.mark.parametrize("scale_ub", [None, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_follows_its_own_field(
    dtype: str, scale_ub: float | None, nonfinite: str
) -> None:
    """The token is lost, or its other elements have the range."""
    for width in (1, 9, 64, 515):
        x = vllm.spoiled(vllm.hostile(DTYPES[dtype], width, 1.0, width), width)
        check(x, dtype, scale_ub, nonfinite)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_16_bit_pattern(dtype: str) -> None:
    """Each finite number beside a bound that most are beyond, and beside none."""
    patterns = np.arange(2**16, dtype=np.uint16)
    if dtype == "float32":
        x = (patterns.astype(np.uint32) << 16 | 0x1234).view(F32)
    else:
        x = patterns.view(DTYPES[dtype])
    x = np.where(np.isfinite(x.astype(F32)), x, np.zeros_like(x)).reshape(256, 256)
    for scale_ub in (None, 1.0, 1e-30):
        check(x, dtype, scale_ub)


def test_a_bound_is_rounded_to_float32_once() -> None:
    """Ranges at the bound, and next to it on both sides."""
    for bound in (0.1, 1 / 3, 1200.7, 2.0**-126, 1.0000000001):
        near = F32(bound)
        peaks = [np.nextafter(near, F32(0)), near, np.nextafter(near, F32(np.inf))]
        x = np.outer(np.array(peaks, F32), np.array([1, 0.5, -0.25, 0.1], F32))
        check(x, "float32", bound)
    scale = quantize(
        Problem((1, 1), "float32", "float8_e4m3fn", convention="vllm", scale_ub=0.1),
        np.ones((1, 1), F32),
    )["scale"]
    assert scale.tolist() == [F32(0.1) / F32(448)]


def test_a_quotient_that_overflows_saturates() -> None:
    """Beside elements whose quotients are codes, in the rows of vector loops, too."""
    for width in (2, 64, 4099):
        x = np.full((3, width), 0.5, F32)
        x[0, 0], x[1, 1], x[2, :2] = 3.4e38, -3.4e38, (3.4e38, -1e33)
        check(x, "float32", 1.0)
        check(x, "float32", 2.0**-12)


def test_zeros_have_the_least_scale() -> None:
    """Where planq's own convention has 1; a sign of zero stays."""
    x = np.array([[0.0, -0.0]], F32)
    made = quantize(Problem(x.shape, "float32", "float8_e4m3fn", convention="vllm"), x)
    assert made["scale"].tolist() == [F32(1) / F32(448 * 512)]
    assert made["output"].tolist() == [[0, 0x80]]


def test_fields_that_follow() -> None:
    """What the convention fixes is filled in, and a bound goes through JSON."""
    desc = planq.DynamicRangeQuantizeDescriptor(**FIELDS)
    assert (desc.q_min, desc.q_max, desc.scale_dtype) == (-448, 448, planq.DType.FLOAT32)
    assert (desc.quotient, desc.scale_ub) == (planq.Quotient.DIVIDE, None)
    bounded = planq.DynamicRangeQuantizeDescriptor(**FIELDS, scale_ub=1200)
    assert planq.Descriptor.from_json(bounded.to_json()) == bounded != desc
    assert bounded.scale_ub == 1200


REFUSED: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("scope", {"scope": scope}) for scope in (planq.Scope.tensor(), planq.Scope.channel(0))),
    *(("scope", {"scope": scope}) for scope in (planq.Scope.group(32), planq.Scope.block(2, 8))),
    ("input_dtype", {"input_dtype": "float64"}),
    *(("output_dtype", {"output_dtype": name}) for name in ("int8", "int4", "float8_e5m2")),
    ("output_dtype", {"output_dtype": "float4_e2m1fn"}),
    ("scale_dtype", {"scale_dtype": "float16"}),
    ("scale_dtype", {"scale_dtype": "float64"}),
    ("mode", {"mode": "asymmetric"}),
    ("quotient", {"quotient": "reciprocal"}),
    ("quotient", {"quotient": "ratio"}),
    ("q_min", {"q_min": 0}),
    ("q_max", {"q_max": 240}),
    *(("scale_ub", {"scale_ub": value}) for value in (0, -0.0, -1.0, float("inf"), 1e39, 1e-46)),
    ("scale_ub", {"scale_ub": "1"}),
    *(
        ("scale_ub", {"scale_ub": 1.0, "convention": name})
        for name in ("planq", "compressed_tensors")
    ),
)


@pytest.mark.parametrize(("field", "changes"), REFUSED)
def test_what_is_refused(field: str, changes: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.DynamicRangeQuantizeDescriptor(**FIELDS | changes)
    assert caught.value.field == field


def test_formats_of_groups_have_no_bound() -> None:
    """Their scales have limits of their own."""
    fields = FIELDS | {"convention": "mx", "scope": planq.Scope.group(32), "scale_ub": 1.0}
    with pytest.raises(planq.DescriptorError, match="goes with Convention") as caught:
        planq.DynamicRangeQuantizeDescriptor(**fields)
    assert caught.value.field == "scale_ub"
