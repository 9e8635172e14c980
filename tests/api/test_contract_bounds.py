"""A kernel below BIT_EXACT, on an operator of three shapes: what it promises, and that it holds."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.reference.formats import Array

MATMUL: Any = importlib.import_module("operators.matmul3")
Pref = planq.PlanPreference
BY_FOURS, IN_ORDER = "matmul3/host/by_fours", "matmul3/host/in_order"


def make_descriptor(m: Any, n: int, k: int) -> Any:
    """The product of (m, k) and (n, k)."""
    return MATMUL.Matmul3Descriptor(a_shape=(m, k), b_shape=(n, k), output_shape=(m, n))


def inputs(m: int, n: int, k: int) -> tuple[Array, Array]:
    """Numbers of many magnitudes, so that the order of a sum matters."""
    rng = np.random.default_rng(m + 100 * n + 10000 * k)
    a, b = (rng.standard_normal((rows, k)) * 2.0 ** rng.integers(-9, 9, k) for rows in (m, n))
    return a.astype(np.float32), b.astype(np.float32)


def product(a: Array, b: Array, **pref: Any) -> tuple[Array, planq.PrecisionGuarantee]:
    """A run, and what its plan promised."""
    desc = make_descriptor(len(a), len(b), a.shape[1])
    plan = planq.Plan.select(planq.HOST, desc, Pref(**pref))
    output = np.full((len(a), len(b)), np.nan, np.float32)
    plan.run(planq.HOST, None, MATMUL.Matmul3Args(a=a, b=b, output=output))
    return output, plan.precision_guarantee()


def in_order(x: Array, y: Array) -> np.float32:
    """One float32 sum of float32 products."""
    total = np.float32(0)
    for left, right in zip(x, y, strict=True):
        total += left * right
    return total


@pytest.mark.parametrize("k", [0, 1, 2, 5, 64, 1000])
def test_the_error_is_within_the_bound(k: int) -> None:
    """The sum is exact in rational numbers; the bound is that of this plan's K terms."""
    a, b = inputs(3, 4, k)
    output, promise = product(a, b)
    bound = promise.error_bound
    assert bound is not None
    assert (bound.terms, bound.epsilon, bound.output_rounding) == (k, 2.0**-23, False)
    assert bound.relative == (bound.constant + bound.per_term * k) * bound.epsilon
    for (row, column), got in np.ndenumerate(output):
        terms = [
            Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[row], b[column], strict=True)
        ]
        error = abs(Fraction(float(got)) - sum(terms))
        assert error <= Fraction(bound.relative) * sum(abs(term) for term in terms)


def test_the_exact_kernel_has_the_bits_of_its_order_and_the_other_has_not() -> None:
    """Otherwise nothing here would tell them apart."""
    a, b = inputs(3, 4, 1000)
    expected = np.array([[in_order(x, y) for y in b] for x in a])
    exact, promise = product(a, b, sku=IN_ORDER)
    assert (exact == expected).all()
    assert (promise.max_ulp, promise.error_bound) == (0, None)
    assert (product(a, b)[0] != expected).any()


@pytest.mark.parametrize(
    ("pref", "sku"),
    [
        ({}, BY_FOURS),
        ({"determinism": planq.Determinism.RUN_TO_RUN}, BY_FOURS),
        ({"determinism": planq.Determinism.GPU_TO_GPU}, IN_ORDER),
        ({"determinism": planq.Determinism.BIT_EXACT}, IN_ORDER),
        ({"max_ulp": 1000}, IN_ORDER),
        ({"max_ulp": 0}, IN_ORDER),
        ({"batch_invariant": True}, BY_FOURS),
    ],
)
def test_preferences_filter_what_has_a_bound_alone(pref: dict[str, Any], sku: str) -> None:
    """A bound is no number of ulp, however large."""
    plan = planq.Plan.select(planq.HOST, make_descriptor(3, 4, 5), Pref(**pref))
    assert plan.sku == sku


def test_a_refused_pin_says_what_is_missing() -> None:
    """In the words of the preference."""
    desc = make_descriptor(3, 4, 5)
    with pytest.raises(planq.NoKernelError, match="guarantees no error of at most 7 ulp"):
        planq.Plan.select(planq.HOST, desc, Pref(sku=BY_FOURS, max_ulp=7))
    with pytest.raises(planq.NoKernelError, match="guarantees run_to_run, the preference asks for"):
        planq.Plan.select(
            planq.HOST, desc, Pref(sku=BY_FOURS, determinism=planq.Determinism.BIT_EXACT)
        )


def test_a_stored_plan_holds_the_bound() -> None:
    """With its terms, so that one of another number of terms is another promise."""
    plan = planq.Plan.select(planq.HOST, make_descriptor(3, 4, 5))
    stored = json.loads(plan.to_json())
    assert stored["guarantee"]["error_bound"] == {
        "constant": 0.0,
        "per_term": 0.5,
        "terms": 5,
        "epsilon": 2.0**-23,
        "least_factor": 0.0,
        "output_rounding": False,
    }
    promise = planq.PrecisionGuarantee.from_dict(stored["guarantee"])
    assert promise == plan.precision_guarantee()
    copy = planq.Plan.from_json(planq.HOST, plan.to_json())
    assert copy.precision_guarantee() == promise
    stored["guarantee"]["error_bound"]["terms"] = 6
    with pytest.raises(planq.PlanMismatchError, match="guarantee"):
        planq.Plan.from_json(planq.HOST, json.dumps(stored))


def test_without_a_descriptor_nobody_knows_the_terms() -> None:
    """In lists of kernels there are the coefficients."""
    info = {operator.name: operator for operator in planq.operators()}["matmul3"]
    bounds = {kernel.sku: kernel.guarantee.error_bound for kernel in info.kernels}
    bound = bounds[BY_FOURS]
    assert bound is not None
    assert (bound.terms, bound.per_term) == (None, 0.5)
    with pytest.raises(ValueError, match="ask a plan"):
        _ = bound.relative
    assert math.isclose(dataclasses.replace(bound, terms=2).relative, 2.0**-23)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"b_shape": (4, 6)}, "b_shape"),
        ({"output_shape": (4, 3)}, "output_shape"),
        ({"output_shape": (3,)}, "output_shape"),
        ({"a_shape": (3, 5, 1)}, "a_shape"),
        ({"a_shape": (planq.Dim("m", 7), 5)}, "output_shape"),
        ({"b_shape": (planq.Dim("m", 3), 5), "output_shape": (3, 3)}, "output_shape"),
    ],
    ids=str,
)
def test_shapes_have_to_go_together(change: dict[str, Any], field: str) -> None:
    """The field that does not is named."""
    shapes = {"a_shape": (planq.Dim("m", 3), 5), "b_shape": (4, 5)}
    shapes["output_shape"] = (planq.Dim("m", 3), 4)
    with pytest.raises(planq.DescriptorError) as caught:
        MATMUL.Matmul3Descriptor(**{**shapes, **change})
    assert caught.value.field == field


@pytest.mark.parametrize("part", ["s8", "f16", "bf16", "e4m3", "e5m2"])
def test_math_on_tensor_cores_has_a_name(part: str) -> None:
    """The native half and Python name the same; a stored promise reads back."""
    member = planq.MathPrecision(f"tensor_core_{part}")
    assert member is planq.MathPrecision[f"TENSOR_CORE_{part.upper()}"]
    promise = planq.Plan.select(planq.HOST, make_descriptor(3, 4, 5)).precision_guarantee()
    stored = dataclasses.replace(promise, math=member).to_dict()
    assert stored["math"] == f"tensor_core_{part}"
    assert planq.PrecisionGuarantee.from_dict(stored).math is member
