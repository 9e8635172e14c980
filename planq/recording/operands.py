"""Operands of a run as native code describes them, and their copies on the host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planq import _core
from planq.recording.ring import Bytes

ITEM_BYTES: Final[dict[str, int]] = {name: (bits + 7) // 8 for name, _, bits, *_ in _core.formats()}
"""Bytes of an element in memory, by the name of its type."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor or a scalar of one call.

    Attributes:
        name: The operand.
        member: Which tensor of a list; -1 if the operand is no list.
        pointer: The address of its first element; None for a scalar by value.
        dtype: The name of the element type in memory.
        shape: Its extents.
        strides: In elements.
        bits: Of a scalar by value, as an unsigned integer of 64 bits; otherwise None.
    """

    name: str
    member: int
    pointer: int | None
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bits: int | None

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, without gaps."""
        return 0 if self.bits is not None else math.prod(self.shape) * ITEM_BYTES[self.dtype]


class _Lent:
    """Memory of the caller's by NumPy's array interface."""

    def __init__(self, tensor: Tensor, itemsize: int) -> None:
        strides = tuple(stride * itemsize for stride in tensor.strides)
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": tensor.shape,
            "strides": strides,
            "typestr": f"|u{itemsize}",
            "data": (tensor.pointer, True),
        }


def copy_from_host(target: Bytes, tensor: Tensor) -> None:
    """Copies the elements of a tensor in host memory, one after another without gaps."""
    if target.size == 0:
        return
    itemsize = ITEM_BYTES[tensor.dtype]
    typed: npt.NDArray[Any] = target.view(f"u{itemsize}").reshape(tensor.shape)
    np.copyto(typed, np.asarray(_Lent(tensor, itemsize)))
