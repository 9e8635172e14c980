"""The operators of this build: their classes, their rows and where they run."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from planq import _core
from planq.errors import DescriptorError, shown
from planq.guarantee import PrecisionGuarantee, guarantee_of
from planq.selection import DeviceFacts

if TYPE_CHECKING:
    from planq.descriptor import Descriptor
    from planq.plan import Plan


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """A row of the registry: one kernel and what it promises.

    Attributes:
        max_arch: The last architecture that it runs on; None where there is no last one.
        constraints: What it asks of operands beyond their shapes and types.
    """

    sku: str
    revision: int
    backend: str
    min_arch: int
    rank: int
    guarantee: PrecisionGuarantee
    max_arch: int | None = None
    constraints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """An operator: its classes, the names of its operands and fields, its rows."""

    name: str
    summary: str
    descriptor: type[Descriptor]
    args: type[Any]
    plan: type[Plan]
    operands: tuple[str, ...]
    fields: tuple[str, ...]
    kernels: tuple[KernelInfo, ...]


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What this build was made from and for.

    Attributes:
        build_id: Digest of the native sources; part of every stored plan.
        cuda: Whether CUDA kernels are compiled in.
        architectures: The CUDA architectures, as CMake spells them.
    """

    version: str
    build_id: str
    cuda: bool
    cuda_version: str
    architectures: str
    compiler: str


@dataclass(frozen=True, slots=True)
class _Classes:
    descriptor: type[Descriptor]
    args: type[Any]
    plan: type[Plan]


_CLASSES: Final[dict[str, _Classes]] = {}


def register(descriptor: type[Descriptor], args: type[Any], plan: type[Plan]) -> None:
    """Ties an operator's three Python classes to its native half.

    Raises:
        TypeError: The fields or operands differ from those that the native half declares.
    """
    native = _native_operators()[descriptor.operator]
    declared = tuple(item.name for item in fields(descriptor) if item.init)
    operands = tuple(item.name for item in fields(args))
    if declared != native["fields"] or operands != native["operands"]:
        raise TypeError(
            f"{descriptor.operator}: the classes have {declared} and {operands}, "
            f"the native half {native['fields']} and {native['operands']}"
        )
    _CLASSES[descriptor.operator] = _Classes(descriptor, args, plan)
    operators.cache_clear()


@functools.cache
def _native_operators() -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in _core.operators()}


def classes_of(operator: str) -> _Classes:
    """The Python classes of an operator.

    Raises:
        DescriptorError: No such operator.
    """
    if operator not in _CLASSES:
        names = ", ".join(sorted(_CLASSES))
        raise DescriptorError("op", f"no operator is called {shown(operator)}; there are {names}")
    return _CLASSES[operator]


def descriptor_class(operator: str) -> type[Descriptor]:
    """The descriptor class of an operator.

    Raises:
        DescriptorError: No such operator.
    """
    return classes_of(operator).descriptor


@functools.cache
def operators() -> tuple[OperatorInfo, ...]:
    """The operators of this build, by name."""
    return tuple(
        _operator_info(name, _native_operators()[name], classes)
        for name, classes in sorted(_CLASSES.items())
    )


def _operator_info(name: str, native: dict[str, Any], classes: _Classes) -> OperatorInfo:
    return OperatorInfo(
        name=name,
        summary=(classes.descriptor.__doc__ or "").strip().partition("\n")[0],
        descriptor=classes.descriptor,
        args=classes.args,
        plan=classes.plan,
        operands=native["operands"],
        fields=native["fields"],
        kernels=tuple(
            KernelInfo(
                row["sku"],
                row["revision"],
                row["backend"],
                row["min_arch"],
                row["rank"],
                guarantee_of(row),
                row["max_arch"],
                row["constraints"],
            )
            for row in native["kernels"]
        ),
    )


def build_info() -> BuildInfo:
    """What this build was made from and for."""
    version, build_id, cuda_version, architectures, compiler = _core.build_info()
    return BuildInfo(version, build_id, bool(cuda_version), cuda_version, architectures, compiler)


def devices() -> tuple[DeviceFacts, ...]:
    """The CUDA devices of this machine; empty without a driver or in a host-only build."""
    return tuple(DeviceFacts._of(device) for device in _core.devices())
