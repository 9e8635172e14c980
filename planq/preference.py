"""What a caller requires of the kernel when a plan is selected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planq import _core
from planq._constructors import name_unknown_fields, tie_fields
from planq.dtypes import Backend, Determinism


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPreference:
    """Each field that is set removes candidates; none of them is a hint.

    The native table lists the same fields and says how each is parsed. On import, this class is
    compared with it.

    Attributes:
        determinism: The least determinism that a kernel may guarantee.
        batch_invariant: Only kernels whose result for a row does not depend on the rows beside it.
        max_ulp: Only kernels that guarantee at most this error against the host backend.
        max_workspace_bytes: Only kernels that need at most this much workspace, in bytes.
        backend: Only kernels of this backend; None leaves it to the stream.
        sku: Only kernels of this SKU; an unknown or rejected one is a ``NoKernelError``.
        body: Only the body (kernel of a SKU) of this name, for tests and tuning; likewise.

    Raises:
        DescriptorError: A field has a value that is not allowed.
    """

    determinism: Determinism = Determinism.RUN_TO_RUN
    batch_invariant: bool = False
    max_ulp: int | None = None
    max_workspace_bytes: int | None = None
    backend: Backend | None = None
    sku: str | None = None
    body: str | None = None

    _native: _core.Preference = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The native field table says how each attribute is parsed.
        _core.resolve_preference(self)

    def to_dict(self) -> dict[str, Any]:
        """The preference as plain JSON values."""
        return self._native.to_dict()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PlanPreference:
        """Reads what :meth:`to_dict` writes.

        Raises:
            DescriptorError: A field is unknown, or has a value that is not allowed.
        """
        _core.check_preference(values)
        return cls(**values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)


tie_fields(PlanPreference, "a preference", _core.preference_fields())
name_unknown_fields(PlanPreference, "a preference")
