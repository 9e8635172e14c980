"""What arguments may be, in one place, for type checkers. Nothing here imports an array library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, SupportsIndex, TypeAlias

from planq.dtypes import DType

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from planq import _core


class NamedDType(Protocol):
    """A dtype of NumPy or ml_dtypes."""

    @property
    def name(self) -> str:
        """Such as ``float32``."""


class TorchDType(Protocol):
    """A dtype of torch, whose text is its name."""

    @property
    def is_floating_point(self) -> bool:
        """Whether its numbers are."""


DTypeLike: TypeAlias = "DType | str | type[Any] | NamedDType | TorchDType | None"
"""What names a dtype: a member of DType, its name, a torch or a NumPy / ml_dtypes dtype, its class;
None where there is a default."""

DTypeField: TypeAlias = Any
"""A dtype field of a dataclass: it is given as DTypeLike and holds the member of DType, or None
where there is none. A type checker knows no field of a dataclass with two types."""

EnumerationField: TypeAlias = Any
"""A field of a dataclass likewise: given as a member of an enumeration, its name, or None where the
other fields decide, it holds the member."""

Shape: TypeAlias = tuple[Any, ...]
"""Extents in elements, integers or Dims: any sequence is taken, and the attribute holds the tuple.
Who gave no Dim may count with what is read."""


class DLPackTensor(Protocol):
    """A tensor of torch, NumPy, CuPy, JAX: memory that is lent by DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """A capsule."""

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """(device type, index)."""


class CudaArray(Protocol):
    """Device memory by the CUDA array interface (Numba, CuPy)."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        """Pointer, shape, strides, type."""


class HostArray(Protocol):
    """Host memory by NumPy's array interface."""

    @property
    def __array_interface__(self) -> Mapping[str, Any]:
        """Pointer, shape, strides, type."""


RawTensor: TypeAlias = "tuple[int, tuple[int, ...], tuple[int, ...] | None, Any, Any]"
"""(pointer, shape, strides in elements or None, dtype, ``"host"`` or ``"cuda:0"``)"""

Tensor: TypeAlias = "DLPackTensor | CudaArray | HostArray | Buffer | RawTensor"
"""An operand: memory that the caller owns. What its plan expects of it, ``can_implement`` says."""

Scalar: TypeAlias = "Tensor | SupportsIndex | SupportsFloat"
"""An operand of one number: the number itself, or an element in memory."""


class CudaStreamObject(Protocol):
    """A stream of torch, CuPy, cuda.core: it answers (version, handle)."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """The handle is a ``cudaStream_t`` as an integer."""


class TorchStream(Protocol):
    """A stream of torch before it had ``__cuda_stream__``."""

    @property
    def cuda_stream(self) -> int:
        """A ``cudaStream_t`` as an integer."""

    @property
    def device_index(self) -> int:
        """The device's ordinal."""


StreamLike: TypeAlias = (
    "_core.HostStream | _core.CudaStream | CudaStreamObject | TorchStream | tuple[int, int]"
)
"""``planq.HOST``, ``planq.host_stream``, ``planq.cuda_stream``, another library's stream, or
(handle, device)."""
