"""Every error that planq raises, with what a program may want to read from it.

A message says which value is wrong, what was expected, what was given and what to do about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from planq import _core

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planq.selection import Selection
    from planq.torch import ModelAudit


_LONGEST_SHOWN = 1000


def shown(value: object) -> str:
    """A value as text for a message: of bounded length, and printable even if its repr fails."""
    try:
        text = repr(value)
    except Exception:  # huge integers, deep nesting, or a __repr__ that raises
        name = type(value).__name__
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name} that cannot be printed"
    if len(text) > _LONGEST_SHOWN:
        text = f"{text[:_LONGEST_SHOWN]}..."
    return text.encode("utf-8", "backslashreplace").decode()


def as_field(key: object) -> str:
    """A dictionary key, which may be any object, as the field of an error."""
    return key if isinstance(key, str) and key and key.isprintable() else shown(key)


def _restored(kind: type[PlanqError], args: tuple[Any, ...], members: dict[str, Any]) -> PlanqError:
    """An error as it was, whatever its class is made of."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(members)
    return error


class PlanqError(Exception):
    """Base of all errors of planq; ``code`` is stable and meant for programs.

    Errors survive pickle, as processes that work together need it.
    """

    code: ClassVar[str] = "planq"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, dict(self.__dict__))


class DescriptorError(PlanqError, ValueError):
    """A descriptor's field has a value that is not allowed; ``field`` names it."""

    code = "descriptor"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class NoKernelError(PlanqError, NotImplementedError):
    """No kernel of the registry takes the descriptor under the preference.

    ``selection`` has the reason for every kernel; the message prints the same table.
    """

    code = "no_kernel"

    def __init__(self, selection: Selection, message: str) -> None:
        super().__init__(f"{message}\n{selection}")
        self.selection = selection


class ArgumentError(PlanqError, ValueError):
    """An operand or argument is not what is expected. Nothing was launched or written."""

    code = "argument"

    def __init__(self, operand: str, expected: str, actual: str, advice: str = "") -> None:
        tail = f"; {advice}" if advice else ""
        super().__init__(f"{operand}: expected {expected}, got {actual}{tail}")
        self.operand = operand
        self.expected = expected
        self.actual = actual


class WorkspaceError(PlanqError, ValueError):
    """The workspace is missing, too small, misaligned or on another device. Sizes are in bytes."""

    code = "workspace"

    def __init__(self, needed: int, got: int, alignment: int, problem: str) -> None:
        super().__init__(_core.workspace_text(needed, got, problem))
        self.needed = needed
        self.got = got
        self.alignment = alignment


class StreamError(PlanqError, ValueError):
    """The argument is no stream, or the stream is of another device than the plan."""

    code = "stream"


class PlanMismatchError(PlanqError, RuntimeError):
    """A stored plan is not what this build selects now.

    ``differences`` has each part that differs, as ``(stored, now)``. It is empty if there is
    nothing to compare: the text is no plan, or no kernel is selected.
    """

    code = "plan_mismatch"

    def __init__(
        self, message: str, differences: Mapping[str, tuple[Any, Any]] | None = None
    ) -> None:
        super().__init__(message)
        self.differences = dict(differences or {})


class PolicyError(PlanqError, RuntimeError):
    """A model calls operators that do not meet a policy.

    ``audit`` is what ``planq.torch.audit`` found; ``audit.refused`` has these calls.
    """

    code = "policy"

    def __init__(self, message: str, audit: ModelAudit) -> None:
        super().__init__(message)
        self.audit = audit


class CudaError(PlanqError, RuntimeError):
    """A CUDA call failed. ``cuda_code`` and ``cuda_name`` are those of CUDA."""

    code = "cuda"

    def __init__(self, cuda_code: int, cuda_name: str, text: str, what: str) -> None:
        super().__init__(f"{what}: {cuda_name} ({cuda_code}): {text}")
        self.cuda_code = cuda_code
        self.cuda_name = cuda_name
