"""The types that arguments may have, for type checkers; it imports no array library."""

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
        """The name, such as ``float32``."""


class TorchDType(Protocol):
    """A dtype of torch. Its name is the text of ``str``, such as ``torch.float32``."""

    @property
    def is_floating_point(self) -> bool:
        """Whether it is a floating-point type."""


DTypeLike: TypeAlias = "DType | str | type[Any] | NamedDType | TorchDType | None"
"""Whatever names a dtype: a member of DType, its name, a dtype of torch, NumPy or ml_dtypes, or a
scalar class such as ``np.int8``; None for a default."""

DTypeField: TypeAlias = Any
"""A dtype field of a dataclass. It is given as DTypeLike, and holds a member of DType or None. Type
checkers cannot express that a field is given as one type and holds another."""

EnumerationField: TypeAlias = Any
"""An enumeration field of a dataclass. It is given as a member, its name, or None if the other
fields decide, and holds a member."""

Shape: TypeAlias = tuple[Any, ...]
"""Extents in elements, integers or Dims. Any sequence is taken, and the attribute holds a tuple. It
is typed as Any, so that extents that are no Dims can be used as integers."""


class DLPackTensor(Protocol):
    """A tensor of torch, NumPy, CuPy or JAX, whose memory is shared by DLPack."""

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
"""An operand: memory that the caller owns. ``can_implement`` says whether a plan takes it."""

Scalar: TypeAlias = "Tensor | SupportsIndex | SupportsFloat"
"""An operand of one number: the number itself, or an element in memory."""


class CudaStreamObject(Protocol):
    """A stream of torch, CuPy or cuda.core, with ``__cuda_stream__``."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """(version, handle); the handle is a ``cudaStream_t`` as an integer."""


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
