"""The state of a blockwise quantized tensor (all but its codes), in bitsandbytes' layout."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Final

from planq.arguments import DTypeField
from planq.dtypes import DType
from planq.errors import ArgumentError, DescriptorError, shown

_PACKED_KEY: Final = "quant_state.bitsandbytes__"
_QUANT_TYPES: Final = ("nf4", "fp4", "int4", "af4")
_JSON: Final = "JSON in a uint8 tensor"
_FLOATS: Final = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)
_STATISTICS: Final = ("float32", "float64")
# In bitsandbytes' order, so that the packed form has the same bytes.
_KEYS: Final = ("quant_type", "absmax", "blocksize", "quant_map", "dtype", "shape")
_NESTED_KEYS: Final = (
    "nested_absmax",
    "nested_blocksize",
    "nested_quant_map",
    "nested_dtype",
    "nested_offset",
)
_TENSOR_KEYS: Final = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")


@dataclass(slots=True, kw_only=True, eq=False)
class QuantState:
    """Everything that dequantizing a blockwise quantized tensor needs beside its codes.

    When to use:
        To keep the outputs of :class:`planq.BlockwiseQuantizeDescriptor` together, and to write
        them to, or read them from, checkpoints in the layout of bitsandbytes.

    Formula:
        ``x ~ codebook[code] * absmax[i // block_size]``, ``i`` the index of the element in the flat
        tensor. Where statistics are nested, ``absmax[k]`` is
        ``nested_codebook[absmax[k]] * nested_absmax[k // nested_block_size] + nested_offset``.

    Tensors:
        NumPy arrays or torch tensors, all of one kind and on one device. planq reads only their
        shapes and dtypes. Nothing is copied or moved between devices: the dictionary of
        :meth:`to_dict` has the state's own tensors, and the state of :meth:`from_dict` those of the
        dictionary. The exception is ``nested_offset``: it is a float in the dictionary, as in
        bitsandbytes, and reading it from a GPU waits for that GPU.

    Attributes:
        absmax: The largest magnitude of each block, float32 (float64 for a float64 tensor); with
            nested statistics, uint8 codes of them.
        codebook: The values of the codes, float32: 16 with a ``quant_type``, else 2 to 256.
        block_size: Elements that share an absmax.
        dtype: Element type of the tensor that was quantized, and of what it dequantizes to.
        shape: Shape of that tensor; None if 8-bit codes have that shape themselves.
        quant_type: ``"nf4"``, ``"fp4"``, ``"int4"`` or ``"af4"``; None for 8-bit maps.
        nested_absmax: The largest magnitude of each block of ``absmax`` without its mean.
        nested_codebook: The values of the codes in ``absmax``, float32, 256 of them.
        nested_block_size: Elements of ``absmax`` that share a ``nested_absmax``.
        nested_offset: The mean of all absmax, in a tensor of one element.

        LARGEST_JSON: The most bytes that the JSON of a packed state may have; a tensor that is
            larger is refused before it is read.

    Raises:
        ArgumentError: ``dtype`` is no floating type. :meth:`to_dict` and :meth:`from_dict` check
            the rest.

    Source:
        bitsandbytes ``QuantState``.
    """

    LARGEST_JSON: ClassVar[int] = 1 << 16

    absmax: Any
    codebook: Any
    block_size: int
    dtype: DTypeField
    shape: tuple[int, ...] | None = None
    quant_type: str | None = None
    nested_absmax: Any = None
    nested_codebook: Any = None
    nested_block_size: int | None = None
    nested_offset: Any = None

    def __post_init__(self) -> None:
        self.dtype = _float_dtype(self.dtype)
        self.shape = None if self.shape is None else tuple(self.shape)

    @property
    def nested(self) -> bool:
        """Whether ``absmax`` holds codes."""
        return self.nested_absmax is not None

    def to_dict(self, packed: bool = False) -> dict[str, Any]:
        """The state as bitsandbytes' ``QuantState.as_dict`` returns it.

        Args:
            packed: Whether all values are tensors, as safetensors files require. Other values
                become JSON in a uint8 tensor on the host, under ``quant_state.bitsandbytes__nf4``
                (the ending is ``quant_type``). bitsandbytes reads packed states of nf4 and fp4
                only, and packs none without a ``quant_type``; planq reads all that it writes.

        Returns:
            Keys without a prefix; put ``"<name of the weight>."`` before them in a checkpoint.

        Raises:
            ArgumentError: The state contradicts itself; ``operand`` is the key of the dictionary.
        """
        values = {
            "quant_type": self.quant_type,
            "absmax": self.absmax,
            "blocksize": self.block_size,
            "quant_map": self.codebook,
            "dtype": DType(self.dtype).value,
            "shape": self.shape,
        }
        nested = {
            "nested_absmax": self.nested_absmax,
            "nested_blocksize": self.nested_block_size,
            "nested_quant_map": self.nested_codebook,
            "nested_dtype": _dtype_of("nested_absmax", self.nested_absmax) if self.nested else None,
            "nested_offset": _number(self.nested_offset),
        }
        if any(value is not None for value in nested.values()):
            values |= nested
        _check(values)
        if not packed:
            return values
        tensors = {key: value for key, value in values.items() if key in _TENSOR_KEYS}
        others = {key: value for key, value in values.items() if key not in _TENSOR_KEYS}
        key = _PACKED_KEY + (self.quant_type or "")
        return {**tensors, key: _as_bytes(json.dumps(others), like=self.absmax)}

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> QuantState:
        """Reads what bitsandbytes or :meth:`to_dict` wrote, packed or not.

        Args:
            mapping: The state of one tensor, without the codes. All keys may have the same prefix,
                as ``model.layers.0.weight.absmax`` and
                ``model.layers.0.weight.quant_state.bitsandbytes__nf4``. It is not changed.

        Raises:
            ArgumentError: A key is missing, unknown or duplicate, or a value contradicts another;
                ``operand`` is the key.
        """
        values = _flat(mapping)
        _check(values)
        offset = values.get("nested_offset")
        return cls(
            absmax=values["absmax"],
            codebook=values["quant_map"],
            block_size=values["blocksize"],
            dtype=values["dtype"],
            shape=values["shape"],
            quant_type=values["quant_type"],
            nested_absmax=values.get("nested_absmax"),
            nested_codebook=values.get("nested_quant_map"),
            nested_block_size=values.get("nested_blocksize"),
            nested_offset=None if offset is None else _one(offset, like=values["nested_absmax"]),
        )


def _flat(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The values by key without prefix; a packed form is unpacked."""
    if not isinstance(mapping, Mapping):
        raise ArgumentError("mapping", "a mapping", type(mapping).__name__)
    values: dict[str, Any] = {}
    first: tuple[str, str] | None = None
    for key, value in mapping.items():
        prefix, name = _split(key)
        first = first or (prefix, key)
        if prefix != first[0]:
            raise ArgumentError(key, f"the prefix of {first[1]!r}", "another")
        found = {name: value} if name in _KEYS + _NESTED_KEYS else _unpacked(key, name, value)
        for plain, item in found.items():
            if plain in values:
                raise ArgumentError(plain, "one value", "two", f"the second is in {key!r}")
            values[plain] = item
    return values


def _split(key: object) -> tuple[str, str]:
    """The prefix of a key, and the rest."""
    if not isinstance(key, str):
        raise ArgumentError(shown(key), "a key of a quantization state", "another")
    start = key.rfind(_PACKED_KEY)
    if start < 0:
        start = key.rfind(".") + 1
    prefix, name = key[:start], key[start:]
    known = (*_KEYS, *_NESTED_KEYS, _PACKED_KEY, *(_PACKED_KEY + kind for kind in _QUANT_TYPES))
    if name not in known or (prefix and not prefix.endswith(".")):
        raise ArgumentError(key, "a key of a quantization state", "another", "leave it out")
    return prefix, name


def _unpacked(key: str, name: str, value: Any) -> dict[str, Any]:
    """The values in the JSON of a uint8 tensor."""
    content = _bytes_of(key, value)
    try:
        found = json.loads(content.decode())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ArgumentError(key, _JSON, type(value).__name__)
    for inner in found:
        if inner not in _KEYS + _NESTED_KEYS or inner in _TENSOR_KEYS:
            raise ArgumentError(key, "names of values that are no tensors", shown(inner))
    kind = name.removeprefix(_PACKED_KEY)
    if "quant_type" in found and found["quant_type"] not in ([kind] if kind else [None, ""]):
        raise ArgumentError(key, "its quant_type as its ending", shown(found["quant_type"]))
    return found


def _bytes_of(key: str, value: Any) -> bytes:
    """The bytes in a uint8 tensor; its type and size are checked before it is read."""
    shape = tuple(getattr(value, "shape", ()))
    if len(shape) != 1 or _dtype_of(key, value) != "uint8":
        raise ArgumentError(key, _JSON, type(value).__name__)
    if shape[0] > QuantState.LARGEST_JSON:
        expected = f"JSON of at most {QuantState.LARGEST_JSON} bytes"
        raise ArgumentError(key, expected, str(shape[0]))
    array = value.cpu().numpy() if _is_torch(value) else value
    content: bytes = array.tobytes()
    return content


def _check(values: Mapping[str, Any]) -> None:
    """Raises for the first value that is missing or contradicts the others."""
    nested = [key for key in _NESTED_KEYS if values.get(key) is not None]
    for key in _KEYS + (_NESTED_KEYS if nested else ()):
        if key not in values or (values[key] is None and key not in ("quant_type", "shape")):
            advice = f"{nested[0]} is there" if key in _NESTED_KEYS else ""
            raise ArgumentError(key, "a value", "none", advice)
    kind = values["quant_type"]
    if kind is not None and not (isinstance(kind, str) and kind in _QUANT_TYPES):
        expected = ", ".join(_QUANT_TYPES) + " or None"
        raise ArgumentError("quant_type", expected, shown(kind))
    _float_dtype(values["dtype"])
    _check_size("blocksize", values["blocksize"])
    _check_codebook(values)
    blocks = _check_shape(values)
    if nested:
        _check_tensor("absmax", values["absmax"], ("uint8",), blocks)
        _check_nested(values)
    else:
        _check_tensor("absmax", values["absmax"], _STATISTICS, blocks)


def _check_codebook(values: Mapping[str, Any]) -> None:
    if values["quant_type"] is not None:
        return _check_tensor("quant_map", values["quant_map"], ("float32",), 16)
    _check_tensor("quant_map", values["quant_map"], ("float32",), None)
    count = values["quant_map"].shape[0]
    if not 2 <= count <= 256:
        raise ArgumentError("quant_map", "2 to 256 values", str(count))
    return None


def _check_shape(values: Mapping[str, Any]) -> int | None:
    """The number of blocks of the shape; None without a shape."""
    shape = values["shape"]
    if shape is None and values["quant_type"] is None:
        return None
    if not isinstance(shape, list | tuple) or not all(_is_count(n) for n in shape):
        raise ArgumentError("shape", "a list of extents", shown(shape))
    elements: int = prod(shape)
    if not _is_count(elements):
        raise ArgumentError("shape", "a list of extents", shown(shape), "they overflow 63 bits")
    return -(-elements // int(values["blocksize"]))


def _check_nested(values: Mapping[str, Any]) -> None:
    _check_size("nested_blocksize", values["nested_blocksize"])
    _check_tensor("nested_quant_map", values["nested_quant_map"], ("float32",), 256)
    blocks = -(-values["absmax"].shape[0] // int(values["nested_blocksize"]))
    _check_tensor("nested_absmax", values["nested_absmax"], _STATISTICS, blocks)
    stored = _dtype_of("nested_absmax", values["nested_absmax"])
    named = values["nested_dtype"]
    if not isinstance(named, str) or named != stored:
        expected = f"{stored}, the dtype of nested_absmax"
        raise ArgumentError("nested_dtype", expected, shown(named))
    _check_offset(values["nested_offset"], stored)


def _check_offset(offset: Any, dtype: str) -> None:
    if not isinstance(offset, float | int) or isinstance(offset, bool):
        raise ArgumentError("nested_offset", "a number", shown(offset))
    try:
        struct.pack("<d" if dtype == "float64" else "<f", offset)
    except (OverflowError, struct.error):
        raise ArgumentError(
            "nested_offset", f"a number that {dtype} holds", shown(offset)
        ) from None


def _check_size(key: str, size: Any) -> None:
    if not _is_count(size) or size < 1:
        raise ArgumentError(key, "an integer of at least 1", shown(size))


def _is_count(value: Any) -> bool:
    """Whether it is an integer from 0 to 2^63 - 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _check_tensor(key: str, tensor: Any, dtypes: tuple[str, ...], count: int | None) -> None:
    """Raises unless a tensor has one axis of `count` elements (None: any), of one of the dtypes."""
    dtype, shape = _dtype_of(key, tensor), tuple(tensor.shape)
    wanted = "(n,)" if count is None else f"({count},)"
    if dtype not in dtypes or len(shape) != 1 or count not in (None, shape[0]):
        raise ArgumentError(key, f"shape {wanted} {' or '.join(dtypes)}", f"shape {shape} {dtype}")


def _dtype_of(key: str, tensor: Any) -> str:
    """The plain name of a tensor's dtype."""
    if not hasattr(tensor, "shape") or not hasattr(tensor, "dtype"):
        raise ArgumentError(key, "a tensor", type(tensor).__name__)
    return str(tensor.dtype).removeprefix("torch.")


def _float_dtype(value: Any) -> DType:
    try:
        dtype = DType.parse(value)
    except DescriptorError:
        dtype = None
    if dtype not in _FLOATS:
        raise ArgumentError("dtype", ", ".join(_FLOATS), shown(value))
    return dtype


def _number(value: Any) -> Any:
    """A tensor of one element as a Python float, which holds it exactly."""
    single = hasattr(value, "item") and prod(value.shape) == 1
    return value.item() if single else value


def _is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")  # not imported: then no object is a torch tensor
    return torch is not None and isinstance(tensor, torch.Tensor)


def _one(value: float, like: Any) -> Any:
    """A tensor of one element, of the library, dtype and device of another one."""
    if _is_torch(like):
        return like.new_full((1,), value)
    import numpy as np  # not above: importing planq does not import NumPy

    return np.full(1, value, like.dtype)


def _as_bytes(text: str, like: Any) -> Any:
    """A uint8 tensor on the host, of the library of another one."""
    data = bytearray(text.encode())
    if _is_torch(like):
        import torch

        return torch.frombuffer(data, dtype=torch.uint8)
    import numpy as np

    return np.frombuffer(data, np.uint8)
