"""What a kernel promises about its bits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from planq._core import PlanBase
from planq.dtypes import Determinism, DType, MathPrecision, Rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBound:
    """The error of sums that are added in another order than the host backend's.

    ``|y - exact| <= (constant + per_term * terms) * epsilon * sum(|a| |b|)``, and one more rounding
    of the result where ``output_rounding``. In that sum, factors below ``least_factor``, zeros
    among them, count as ``least_factor``; what is added to the products, such as a bias, counts as
    a product by 1; scales multiply it as they multiply ``exact``. It has to be smaller than 2^127:
    of sums that may leave float32 on the way, there is no promise.

    Attributes:
        constant: Roundings that every sum has, in units of ``epsilon``.
        per_term: Roundings that each term adds.
        terms: How many terms a sum of this plan has; None where no descriptor is given, as in a
            list of kernels.
        epsilon: The distance of 1 to the next number of the accumulator.
        least_factor: 0 where every factor counts as what it is. Tensor cores align products by the
            exponents of their factors, of which a subnormal number has that of the smallest normal
            one.
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
            ValueError: There is no descriptor that would tell the number of terms.
        """
        if self.terms is None:
            raise ValueError("the number of terms follows from a descriptor; ask a plan")
        return (self.constant + self.per_term * self.terms) * self.epsilon


@dataclass(frozen=True, slots=True)
class PrecisionGuarantee:
    """What a kernel of the registry promises; every kernel is tested against it.

    A plan has the promise of its kernel for its descriptor. That of a kernel alone, as the registry
    lists it, is what a descriptor takes from or changes: ``batch_invariant`` is False of a plan
    where rows share something, as a measured range, and an optimizer may round stochastically.

    Attributes:
        determinism: How far equal inputs give equal bits.
        math: What multiplications and divisions are done in.
        accumulator: What sums and ranges are kept in.
        rounding: How a real value becomes a code.
        max_ulp: Largest error against the host backend in units in the last place; 0 when
            ``BIT_EXACT``, None where a unit in the last place says nothing.
        error_bound: How far sums in another order can be from the exact ones; None when ``max_ulp``
            is 0.
        batch_invariant: A row's result does not depend on the rows beside it.
        basis: The mechanism behind the promise, in a line.
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


# By SKU and by what a descriptor may decide of a kernel's promise.
_MADE: Final[dict[tuple[Any, ...], PrecisionGuarantee]] = {}
_DECIDED: Final = ("batch_invariant", "math", "accumulator", "rounding")


def guarantee_of(kernel: dict[str, Any]) -> PrecisionGuarantee:
    """The promise of a kernel as the native half describes it; equal ones are made once.

    The number of terms is there where the native half tells it, which it does of a descriptor's
    kernels.
    """
    values = kernel["guarantee"]
    key = (kernel["sku"], tuple(values[name] for name in _DECIDED))
    bound = values["error_bound"]
    if key not in _MADE:
        plain = None if bound is None else {**bound, "terms": None}
        _MADE[key] = PrecisionGuarantee.from_dict({**values, "error_bound": plain})
    return _with_terms(_MADE[key], None if bound is None else bound["terms"])


def guarantee_of_plan(plan: PlanBase) -> PrecisionGuarantee:
    """What a plan's kernel promises of its descriptor, the number of terms included."""
    known = _MADE.get((plan.sku, plan._decided()))
    promise = guarantee_of(plan._kernel()) if known is None else known
    return promise if promise.error_bound is None else _with_terms(promise, plan._terms)


def _with_terms(promise: PrecisionGuarantee, terms: int | None) -> PrecisionGuarantee:
    """The same promise with the number of terms of a descriptor, where it speaks of any."""
    if promise.error_bound is None or terms is None:
        return promise
    return replace(promise, error_bound=replace(promise.error_bound, terms=terms))
