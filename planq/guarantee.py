"""What a kernel promises about its bits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from planq._core import PlanBase
from planq.dtypes import Determinism, DType, MathPrecision, Rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBound:
    """The error bound of sums that are added in another order than the host backend's.

    ``|y - exact| <= (constant + per_term * terms) * epsilon * sum(|a| |b|)``. With
    ``output_rounding``, the result may be off by one more rounding. In ``sum(|a| |b|)``, a factor
    below ``least_factor``, 0 too, counts as ``least_factor``. What is added to the products, such
    as a bias, counts as a product with 1. Scales multiply the sum as they multiply ``exact``. The
    bound holds only if the sum is smaller than 2^127; larger sums may overflow float32 on the way.

    Attributes:
        constant: Roundings of every sum, in units of ``epsilon``.
        per_term: Roundings that each term adds, in units of ``epsilon``.
        terms: How many terms a sum of this plan has; None without a descriptor, as in a list of
            kernels.
        epsilon: The distance from 1 to the next number of the accumulator.
        least_factor: The least magnitude that a factor counts as; 0 if every factor counts as it
            is. Tensor cores align products by the exponents of their factors, and give a subnormal
            number the exponent of the smallest normal one.
        output_rounding: Whether the result is rounded to a narrower type at the end.
    """

    constant: float
    per_term: float
    terms: int | None
    epsilon: float
    least_factor: float
    output_rounding: bool

    @property
    def relative(self) -> float:
        """The bound as a multiple of ``sum(|a| |b|)``, without the rounding of the output.

        Raises:
            ValueError: The number of terms is unknown, as there is no descriptor.
        """
        if self.terms is None:
            raise ValueError("the number of terms follows from a descriptor; ask a plan")
        return (self.constant + self.per_term * self.terms) * self.epsilon


@dataclass(frozen=True, slots=True)
class PrecisionGuarantee:
    """What a kernel of the registry promises; every kernel is tested against it.

    A plan's guarantee is that of its kernel for its descriptor. The guarantee of a kernel alone, as
    the registry lists it, may differ. For instance, ``batch_invariant`` is False for a plan whose
    rows share a measured range, and an optimizer's plan may round stochastically.

    Attributes:
        determinism: When equal inputs give equal bits.
        math: The type in which multiplications and divisions are done.
        accumulator: The type of sums and ranges.
        rounding: How a real value becomes a code.
        max_ulp: The largest difference from the host backend, in units in the last place; 0 for
            ``BIT_EXACT``, None where such a unit is no useful measure.
        error_bound: How far sums in another order can be from the exact ones; None if ``max_ulp``
            is 0.
        batch_invariant: Whether a row's result does not depend on the rows beside it.
        basis: The mechanism behind the promise, in one line.
    """

    determinism: Determinism
    math: MathPrecision
    accumulator: DType
    rounding: Rounding
    max_ulp: int | None
    error_bound: ErrorBound | None
    batch_invariant: bool
    basis: str

    @property
    def deterministic(self) -> bool:
        """Whether equal runs give equal bits: ``determinism >= RUN_TO_RUN``."""
        return self.determinism >= Determinism.RUN_TO_RUN

    @property
    def bit_stable_on_same_hardware(self) -> bool:
        """The same as :attr:`deterministic`, by the name that other libraries use."""
        return self.deterministic

    def to_dict(self) -> dict[str, Any]:
        """The promise as plain JSON values."""
        values = asdict(self)
        values["determinism"] = self.determinism.name.lower()
        return {
            key: value.value if hasattr(value, "value") else value for key, value in values.items()
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PrecisionGuarantee:
        """Reads what :meth:`to_dict` and the native registry write."""
        bound = values["error_bound"]
        return cls(
            determinism=Determinism[values["determinism"].upper()],
            math=MathPrecision(values["math"]),
            accumulator=DType(values["accumulator"]),
            rounding=Rounding(values["rounding"]),
            max_ulp=values["max_ulp"],
            error_bound=None if bound is None else ErrorBound(**bound),
            batch_invariant=values["batch_invariant"],
            basis=values["basis"],
        )


# By SKU, and by the fields of a guarantee that a descriptor may change.
_MADE: Final[dict[tuple[Any, ...], PrecisionGuarantee]] = {}
_DECIDED: Final = ("batch_invariant", "math", "accumulator", "rounding")


def guarantee_of(kernel: dict[str, Any]) -> PrecisionGuarantee:
    """The guarantee of a kernel from its native description; equal ones share an object."""
    return guarantee_for(kernel, tuple(kernel["guarantee"][name] for name in _DECIDED), None)


def guarantee_for(
    kernel: dict[str, Any], decided: tuple[Any, ...], terms: int | None
) -> PrecisionGuarantee:
    """The same for a descriptor, which decides some fields and the number of terms."""
    key = (kernel["sku"], decided)
    if key not in _MADE:
        fields = dict(zip(_DECIDED, decided, strict=True))
        _MADE[key] = PrecisionGuarantee.from_dict({**kernel["guarantee"], **fields})
    return _with_terms(_MADE[key], terms)


def guarantee_of_plan(plan: PlanBase) -> PrecisionGuarantee:
    """What a plan's kernel promises for its descriptor, with the number of terms."""
    known = _MADE.get((plan.sku, plan._decided()))
    promise = guarantee_of(plan._kernel()) if known is None else known
    return promise if promise.error_bound is None else _with_terms(promise, plan._terms)


def _with_terms(promise: PrecisionGuarantee, terms: int | None) -> PrecisionGuarantee:
    """The same guarantee with the number of terms, if it has an error bound."""
    if promise.error_bound is None or terms is None:
        return promise
    return replace(promise, error_bound=replace(promise.error_bound, terms=terms))
