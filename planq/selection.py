"""Why a kernel was chosen, and why every other was not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from planq import _core, _policy
from planq._classes import CLASSES
from planq._nearest import did_you_mean
from planq.arguments import StreamLike
from planq.descriptor import Descriptor
from planq.dtypes import Backend, DType
from planq.errors import DescriptorError, shown
from planq.guarantee import PrecisionGuarantee, guarantee_for
from planq.preference import PlanPreference


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What selection knows of a device: plain numbers, so selection works without the device.

    Attributes:
        name: The device's name.
        backend: Host or CUDA.
        index: The CUDA device's ordinal.
        arch: Compute capability times ten (90 for 9.0); 0 on the host.
        multiprocessors: The number of multiprocessors.
        shared_memory_per_block: The opt-in maximum of shared memory per block, in bytes.
        l2_bytes: The size of the L2 cache, in bytes.
    """

    name: str
    backend: Backend = Backend.CUDA
    index: int = 0
    arch: int = 0
    multiprocessors: int = 0
    shared_memory_per_block: int = 0
    l2_bytes: int = 0

    @classmethod
    def _of(cls, native: _core.Device) -> DeviceFacts:
        return cls(
            native.name,
            Backend(native.backend),
            native.index,
            native.arch,
            native.multiprocessors,
            native.shared_memory_per_block,
            native.l2_bytes,
        )

    def _to_native(self) -> _core.Device:
        return _core.Device(
            self.backend,
            self.index,
            self.arch,
            self.multiprocessors,
            self.shared_memory_per_block,
            self.l2_bytes,
            self.name,
        )


@dataclass(frozen=True, slots=True)
class Body:
    """One of the kernels of a plan's SKU. They give the same bits and differ in speed.

    Attributes:
        name: Its name among the kernels of the SKU.
        chosen: Whether it is the one that runs.
        reason: Why it cannot run; empty for the chosen one and for less preferred ones.
        workspace: Bytes that it would need, if it takes the operands.
        constraints: What it requires of operands beyond their shapes and types.
    """

    name: str
    chosen: bool
    reason: str
    workspace: int
    constraints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kernel of the registry in a selection.

    Attributes:
        sku: The SKU: the public name of what the kernel promises. Several kernels may share one.
        body: Its name among the kernels of the SKU.
        revision: Number that is raised whenever its output bits change.
        backend: Where it runs.
        rank: Its order in selection: the lowest that qualifies is chosen.
        chosen: Whether it was chosen.
        reason: Why it was rejected; empty for the chosen one, and for accepted ones with a higher
            rank.
        reason_kind: The kind of reason: ``"dtype"``, ``"scope"``, ``"shape"``, ``"preference"`` …
        guarantee: What it promises for the descriptor.
        workspace: Bytes that it would need, if it takes the descriptor.
        constraints: What it requires of operands beyond their shapes and types.
        dtypes: The types that it is compiled for, as in its SKU: mostly input and output.
    """

    sku: str
    body: str
    revision: int
    backend: Backend
    rank: int
    chosen: bool
    reason: str
    reason_kind: str
    guarantee: PrecisionGuarantee
    workspace: int
    constraints: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()

    @property
    def verdict(self) -> str:
        """``chosen``, the reason, or that a kernel above it is preferred."""
        return _core.verdict_text(self.chosen, self.reason)

    def to_dict(self) -> dict[str, Any]:
        """The candidate as plain JSON values."""
        return {
            "sku": self.sku,
            "body": self.body,
            "revision": self.revision,
            "backend": self.backend,
            "rank": self.rank,
            "chosen": self.chosen,
            "reason": self.reason,
            "reason_kind": self.reason_kind,
            "guarantee": self.guarantee.to_dict(),
            "workspace": self.workspace,
            "constraints": list(self.constraints),
            "dtypes": list(self.dtypes),
        }


@dataclass(frozen=True, slots=True)
class Selection:
    """All kernels of an operator, the preferred ones first, with the verdict on each."""

    candidates: tuple[Candidate, ...]

    @property
    def chosen(self) -> Candidate | None:
        """The kernel that runs, or None."""
        return next((each for each in self.candidates if each.chosen), None)

    def to_dict(self) -> dict[str, Any]:
        """The selection as plain JSON values."""
        return {"candidates": [each.to_dict() for each in self.candidates]}

    def __str__(self) -> str:
        return _core.selection_text(self._lines)

    @property
    def _lines(self) -> list[tuple[str, str, int, int, str, str, tuple[str, ...]]]:
        """The rows of the printed table."""
        return [
            (
                *(each.sku, each.body, each.rank, each.workspace),
                *(each.verdict, each.reason_kind, each.constraints),
            )
            for each in self.candidates
        ]


def native_device(device: DeviceFacts | StreamLike | str) -> _core.Device:
    """The native facts of a device, given as a name, a DeviceFacts or a stream."""
    if isinstance(device, DeviceFacts):
        try:
            return device._to_native()
        except TypeError:
            expected = "text and integers that a device can have"
            raise DescriptorError("device", f"expected {expected}, got {shown(device)}") from None
    if not isinstance(device, str):
        return _core.stream_device(device)
    named = _core.named_device(device) if device.isascii() else None
    if named is not None:
        return named
    if device.startswith("sm_"):
        hint = f"; {architectures()}"
    else:
        names = sorted({f"sm_{first}" for first, _ in _ranges(None)})
        hint = did_you_mean(device, ("host", "cuda:0", *names))
    expected = _core.NAMES_OF_DEVICES
    raise DescriptorError("device", f"{expected}, got {shown(device)}{hint}")


def architectures(operator: str | None = None) -> str:
    """A sentence: the GPUs that an operator (None: any) has kernels for, and what is compiled."""
    who = operator or "this build"
    ranges = _ranges(operator)
    if not ranges:
        return f"{who} has no kernels for CUDA"
    words = [
        f"sm_{first}" + {None: " or later", first: ""}.get(last, f" to sm_{last}")
        for first, last in ranges
    ]
    compiled = _core.build_info()["architectures"]
    return f"{who} has kernels for {', '.join(words)}; compiled for {compiled}"


def _ranges(operator: str | None) -> list[tuple[int, int | None]]:
    """The first and the last architecture of each CUDA kernel; None: there is no upper limit."""
    found = {
        (kernel["min_arch"], kernel["max_arch"])
        for name in (CLASSES if operator is None else (operator,))
        for kernel in _core.operator(name)["kernels"]
        if kernel["backend"] == Backend.CUDA
    }
    return sorted(found, key=lambda item: (item[0], item[1] is not None, item[1] or 0))


_EVER = _policy.EVER  # a process without any policy pays for one look


def checked_preference(desc: object, pref: object) -> PlanPreference:
    """Checks both arguments of a selection; returns the preference, or the default one for None.

    The result also meets the policy that is in force.

    Raises:
        DescriptorError: ``desc`` is no descriptor, or ``pref`` no preference; or the preference and
            the policy name two backends.
    """
    if not isinstance(desc, Descriptor):
        raise DescriptorError("desc", f"expected a descriptor, got {type(desc).__name__}")
    preference = pref if pref is not None else PlanPreference()
    if not isinstance(preference, PlanPreference):
        raise DescriptorError("pref", f"expected a PlanPreference, got {shown(preference)}")
    return _policy.applied(preference) if _EVER else preference


def explain(
    desc: Descriptor,
    pref: PlanPreference | None = None,
    device: DeviceFacts | StreamLike | str = "host",
) -> Selection:
    """Runs selection without making a plan, for any device, present or not.

    Args:
        desc: What to compute.
        pref: Requirements on the kernel; None for the defaults.
        device: ``"host"``, an architecture such as ``"sm_80"`` or ``"sm_90"``, ``"cuda:0"``, a
            :class:`DeviceFacts` or a stream.

    Raises:
        DescriptorError: The device is unknown; or ``desc`` is no descriptor, or ``pref`` no
            preference; or the preference and the policy in force name two backends.
    """
    return explain_exactly(desc, checked_preference(desc, pref), device)


def explain_exactly(
    desc: Descriptor, preference: PlanPreference, device: DeviceFacts | StreamLike | str
) -> Selection:
    """As :func:`explain`, under this preference alone, whatever policy is in force."""
    candidates = _core.select(desc._native, preference._native, native_device(device))
    return Selection(
        tuple(
            Candidate(
                sku=kernel["sku"],
                body=kernel["body"],
                revision=kernel["revision"],
                backend=kernel["backend"],
                rank=kernel["rank"],
                chosen=chosen,
                reason=reason,
                reason_kind=kind,
                guarantee=guarantee_for(kernel, decided, terms),
                workspace=workspace,
                constraints=kernel["constraints"],
                dtypes=kernel["dtypes"],
            )
            for kernel, (decided, terms, chosen, kind, reason, workspace) in zip(
                _kernels(desc.operator), candidates, strict=True
            )
        )
    )


@cache
def _kernels(operator: str) -> list[dict[str, Any]]:
    """What is the same for every descriptor, in the order of preference."""
    return [
        {
            **kernel,
            "backend": Backend(kernel["backend"]),
            "dtypes": tuple(DType(name) for name in kernel["dtypes"]),
        }
        for kernel in _core.operator(operator)["kernels"]
    ]
