"""Whether what a kernel wrote is what it promises: bits, an error in ulp, or a bound of sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

import planq
from planq.audit.reference.formats import Array


@dataclass(frozen=True)
class Sums:
    """Outputs that are sums of products.

    Attributes:
        exact: The sums, in float64.
        magnitude: The sums of the absolute values of the products whose factors are finite; from
            2^127 on nothing is promised.
    """

    exact: Array
    magnitude: Array


class SumsCase(Protocol):
    """A case of kernels that promise a bound."""

    def sums(self, given: dict[str, Array], least: float) -> dict[str, Sums]:
        """The outputs that are sums, by operand name; the others are held to their bits.

        In magnitudes, smaller factors count as the least one.
        """


LARGEST_SUM = 2.0**127
# Fails unless what an output (by name) holds is near enough to the reference's.
Judge = Callable[[str, Array, Array], None]


def ulp_apart(got: Array, wanted: Array) -> Array:
    """How many numbers of the type one is from the other; those of one value are none apart."""
    signed = np.dtype(f"int{8 * got.itemsize}")

    def place(values: Array) -> Array:
        bits = values.view(signed).astype(object)
        return np.where(values.view(signed) < 0, -(bits & np.iinfo(signed).max), bits)

    apart: Array = np.abs(place(got) - place(wanted))
    return np.where(np.isnan(got) & np.isnan(wanted), 0, apart)


def within_ulp(most: int) -> Judge:
    """Of floating-point outputs; others have no ulp, and are held to their bits."""

    def judge(what: str, got: Array, wanted: Array) -> None:
        assert np.issubdtype(got.dtype, np.floating), f"{what}: {got.dtype} has no ulp"
        farthest = max(ulp_apart(got, wanted).ravel(), default=0)
        assert farthest <= most, f"{what}: {farthest} ulp, promised are {most}"

    return judge


def within_bound(bound: planq.ErrorBound, sums: dict[str, Sums]) -> Judge:
    """Of outputs that are sums; others are held to their bits."""

    def judge(what: str, got: Array, wanted: Array) -> None:
        name = what.rpartition(" ")[2]
        if name not in sums:
            assert got.tobytes() == wanted.tobytes(), f"{what} differs"
            return
        exact, magnitude = sums[name].exact, sums[name].magnitude
        allowed = bound.relative * magnitude
        if bound.output_rounding:
            allowed = allowed + half_a_step(got)
        with np.errstate(invalid="ignore"):
            error = np.abs(got.astype(np.float64) - exact)
            near = (error <= allowed) | is_as_infinite(got, exact, allowed)
        near |= np.isnan(exact) & np.isnan(got)
        near |= ~(magnitude < LARGEST_SUM)
        assert near.all(), f"{what}: beyond the bound by {np.max((error - allowed)[~near])}"

    return judge


def half_a_step(values: Array) -> Array:
    """The most that a rounding to a finite number of its type can have moved it."""
    finite = np.abs(np.where(np.isfinite(values), values, values.dtype.type(0)))
    with np.errstate(over="ignore"):
        last = np.isinf(np.spacing(finite))  # the largest number: the step is that before it
    near = np.where(last, np.nextafter(finite, values.dtype.type(0)), finite)
    steps: Array = np.spacing(near).astype(np.float64) / 2
    return steps


def is_as_infinite(got: Array, exact: Array, allowed: Array) -> Array:
    """Where an infinity stands for one, or for a number that may be beyond the largest."""
    with np.errstate(invalid="ignore", over="ignore"):
        far = (exact + np.copysign(allowed, exact)).astype(got.dtype)
    same: Array = np.isinf(got) & np.isinf(far) & (np.signbit(got) == np.signbit(far))
    return same


def judge_of(plan: planq.Plan, case: object, inputs: dict[str, Array]) -> Judge | None:
    """What a plan's outputs on these inputs are held to; None: the reference's bits."""
    promise = plan.precision_guarantee()
    if promise.max_ulp == 0:
        return None
    if promise.max_ulp is not None:
        return within_ulp(promise.max_ulp)
    assert promise.error_bound is not None, f"{plan.sku} promises nothing of its values"
    sums = getattr(case, "sums", None)
    assert sums is not None, f"the cases of {plan.sku} have no sums to hold its bound to"
    return within_bound(promise.error_bound, sums(inputs, promise.error_bound.least_factor))
