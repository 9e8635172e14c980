"""One policy for many plans: what every selection in a block, or in the process, has to meet.

Selection reads it in one place, :func:`planq.selection.checked_preference`. What keeps plans
between calls has the policy in its key.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, final

from planq.dtypes import Backend
from planq.errors import DescriptorError, shown
from planq.preference import PlanPreference


@final
@dataclasses.dataclass(frozen=True, slots=True)
class _Level:
    """A block: the strictest of its policy and of those around it, and the block around it."""

    strictest: PlanPreference
    around: _Level | None


_level: Final[ContextVar[_Level | None]] = ContextVar("planq.policy", default=None)
_process: PlanPreference | None = None
# The policies of all blocks that some thread is inside of.
_entered: Final[list[PlanPreference]] = []
# Filled by the first policy of the process. Until then a look at it is all that a call pays.
EVER: Final[list[bool]] = []


# --- The strictest of two


def _least(one: int | None, other: int | None) -> int | None:
    given = [limit for limit in (one, other) if limit is not None]
    return min(given, default=None)


def _same_backend(one: Backend | None, other: Backend | None) -> Backend | None:
    if one is not None and other is not None and one != other:
        expected = "the same in a preference and in every policy that is in force"
        raise DescriptorError("backend", f"expected {expected}, got {one} and {other}")
    return one if other is None else other


def _only(one: str | None, other: str | None) -> str | None:
    """A pin; a policy has none."""
    return one if other is None else other


# Every field of a preference has its rule here.
_STRICTEST: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "determinism": max,
    "batch_invariant": lambda one, other: one or other,
    "max_ulp": _least,
    "max_workspace_bytes": _least,
    "backend": _same_backend,
    "sku": _only,
    "body": _only,
}
_FIELDS: Final = tuple(each.name for each in dataclasses.fields(PlanPreference) if each.init)


@functools.lru_cache(maxsize=1024)
def strictest(one: PlanPreference, other: PlanPreference) -> PlanPreference:
    """A preference that only kernels meet which meet both; the same object for equal ones.

    Raises:
        DescriptorError: They name two backends.
    """
    return _interned(
        PlanPreference(
            **{name: _STRICTEST[name](getattr(one, name), getattr(other, name)) for name in _FIELDS}
        )
    )


@functools.lru_cache(maxsize=1024)
def _interned(policy: PlanPreference) -> PlanPreference:
    """The first of all equal policies: caches compare policies by identity."""
    return policy


def words(policy: PlanPreference) -> str:
    """What a policy asks for, as text for a message: the determinism, and what else is set."""
    unset = PlanPreference()
    asked = [
        f"{name}={shown(getattr(policy, name))}"
        for name in _FIELDS
        if name != "determinism" and getattr(policy, name) != getattr(unset, name)
    ]
    return ", ".join([f"determinism={policy.determinism.name}", *asked])


# --- What is in force


def in_force() -> PlanPreference | None:
    """The strictest of all policies that hold here; None if there is none.

    Raises:
        DescriptorError: They name two backends.
    """
    if not EVER:
        return None
    level = _level.get()
    if level is not None:
        here: PlanPreference | None = level.strictest
    else:
        here = _of_foreign_thread() if _entered else None
    if here is None or _process is None:
        return _process if here is None else here
    return strictest(here, _process)


def _of_foreign_thread() -> PlanPreference | None:
    """In a thread that Python did not start, the strictest of all blocks; else None.

    Nobody can say for which block such a thread works. torch's are among them: they run the
    backward passes of GPUs.
    """
    import threading

    if not isinstance(threading.current_thread(), threading._DummyThread):
        return None
    entered = tuple(_entered)
    return functools.reduce(strictest, entered) if entered else None


def held(policy: PlanPreference | None) -> Block | contextlib.AbstractContextManager[None]:
    """A block of a policy besides what is in force; no block if it is None.

    What is in force counts in a thread that Python did not start, too: there, a block of its own
    would replace it.
    """
    return contextlib.nullcontext() if policy is None else Block(under(policy, in_force()))


def under(preference: PlanPreference, policy: PlanPreference | None) -> PlanPreference:
    """A preference that meets the policy as well."""
    return preference if policy is None else strictest(preference, policy)


def applied(preference: PlanPreference) -> PlanPreference:
    """A preference that meets the policy in force as well.

    Raises:
        DescriptorError: The preference and the policies name two backends.
    """
    return under(preference, in_force())


def checked(pref: object) -> PlanPreference:
    """Refuses what is no policy.

    Raises:
        DescriptorError: It is no preference, or it pins a kernel.
    """
    if not isinstance(pref, PlanPreference):
        raise DescriptorError("pref", f"expected a PlanPreference, got {shown(pref)}")
    for name in ("sku", "body"):
        pinned = getattr(pref, name)
        if pinned is not None:
            expected = "None in a policy, which is for many operators"
            raise DescriptorError(name, f"expected {expected}, got {shown(pinned)}")
    return _interned(pref)


# --- Setting it


@final
class Block:
    """What :func:`policy` returns: a context manager that may be entered again."""

    __slots__ = ("_pref",)

    def __init__(self, pref: PlanPreference) -> None:
        self._pref = pref

    def __enter__(self) -> PlanPreference:
        around = _level.get()
        inside = under(self._pref, around.strictest if around else None)
        found = under(inside, _process)
        EVER[:] = (True,)
        _entered.append(inside)
        _level.set(_Level(inside, around))
        return found

    def __exit__(self, *_: object) -> None:
        level = _level.get()
        if level is None:
            raise RuntimeError("planq.policy: this thread or task is not inside of the block")
        _level.set(level.around)
        _entered.remove(level.strictest)


def policy(pref: PlanPreference) -> Block:
    """Every plan that is selected inside of the block meets this preference as well as its own.

    For each field the strictest value counts: the highest determinism, batch invariance if anyone
    asks for it, the lowest limits. ``plan.preference`` is the result, so a stored plan says what
    held. Blocks nest, and the strictest of all counts, :func:`planq.set_policy` included. The
    default of ``determinism`` is RUN_TO_RUN here too: inside, no call gets less.

    It holds for ``Plan.select``, ``explain``, ``Plan.from_json``, ``planq.torch`` and all else in
    planq that selects. It does not change plans that exist. A plan that was selected outside still
    runs inside.

    Threads and tasks:
        It holds for the thread or the asyncio task that entered the block, and for tasks that are
        made inside. Other threads that Python started do not have it; ``set_policy`` holds for
        them. Threads that Python did not start and that entered no block, such as those of torch's
        backward pass on a GPU, get the strictest of all blocks that any thread is inside of.

    Args:
        pref: The policy. It may name a backend, but neither a SKU nor a body.

    Returns:
        A context manager. Entering it returns the strictest of the policies that hold inside.

    Raises:
        DescriptorError: ``pref`` is no preference, or it pins a SKU or a body. On entering: it
            names another backend than a policy around it. From selections inside: their preference
            names another backend.
    """
    return Block(checked(pref))


def set_policy(pref: PlanPreference | None) -> None:
    """Sets the policy of the whole process, or removes it; blocks of :func:`planq.policy` stay.

    It holds for all threads, from now on, and replaces the one that was set before.

    Args:
        pref: As :func:`planq.policy` takes it; None for no policy.

    Raises:
        DescriptorError: ``pref`` is no preference, or it pins a SKU or a body.
    """
    global _process
    found = None if pref is None else checked(pref)
    EVER[:] = (True,)
    _process = found
