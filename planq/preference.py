"""What a caller insists on when a plan is selected."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from planq import _core
from planq._constructors import name_unknown_fields, refuse_unknown_fields
from planq.dtypes import Backend, Determinism, parse_member
from planq.errors import DescriptorError, shown


def _is_name(value: object) -> bool:
    """Whether a value is text of at least one character; half a surrogate pair is none."""
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPreference:
    """Each field that is set removes candidates; none of them is a hint.

    Attributes:
        determinism: The lowest rung that a kernel may guarantee.
        batch_invariant: Only kernels whose result of a row does not depend on the rows beside it.
        max_ulp: Only kernels that guarantee at most this error against the host backend.
        max_workspace_bytes: Only kernels that need at most this much workspace, in bytes.
        backend: Only kernels of this backend; None leaves it to the stream.
        sku: Only kernels of this SKU; an unknown or rejected one is a ``NoKernelError``.
        body: Only the kernel of this name among those of a SKU, for tests and for tuning; likewise.

    Raises:
        DescriptorError: A field holds what it cannot mean.
    """

    determinism: Determinism = Determinism.RUN_TO_RUN
    batch_invariant: bool = False
    max_ulp: int | None = None
    max_workspace_bytes: int | None = None
    backend: Backend | None = None
    sku: str | None = None
    body: str | None = None

    def __post_init__(self) -> None:
        rung = parse_member(Determinism, self.determinism, "determinism")
        object.__setattr__(self, "determinism", rung)
        if self.backend is not None:
            object.__setattr__(self, "backend", parse_member(Backend, self.backend, "backend"))
        for field in ("max_ulp", "max_workspace_bytes"):
            limit = getattr(self, field)
            if limit is not None and not (type(limit) is int and 0 <= limit < 2**63):
                expected = "an integer of at least 0 and at most 63 bits"
                raise DescriptorError(field, f"expected {expected}, got {shown(limit)}")
        if not isinstance(self.batch_invariant, bool):
            raise DescriptorError(
                "batch_invariant", f"expected True or False, got {shown(self.batch_invariant)}"
            )
        if self.sku is not None and not _is_name(self.sku):
            expected = "the name of a row, or None for any"
            raise DescriptorError("sku", f"expected {expected}, got {shown(self.sku)}")
        if self.body is not None and not _is_name(self.body):
            expected = "the name of a body, or None for any"
            raise DescriptorError("body", f"expected {expected}, got {shown(self.body)}")

    def to_dict(self) -> dict[str, Any]:
        """The preference as plain JSON values."""
        return {
            "determinism": self.determinism.name.lower(),
            "batch_invariant": self.batch_invariant,
            "max_ulp": self.max_ulp,
            "max_workspace_bytes": self.max_workspace_bytes,
            "backend": None if self.backend is None else self.backend.value,
            "sku": self.sku,
            "body": self.body,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PlanPreference:
        """Reads what :meth:`to_dict` writes.

        Raises:
            DescriptorError: An unknown field, or one that holds what it cannot mean.
        """
        if not isinstance(values, dict):
            raise DescriptorError("preference", f"expected an object, got {shown(values)}")
        refuse_unknown_fields("a preference", [item.name for item in fields(cls)], values)
        return cls(**values)

    def _native(self) -> _core.Preference:
        values = self.to_dict()
        return _core.Preference(*values.values())


name_unknown_fields(PlanPreference, "a preference")
