"""Operands of emulated kernels: memory that may be misaligned, padded and backwards."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from planq.audit.reference.formats import Array, Arrays


class Given(ctypes.Structure):
    """An operand, as the C++ half of a test takes it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("strides", ctypes.c_int64 * 3),
        ("rank", ctypes.c_int32),
    )


def placed(values: Array, past: int) -> Array:
    """A copy that begins so many elements past a vector, with as many behind each row."""
    if values.ndim == 0:
        return placed(values.reshape(1), past).reshape(())
    rows = values.shape[:-1] if values.ndim > 1 else ()
    padded = (*rows, values.shape[-1] + (past if rows else 0))
    room = np.full((int(np.prod(padded)) + past + 16) * values.itemsize + 16, 0xA5, np.uint8)
    first = -room.ctypes.data % 16 + past * values.itemsize
    nbytes = int(np.prod(padded)) * values.itemsize
    copy = room[first : first + nbytes].view(values.dtype).reshape(padded)[..., : values.shape[-1]]
    copy[...] = values
    return copy


def given_to(values: Array | None) -> Given:
    """One operand."""
    if values is None:
        return Given()
    strides = (*(stride // values.itemsize for stride in values.strides), 0, 0)[:3]
    return Given(values.ctypes.data, (ctypes.c_int64 * 3)(*strides), values.ndim)


def held_by(inputs: Arrays, outputs: Arrays, past: int, *, backwards: bool = False) -> Arrays:
    """Memory of all operands; that of outputs is poisoned. Backwards: the first row comes last."""
    poison = {name: np.full(v.nbytes, 0xA5, np.uint8).view(v.dtype) for name, v in outputs.items()}
    every = inputs | {name: poison[name].reshape(v.shape) for name, v in outputs.items()}
    turned = slice(None, None, -1)
    return {
        name: placed(values[turned], past)[turned]
        if backwards and values.ndim > 1
        else placed(values, past)
        for name, values in every.items()
    }


def listed(names: tuple[str, ...], held: Arrays) -> ctypes.Array[Given]:
    """The operands in the order of the operator."""
    return (Given * len(names))(*(given_to(held.get(name)) for name in names))


@contextmanager
def arriving(library: ctypes.CDLL, held: Arrays, names: Iterable[str]) -> Iterator[None]:
    """Operands that are poison until a thread of the kernel waits for what was launched before.

    For libraries with `emulated/arrivals.h`. Fails if no thread waited.
    """
    library.has_arrived.restype = ctypes.c_bool
    copies = []
    for name in (each for each in names if held[each].size > 0):
        low, high = np.lib.array_utils.byte_bounds(held[name])
        copies.append(ctypes.create_string_buffer(ctypes.string_at(low, high - low), high - low))
        library.arrive(ctypes.c_void_p(low), copies[-1], ctypes.c_size_t(high - low))
        held[name].view(np.uint8)[...] = 0x5A
    yield
    assert library.has_arrived(), "no thread waited"


@contextmanager
def watched(library: ctypes.CDLL, held: Arrays) -> Iterator[None]:
    """Operands behind which asynchronous copies may read nothing, not to the end of a vector.

    For libraries with `emulated/watched.h`.
    """
    library.end_watch.restype = ctypes.c_bool
    for values in (each for each in held.values() if each.size > 0):
        low, high = np.lib.array_utils.byte_bounds(values)
        library.watch(ctypes.c_void_p(low), ctypes.c_size_t(high - low))
    try:
        yield
    finally:
        has_read_behind = library.end_watch()
    assert not has_read_behind, "a copy read behind an operand"


def assert_same(held: Arrays, wanted: Arrays, what: str) -> None:
    """Every output has the bits of the reference."""
    for name, values in wanted.items():
        assert np.ascontiguousarray(held[name]).tobytes() == values.tobytes(), f"{what}: {name}"


class Shape(ctypes.Structure):
    """A shape, as the core has it."""

    _fields_ = (("rank", ctypes.c_int32), ("dims", ctypes.c_int64 * 8))


def shape_of(extents: tuple[int, ...]) -> Shape:
    """These extents."""
    return Shape(len(extents), (ctypes.c_int64 * 8)(*extents))
