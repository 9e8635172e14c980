"""What a kernel promises about its bits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from planq.dtypes import Determinism, DType, MathPrecision, Rounding


@dataclass(frozen=True, slots=True)
class PrecisionGuarantee:
    """The promise of one row of the registry; every row is tested against it.

    Attributes:
        determinism: How far equal inputs give equal bits.
        math: What multiplications and divisions are done in.
        accumulator: What sums and ranges are kept in.
        rounding: How a real value becomes a code.
        max_ulp: Largest error against the host backend in units in the last place; 0 when
            ``BIT_EXACT``, None when only ``basis`` can say.
        batch_invariant: A row's result does not depend on the rows beside it.
        basis: The mechanism behind the promise, in a line.
    """

    determinism: Determinism
    math: MathPrecision
    accumulator: DType
    rounding: Rounding
    max_ulp: int | None
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
        return cls(
            determinism=Determinism[values["determinism"].upper()],
            math=MathPrecision(values["math"]),
            accumulator=DType(values["accumulator"]),
            rounding=Rounding(values["rounding"]),
            max_ulp=values["max_ulp"],
            batch_invariant=values["batch_invariant"],
            basis=values["basis"],
        )
