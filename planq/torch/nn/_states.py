"""Between tensors of torch and the parts of a layer that another program stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from planq.checkpoint.failure import TensorError
from planq.checkpoint.files import TensorEntry
from planq.checkpoint.peers.layer import Layer
from planq.checkpoint.peers.parts import FLOATS, Part

_DTYPES: Final = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}
# The types that operands have which NumPy holds as bytes.
_BYTES: Final = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "float8_e8m0fnu": torch.float8_e8m0fnu,
}


class TensorDict:
    """Tensors of a dictionary, as the readers of layers take them.

    Attributes:
        path: What errors name as the place of a tensor.
        by_name: The tensors, by name; those of types that files do not have are left out.
    """

    path = Path("state_dict")

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = {
            name: tensor
            for name, tensor in tensors.items()
            if isinstance(tensor, torch.Tensor) and tensor.dtype in _NAMES
        }
        self.by_name = {
            name: TensorEntry(name, _NAMES[tensor.dtype], tuple(tensor.shape), tensor.nbytes)
            for name, tensor in self._tensors.items()
        }

    def home(self, name: str) -> Path:
        """The same for every tensor."""
        return self.path

    def tensor(self, entry: TensorEntry) -> Any:
        """The bytes of a tensor, in new memory on the host."""
        return self.piece(entry, 0, entry.nbytes)

    def piece(self, entry: TensorEntry, at: int, count: int) -> Any:
        """Some bytes of a tensor, in new memory on the host.

        Raises:
            TensorError: It has no memory.
        """
        tensor = self._tensors[entry.name].detach()
        if tensor.device.type == "meta":
            raise TensorError(self.path, entry.name, "numbers in memory", f"{entry.words} on meta")
        data = bytes_of(tensor)
        return data[at : at + count].copy()


def bytes_of(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor as a NumPy array on the host."""
    # One element may have any stride, which a view of its bytes does not take.
    copied = tensor.cpu().clone(memory_format=torch.contiguous_format)
    return copied.reshape(-1).view(torch.uint8).numpy()


def operands_of(layer: Layer) -> dict[str, torch.Tensor]:
    """The operands of a layer on the host, each in the type that the layer's tensors have.

    Scales and biases of bfloat16 and float16 are widened by the reader, which loses nothing. Here
    they get their own type again.

    Raises:
        CheckpointError: Values mean nothing in the format, or the files changed.
        OSError: The system refused.
    """
    operands = {}
    for name, values in layer.operands().items():
        tensor = torch.from_numpy(values)
        part = layer.parts.get(name)
        if part is not None and part.entry.dtype in FLOATS and tensor.is_floating_point():
            tensor = tensor.to(_DTYPES[part.entry.dtype])
        field = {"weight": "code_dtype", "weight_scale": "scale_dtype"}.get(name, "")
        dtype = _BYTES.get(str(layer.fields.get(field)))
        operands[name] = tensor if dtype is None else tensor.view(dtype)
    return operands


def kept_of(part: Part) -> torch.Tensor:
    """A part that no operand tells, as it is."""
    return part_tensor(part.read(), part.entry.dtype, part.shape)


def as_numpy(tensor: torch.Tensor) -> Any:
    """An operand as NumPy has it: bfloat16 as float32, floats of 8 bits as bytes."""
    host = tensor.detach().cpu()
    if host.dtype == torch.bfloat16:
        host = host.float()
    return host.view(torch.uint8).numpy() if host.dtype in _BYTES.values() else host.numpy()


def part_tensor(values: Any, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A part as a tensor.

    Args:
        values: Numbers of float16 or float32, or else the bytes of the tensor.
        dtype: Its type, by the name that files have for it.
        shape: Its shape.
    """
    wanted = _DTYPES[dtype]
    if values.dtype.kind == "f" and dtype in FLOATS:
        return torch.from_numpy(np.ascontiguousarray(values)).to(wanted).reshape(shape)
    data = torch.from_numpy(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    return data.view(wanted).reshape(shape)


def name_of(dtype: torch.dtype) -> str:
    """The name that files have for a type."""
    return _NAMES[dtype]


def dtype_of(name: str) -> torch.dtype:
    """Torch's dtype of a type, by the name that files have for it."""
    return _DTYPES[name]
