"""Layers whose codes are floats of 4 bits, e2m1, in groups along k: MXFP4 and NVFP4.

Two codes a byte, the low nibble first. They stay as they are, and so do their scales:

- MXFP4, groups of 32: ``weight_scale`` (n, k / 32) has bytes e of E8M0, which stand for
  ``2 ** (e - 127)``. gpt-oss has the same in ``NAME_blocks`` (experts, n, k / 32, 16) and
  ``NAME_scales``.
- NVFP4, groups of 16: ``weight_scale`` (n, k / 16) is float8_e4m3fn, and is divided by one number
  of float32, ``weight_global_scale``. Layers multiply by its inverse, ``fl(1 / global)``, as
  engines do: a scale may differ from the quotient by the last bit of a float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import planq
from planq.checkpoint.peers.layer import Layer, StoredAs
from planq.checkpoint.peers.parts import (
    FLOATS,
    Array,
    Part,
    find,
    with_bias,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planq.checkpoint.files import PartSource

_MX, _NV = 32, 16
_POWERS = ("U8", "F8_E8M0")


def float4_layers(shards: PartSource, module: str) -> list[Layer]:
    """Returns the layer of a module of compressed-tensors.

    Raises:
        CheckpointError: A tensor is not what the format has.
    """
    codes = find(shards, f"{module}.weight_packed", ("U8",), (None, None))
    n, k = codes.shape[0], 2 * codes.shape[1]
    scale = find(shards, f"{module}.weight_scale", (*_POWERS, "F8_E4M3"))
    nv = scale.entry.dtype == "F8_E4M3"
    size = _NV if nv else _MX
    if k % size:
        raise codes.refused(f"a multiple of {size // 2} bytes a row", codes.entry.words)
    scale = find(shards, scale.entry.name, ("F8_E4M3",) if nv else _POWERS, (n, k // size))
    parts = {"weight": codes, "weight_scale": scale}
    if nv:
        name = f"{module}.weight_global_scale"
        parts["tensor_scale"] = find(shards, name, ("F32",), (1,))
    parts |= with_bias(shards, module, n)
    stored_as = StoredAs.NVFP4_PACK_QUANTIZED if nv else StoredAs.MXFP4_PACK_QUANTIZED
    return [_layer(module, stored_as, (n, k), size, parts)]


def block_layers(shards: PartSource, name: str) -> list[Layer]:
    """Returns the layers in ``NAME_blocks``: one, or one for each expert.

    Raises:
        CheckpointError: A tensor is not what the format has.
    """
    codes = find(shards, f"{name}_blocks", ("U8",))
    if len(codes.shape) not in (3, 4) or codes.shape[-1] != _MX // 2:
        raise codes.refused(f"U8 [experts, n, k / {_MX}, {_MX // 2}]", codes.entry.words)
    scales = find(shards, f"{name}_scales", _POWERS, codes.shape[:-1])
    parts = {"weight": codes, "weight_scale": scales}
    if f"{name}_bias" in shards.by_name:
        parts["bias"] = find(shards, f"{name}_bias", FLOATS, codes.shape[:-2])
    shape = (codes.shape[-3], codes.shape[-2] * _MX)
    if len(codes.shape) == 3:
        return [_layer(name, StoredAs.MXFP4_BLOCKS, shape, _MX, parts)]
    return [
        _layer(
            f"{name}[{expert}]",
            StoredAs.MXFP4_BLOCKS,
            shape,
            _MX,
            {key: part.of_layer(expert) for key, part in parts.items()},
        )
        for expert in range(codes.shape[0])
    ]


def _layer(
    name: str, stored_as: StoredAs, shape: tuple[int, int], size: int, parts: dict[str, Part]
) -> Layer:
    fields: dict[str, Any] = {
        "code_dtype": planq.DType.FLOAT4_E2M1FN,
        "weight_scope": planq.Scope.group(size),
        "scale_dtype": planq.DType.FLOAT8_E8M0FNU if size == _MX else planq.DType.FLOAT8_E4M3FN,
        "nibble_order": planq.NibbleOrder.LOW_FIRST,
    }

    n, k = shape

    def decode(parts: Mapping[str, Part]) -> dict[str, Array]:
        operands = {
            "weight": parts["weight"].read().reshape(n, k // 2),
            "weight_scale": parts["weight_scale"].read().reshape(n, k // size),
        }
        return operands | _tensor_scale(parts)

    kind = planq.Linear4BitDescriptor
    untold = ("tensor_scale",)
    return Layer(name, stored_as, shape, kind, fields, parts, decode, _encoded, untold)


def _encoded(operands: Mapping[str, Array]) -> dict[str, Array]:
    return {name: operands[name] for name in ("weight", "weight_scale")}


def _tensor_scale(parts: Mapping[str, Part]) -> dict[str, Array]:
    """The inverse of the number that scales are divided by, where there is one."""
    if "tensor_scale" in parts:
        divisor = parts["tensor_scale"].read()
        if not 0 < divisor[0] < np.inf:
            raise parts["tensor_scale"].refused("a positive finite number", str(divisor[0]))
        with np.errstate(over="ignore"):
            return {"tensor_scale": np.float32(1) / divisor}
    return {}
