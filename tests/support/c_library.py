"""libplanq.so as a C program sees it, by ctypes."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import planq
from planq import _core
from planq.audit.reference.formats import STORAGE

LIBRARY = Path(_core.__file__).with_name("libplanq.so")
TENSORS, INT64, FLOAT64, BOOL = range(4)
HOST, CUDA = range(2)


class Device(ctypes.Structure):
    """DLPack's: 1 is the host."""

    _fields_ = (("type", ctypes.c_int32), ("index", ctypes.c_int32))


class DataType(ctypes.Structure):
    """DLPack's."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Value(ctypes.Union):
    """A number by value."""

    _fields_ = (("integer", ctypes.c_int64), ("real", ctypes.c_double))


class Operand(ctypes.Structure):
    """planq_operand."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("tensors", ctypes.POINTER(ctypes.POINTER(Tensor))),
        ("count", ctypes.c_size_t),
        ("value", Value),
    )


class Stream(ctypes.Structure):
    """planq_stream."""

    _fields_ = (
        ("backend", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("handle", ctypes.c_void_p),
    )


class Extent(ctypes.Structure):
    """planq_extent."""

    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_int64))


class DeviceFacts(ctypes.Structure):
    """planq_device."""

    _fields_ = (
        ("backend", ctypes.c_int32),
        ("index", ctypes.c_int32),
        ("arch", ctypes.c_int32),
        ("multiprocessors", ctypes.c_int32),
        ("shared_memory_per_block", ctypes.c_size_t),
        ("l2_bytes", ctypes.c_size_t),
        ("name", ctypes.c_char * 256),
    )


class OperandInfo(ctypes.Structure):
    """planq_operand_info."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("role", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("optional", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("unused", ctypes.c_uint16),
        ("members", ctypes.c_size_t),
        ("ndim", ctypes.c_int32),
        ("unused_too", ctypes.c_int32),
        ("shape", ctypes.c_int64 * 8),
        ("bytes", ctypes.c_size_t),
    )


def host(threads: int = 1) -> Stream:
    """A stream of the host."""
    return Stream(HOST, 0, threads, 0, None)


class Refused(Exception):
    """A code that is not PLANQ_OK, with its sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


_TEXT = (ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t))
_OPERANDS = (ctypes.POINTER(Operand), ctypes.c_size_t)
_EXTENTS = (ctypes.POINTER(Extent), ctypes.c_size_t)
_STREAM, _HANDLE = ctypes.POINTER(Stream), ctypes.c_uint64
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "planq_operators": _TEXT,
    "planq_select": (_STREAM, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_HANDLE)),
    "planq_device_named": (ctypes.c_char_p, ctypes.POINTER(DeviceFacts)),
    "planq_foresee": (
        ctypes.POINTER(DeviceFacts),
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.POINTER(_HANDLE),
    ),
    "planq_plan_from_json": (_STREAM, ctypes.c_char_p, ctypes.POINTER(_HANDLE)),
    "planq_plan_retain": (_HANDLE,),
    "planq_plan_release": (_HANDLE,),
    "planq_plan_sku": (_HANDLE, *_TEXT),
    "planq_plan_to_json": (_HANDLE, *_TEXT),
    "planq_plan_guarantee": (_HANDLE, *_TEXT),
    "planq_plan_operands": (_HANDLE, *_TEXT),
    "planq_plan_count_operands": (_HANDLE, ctypes.POINTER(ctypes.c_size_t)),
    "planq_plan_operand": (
        _HANDLE,
        ctypes.c_size_t,
        ctypes.c_size_t,
        *_EXTENTS,
        ctypes.POINTER(OperandInfo),
    ),
    "planq_plan_explain": (_HANDLE, *_TEXT),
    "planq_plan_workspace_size": (_HANDLE, *_EXTENTS, ctypes.POINTER(ctypes.c_size_t)),
    "planq_plan_bodies": (_HANDLE, *_EXTENTS, *_TEXT),
    "planq_can_implement": (_HANDLE, *_OPERANDS),
    "planq_run": (_HANDLE, _STREAM, ctypes.c_void_p, ctypes.c_size_t, *_OPERANDS),
    "planq_bind": (
        _HANDLE,
        ctypes.c_void_p,
        ctypes.c_size_t,
        *_OPERANDS,
        ctypes.POINTER(_HANDLE),
    ),
    "planq_launch_run": (_HANDLE, _STREAM),
    "planq_launch_body": (_HANDLE, *_TEXT),
    "planq_launch_retain": (_HANDLE,),
    "planq_launch_release": (_HANDLE,),
}
FUNCTIONS = frozenset(_SIGNATURES) | {
    "planq_code_name",
    "planq_last_error",
    "planq_version",
    "planq_build_id",
    "planq_source_id",
}


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(LIBRARY))
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, ctypes.c_int32
    for name in FUNCTIONS - _SIGNATURES.keys():
        getattr(library, name).restype = ctypes.c_char_p
    library.planq_code_name.argtypes = (ctypes.c_int32,)
    return library


C = _load()


def call(name: str, *arguments: Any) -> None:
    """Calls a function.

    Raises:
        Refused: Its code is not PLANQ_OK.
    """
    code = getattr(C, name)(*arguments)
    if code:
        raise Refused(C.planq_code_name(code).decode(), C.planq_last_error().decode())


def text(name: str, *arguments: Any) -> str:
    """The text that a function answers: its size first, then the bytes."""
    size = ctypes.c_size_t()
    call(name, *arguments, None, 0, size)
    buffer = ctypes.create_string_buffer(size.value)
    call(name, *arguments, buffer, len(buffer), None)
    return buffer.value.decode("ascii")


# DLPack's code of a type's numbers, where it is not the letter of NumPy's.
_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12, "float8_e8m0fnu": 14, "bool": 6}


def tensor(given: Any) -> Tensor:
    """A NumPy array, or (pointer, shape, strides or None, dtype, device), as DLPack has it."""
    if isinstance(given, np.ndarray):
        strides = tuple(stride // given.itemsize for stride in given.strides)
        return tensor((given.ctypes.data, given.shape, strides, given.dtype.name, "host"))
    pointer, shape, strides, name, device = given
    dtype = STORAGE.get(name, np.dtype(np.bool_))
    kind, _, index = device.partition(":")
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    steps = strides and (ctypes.c_int64 * len(strides))(*strides)
    made = Tensor(
        pointer,
        Device(1 if kind == "host" else 2, int(index or 0)),
        len(shape),
        DataType(_CODES.get(name, "iuf".find(dtype.kind)), 8 * dtype.itemsize, 1),
        extents,
        steps or None,
        0,
    )
    made.keep = (extents, steps)
    return made


def _is_tensor(given: Any) -> bool:
    explicit = isinstance(given, tuple) and len(given) == 5 and isinstance(given[0], int | None)
    return explicit or isinstance(given, np.ndarray)


def operand(name: str, given: Any) -> Operand:
    """An operand of tensors, a number, or None."""
    made = Operand(name.encode())
    if given is None:
        return made
    if isinstance(given, bool):
        made.type, made.value.integer = BOOL, given
    elif isinstance(given, int):
        made.type, made.value.integer = INT64, given
    elif isinstance(given, float):
        made.type, made.value.real = FLOAT64, given
    else:
        tensors = [tensor(one) for one in ([given] if _is_tensor(given) else given)]
        pointers = (ctypes.POINTER(Tensor) * max(len(tensors), 1))(*map(ctypes.pointer, tensors))
        made.tensors, made.count = pointers, len(tensors)
        made.keep = (tensors, pointers)
    return made


def operands(given: Mapping[str, Any]) -> tuple[Any, int]:
    """The operands of a call, as two arguments."""
    made = [operand(name, value) for name, value in given.items()]
    array = (Operand * max(len(made), 1))(*made)
    array.keep = made
    return array, len(made)


def device_named(name: str) -> DeviceFacts:
    """Calls planq_device_named."""
    device = DeviceFacts()
    call("planq_device_named", name.encode("utf-8", "surrogatepass"), device)
    return device


def _extents(given: Mapping[str, int]) -> tuple[Any, int]:
    """The extents of a call, as two arguments."""
    array = (Extent * max(len(given), 1))(*((name.encode(), n) for name, n in given.items()))
    return array, len(given)


class Plan:
    """A plan's handle, released with the object."""

    def __init__(self) -> None:
        self.handle = _HANDLE()

    @classmethod
    def select(cls, desc: str, pref: str | None = None, stream: Stream | None = None) -> Plan:
        """Calls planq_select."""
        plan = cls()
        encoded = None if pref is None else pref.encode("utf-8", "surrogatepass")
        given = desc.encode("utf-8", "surrogatepass")
        call("planq_select", stream or host(), given, encoded, plan.handle)
        return plan

    @classmethod
    def of(cls, plan: planq.Plan) -> Plan:
        """The same as a plan of Python's."""
        return cls.select(plan.descriptor.to_json(), json.dumps(plan.preference.to_dict()))

    @classmethod
    def foresee(cls, device: DeviceFacts, desc: str, pref: str | None = None) -> Plan:
        """Calls planq_foresee."""
        plan = cls()
        encoded = None if pref is None else pref.encode()
        call("planq_foresee", device, desc.encode(), encoded, plan.handle)
        return plan

    @classmethod
    def from_json(cls, stored: str, stream: Stream | None = None) -> Plan:
        """Calls planq_plan_from_json."""
        plan = cls()
        given = stored.encode("utf-8", "surrogatepass")
        call("planq_plan_from_json", stream or host(), given, plan.handle)
        return plan

    def text(self, what: str) -> str:
        """What planq_plan_<what> answers."""
        return text(f"planq_plan_{what}", self.handle)

    def workspace_size(self, **extents: int) -> int:
        """Calls planq_plan_workspace_size."""
        size = ctypes.c_size_t()
        call("planq_plan_workspace_size", self.handle, *_extents(extents), size)
        return size.value

    def bodies(self, **extents: int) -> str:
        """Calls planq_plan_bodies."""
        return text("planq_plan_bodies", self.handle, *_extents(extents))

    def operand(self, index: int, member: int = 0, **extents: int) -> OperandInfo:
        """Calls planq_plan_operand."""
        info = OperandInfo()
        call("planq_plan_operand", self.handle, index, member, *_extents(extents), info)
        return info

    def operands(self, **extents: int) -> list[OperandInfo]:
        """Each operand of the plan; of a list the first member."""
        count = ctypes.c_size_t()
        call("planq_plan_count_operands", self.handle, count)
        return [self.operand(index, **extents) for index in range(count.value)]

    def can_implement(self, given: Mapping[str, Any]) -> None:
        """Calls planq_can_implement."""
        call("planq_can_implement", self.handle, *operands(given))

    def run(
        self,
        given: Mapping[str, Any],
        workspace: tuple[int | None, int] = (None, 0),
        stream: Stream | None = None,
    ) -> None:
        """Calls planq_run."""
        call("planq_run", self.handle, stream or host(), *workspace, *operands(given))

    def bind(self, given: Mapping[str, Any], workspace: Sequence[Any] = (None, 0)) -> Launch:
        """Calls planq_bind."""
        launch = Launch()
        call("planq_bind", self.handle, *workspace, *operands(given), launch.handle)
        return launch

    def __del__(self) -> None:
        C.planq_plan_release(self.handle)


class Launch:
    """A bound launch's handle, released with the object."""

    def __init__(self) -> None:
        self.handle = _HANDLE()

    def __call__(self, stream: Stream | None = None) -> None:
        call("planq_launch_run", self.handle, stream or host())

    def __del__(self) -> None:
        C.planq_launch_release(self.handle)
