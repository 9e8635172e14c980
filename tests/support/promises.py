"""Whether what a kernel wrote is what it promises: bits, an error in ulp, or a bound of sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

import planq
from reference.formats import Array


@dataclass(frozen=True)
class Sums:
    """Outputs that are sums of products.

    Attributes:
        exact: The sums, in float64.
        magnitude: The sums of the absolute values of the products.
    """

    exact: Array
    magnitude: Array


class SumsCase(Protocol):
    """A case of kernels that promise a bound."""

    def sums(self, given: dict[str, Array]) -> dict[str, Sums]:
        """The outputs that are sums, by operand name; the others are held to their bits."""


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
        allowed = bound.relative * sums[name].magnitude
        if bound.output_rounding:
            allowed = allowed + np.spacing(np.abs(wanted)).astype(np.float64) / 2
        error = np.abs(got.astype(np.float64) - sums[name].exact)
        assert (error <= allowed).all(), f"{what}: beyond the bound by {np.max(error - allowed)}"

    return judge


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
    return within_bound(promise.error_bound, sums(inputs))
