"""The operators of this build: their classes, their kernels and where they run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from planq import _core
from planq._classes import CLASSES, Classes
from planq._constructors import tie_fields
from planq.descriptor import Descriptor
from planq.dtypes import Backend, DType
from planq.guarantee import PrecisionGuarantee, guarantee_of
from planq.selection import DeviceFacts

if TYPE_CHECKING:
    from planq.plan import Plan


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """A kernel of the registry and what it promises.

    Attributes:
        sku: The SKU: the public name of what it promises. Several kernels may share one.
        body: Its name among the kernels of the SKU.
        revision: Number that is raised whenever its output bits change.
        backend: Where it runs.
        min_arch: The lowest compute capability that it runs on, 80 for sm_80; 0 for the host.
        rank: Its order in selection: the lowest that qualifies is chosen.
        guarantee: What it promises.
        max_arch: The highest compute capability that it runs on; None if there is no limit.
        constraints: What it requires of operands beyond their shapes and types.
        dtypes: The types that it is compiled for, as in its SKU: mostly input and output.
    """

    sku: str
    body: str
    revision: int
    backend: Backend
    min_arch: int
    rank: int
    guarantee: PrecisionGuarantee
    max_arch: int | None = None
    constraints: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """An operator: its classes, the names of its operands and fields, and its kernels.

    ``summary`` is the first line of the descriptor's docstring.
    """

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
        version: The version of planq.
        build_id: Digest of the native sources, of both compilers and of their options; part of
            every stored plan.
        source_id: SHA-256 of the sources that kernels are made of: builds of them share it.
        compiler: The C++ compiler.
        flags: Its options, without warnings and paths.
        cuda: Whether CUDA kernels are compiled in.
        cuda_version: The version of nvcc; empty without CUDA, as are the next two.
        architectures: The CUDA architectures, as CMake spells them.
        cuda_flags: The options of nvcc.
    """

    version: str
    build_id: str
    source_id: str
    compiler: str
    flags: str
    cuda: bool
    cuda_version: str
    architectures: str
    cuda_flags: str


def register(descriptor: type[Descriptor], args: type[Any], plan: type[Plan]) -> None:
    """Ties an operator's three Python classes to its native half.

    Raises:
        TypeError: The fields (their names, order, requiredness or defaults) or the operands differ
            from those that the native half declares.
    """
    native = native_operator(descriptor.operator)
    operands = tuple(item.name for item in fields(args))
    if operands != native["operands"]:
        raise TypeError(
            f"the operands of {descriptor.operator}: the Python class has {operands}, "
            f"the native half {native['operands']}"
        )
    tie_fields(descriptor, descriptor.operator, native["fields"])
    CLASSES[descriptor.operator] = Classes(descriptor, args, plan)
    operators.cache_clear()
    for listener in _listeners:
        listener()


_listeners: list[Callable[[], None]] = []


def on_register(listener: Callable[[], None]) -> None:
    """Calls a function now, and after every operator that is registered from here on."""
    _listeners.append(listener)
    listener()


@functools.cache
def native_operator(name: str) -> dict[str, Any]:
    """What the native half says of an operator's fields and operands."""
    return _core.operator(name, with_kernels=False)


@functools.cache
def operators() -> tuple[OperatorInfo, ...]:
    """The operators of this build, by name."""
    return tuple(
        _operator_info(name, _core.operator(name), classes)
        for name, classes in sorted(CLASSES.items())
    )


def _operator_info(name: str, native: dict[str, Any], classes: Classes) -> OperatorInfo:
    return OperatorInfo(
        name=name,
        summary=(classes.descriptor.__doc__ or "").strip().partition("\n")[0],
        descriptor=classes.descriptor,
        args=classes.args,
        plan=classes.plan,
        operands=native["operands"],
        fields=tuple(name for name, *_ in native["fields"]),
        kernels=tuple(
            KernelInfo(
                kernel["sku"],
                kernel["body"],
                kernel["revision"],
                Backend(kernel["backend"]),
                kernel["min_arch"],
                kernel["rank"],
                guarantee_of(kernel),
                kernel["max_arch"],
                kernel["constraints"],
                tuple(DType(name) for name in kernel["dtypes"]),
            )
            for kernel in native["kernels"]
        ),
    )


def build_info() -> BuildInfo:
    """What this build was made from and for."""
    values = _core.build_info()
    return BuildInfo(cuda=bool(values["cuda_version"]), **values)


def devices() -> tuple[DeviceFacts, ...]:
    """The CUDA devices of this machine; empty without a driver or in a host-only build."""
    return tuple(DeviceFacts._of(device) for device in _core.devices())
