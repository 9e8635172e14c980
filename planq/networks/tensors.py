"""Memory of a GPU as planq takes it: a pointer, extents and strides, which can be cut and reshaped.

Nothing here calls CUDA.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from planq.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Place(NamedTuple):
    """A CUDA device, as array libraries name it."""

    id: int


class CudaTensor:
    """Elements in the memory of a GPU. planq takes it by the CUDA array interface.

    Attributes:
        owner: What the memory belongs to, and lives as long as any tensor of it.
        pointer: The address of the first element.
        shape: Extents.
        strides: Elements from one index to the next, for each axis.
        dtype: Element type.
        device: Where it is.
    """

    __slots__ = ("device", "dtype", "owner", "pointer", "shape", "strides")

    def __init__(
        self,
        owner: Any,
        pointer: int,
        shape: Sequence[int],
        dtype: Any,
        device: Place,
        strides: Sequence[int] | None = None,
    ) -> None:
        self.owner, self.pointer, self.device = owner, pointer, device
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.strides = dense(self.shape) if strides is None else tuple(strides)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Pointer, shape, strides and type; nobody has to wait for a stream."""
        return {
            "version": 3,
            "data": (self.pointer, False),
            "shape": self.shape,
            "strides": tuple(stride * self.dtype.itemsize for stride in self.strides),
            "typestr": self.dtype.str,
        }

    @property
    def size(self) -> int:
        """How many elements there are."""
        return int(math.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """Their bytes."""
        return int(self.size * self.dtype.itemsize)

    @property
    def is_dense(self) -> bool:
        """Whether there are no gaps between elements, in the order of C."""
        axes = zip(self.shape, self.strides, dense(self.shape), strict=True)
        return self.size == 0 or all(extent == 1 or own == no for extent, own, no in axes)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<CudaTensor {self.shape} {self.dtype.name} on cuda:{self.device.id}>"

    def __getitem__(self, index: Any) -> CudaTensor:
        """Rows, columns, or an element of an axis: integers and slices without steps."""
        wanted = index if isinstance(index, tuple) else (index,)
        if len(wanted) > len(self.shape):
            raise ArgumentError("index", f"{len(self.shape)} axes at most", str(len(wanted)))
        offset, shape, strides = 0, list[int](), list[int]()
        for axis, each in enumerate(wanted):
            extent, stride = self.shape[axis], self.strides[axis]
            if isinstance(each, slice):
                start, stop, step = each.indices(extent)
                if step != 1:
                    raise ArgumentError("index", "slices without steps", str(each))
                shape.append(max(0, stop - start))
                strides.append(stride)
                offset += start * stride if stop > start else 0
            else:
                if not -extent <= each < extent:
                    raise ArgumentError("index", f"{-extent} to {extent - 1}", str(each))
                offset += each % extent * stride
        shape += self.shape[len(wanted) :]
        strides += self.strides[len(wanted) :]
        return self._with(shape, strides, offset)

    def reshape(self, *shape: Any) -> CudaTensor:
        """The same elements with other axes, where that needs no copy.

        A tensor without gaps takes any shape. Of others the last axis can be cut in several.
        """
        wanted = known(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        extents = filled(wanted, self.size)
        if self.is_dense:
            return self._with(extents, dense(extents), 0)
        *outer, last = self.shape
        inner = extents[len(outer) :]
        if extents[: len(outer)] != tuple(outer) or math.prod(inner) != last:
            expected = f"{tuple(outer)} and parts of {last}, as there are gaps in memory"
            raise ArgumentError("shape", expected, str(extents))
        cut = tuple(stride * self.strides[-1] for stride in dense(inner))
        return self._with(extents, self.strides[: len(outer)] + cut, 0)

    def _with(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> CudaTensor:
        """A view, which begins so many elements behind this one."""
        pointer = self.pointer + offset * self.dtype.itemsize
        return CudaTensor(self.owner, pointer, shape, self.dtype, self.device, strides)


def repeated(row: Any, rows: int) -> Any:
    """A tensor of one row, (1, columns), as so many rows that are the same memory."""
    shape = (rows, row.shape[1])
    if isinstance(row, np.ndarray):
        return np.broadcast_to(row, shape)
    return CudaTensor(row.owner, row.pointer, shape, row.dtype, row.device, (0, 1))


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps, in the order of C."""
    strides, step = list[int](), 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def known(shape: Any) -> tuple[int, ...]:
    """Extents as integers."""
    return tuple(int(extent) for extent in shape)


def filled(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """A shape whose one extent of -1 is what the others leave."""
    others = math.prod(extent for extent in shape if extent >= 0)
    made = tuple(extent if extent >= 0 else size // max(others, 1) for extent in shape)
    if sum(extent < 0 for extent in shape) > 1 or math.prod(made) != size:
        raise ArgumentError("shape", f"axes of {size} elements", str(shape))
    return made
