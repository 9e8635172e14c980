"""Layers whose codes of 8 bits are ``NAME.weight`` itself, one a byte, with scales beside them.

- compressed-tensors, ``int-quantized``, ``float-quantized`` and ``naive-quantized``:
  ``weight_scale`` is (n, 1), (1,), or (n / 128, k / 128) for blocks of 128 x 128.
- fp8 checkpoints, as DeepSeek's: ``weight_scale_inv`` (n / 128, k / 128). In spite of its name it
  is the scale, not the inverse.
- bitsandbytes' int8: ``SCB`` (n,) has the largest magnitude of each row, 127 times the scale, and
  ``weight_format`` is 0.

A block's scale is given to each of its rows, so a layer of blocks is one of groups of 128.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import planq
from planq.checkpoint.peers.layer import Layer, StoredAs
from planq.checkpoint.peers.parts import FLOATS, Array, Part, find, scale_dtype, with_bias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planq.checkpoint.files import PartSource
    from planq.checkpoint.peers.config import PeerConfig

CODES = {
    "I8": planq.DType.INT8,
    "F8_E4M3": planq.DType.FLOAT8_E4M3FN,
    "F8_E5M2": planq.DType.FLOAT8_E5M2,
}
_BLOCK = 128
_LARGEST = np.float32(127)


def unpacked_layers(source: PartSource, module: str, config: PeerConfig | None) -> list[Layer]:
    """Returns the layer of a module.

    Raises:
        CheckpointError: A tensor or the config is not what the format has.
    """
    codes = find(source, f"{module}.weight", tuple(CODES), (None, None))
    if f"{module}.SCB" in source.by_name:
        return [_of_bitsandbytes(source, module, codes)]
    n, k = codes.shape
    inverse = f"{module}.weight_scale_inv"
    name = inverse if inverse in source.by_name else f"{module}.weight_scale"
    scales = find(source, name, FLOATS)
    rows, groups = _sharing(scales, n, k, config)
    code_dtype = CODES[codes.entry.dtype]
    fields: dict[str, Any] = {
        "code_dtype": code_dtype,
        "weight_scope": planq.Scope.channel(0) if groups is None else planq.Scope.group(_BLOCK),
        "scale_dtype": scale_dtype(scales),
    }
    form = StoredAs.FLOAT_QUANTIZED
    if name == inverse:
        form = StoredAs.FP8
    elif code_dtype is planq.DType.INT8:
        form = StoredAs.INT_QUANTIZED
    parts = {"weight": codes, "weight_scale": scales, **with_bias(source, module, n)}
    decode = partial(_decoded, rows=rows, groups=groups)
    encode = partial(_encoded, rows=rows, shape=scales.shape)
    kind = planq.LinearMixedDescriptor
    return [Layer(module, form, (n, k), kind, fields, parts, decode, encode)]


def _sharing(scales: Part, n: int, k: int, config: PeerConfig | None) -> tuple[int, int | None]:
    """How many rows share a scale, and how many scales a row has; None for one of all columns."""
    if scales.shape in ((1,), (), (1, 1)):
        return max(n, 1), None
    if scales.shape in ((n, 1), (n,)):
        return 1, None
    blocks = (-(-n // _BLOCK), -(-k // _BLOCK))
    if scales.shape != blocks:
        expected = f"a scale for the weight, {[n, 1]} for its rows, or {list(blocks)} for blocks"
        raise scales.refused(f"{expected} of {_BLOCK} x {_BLOCK}", scales.entry.words)
    _check_block_size(config)
    return _BLOCK, blocks[1]


def _check_block_size(config: PeerConfig | None) -> None:
    if config is None:
        return
    told = [(config, "weight_block_size")]
    if config.values.get("config_groups") is not None:
        groups = config.objects("config_groups")
        told += [(group.section("weights"), "block_structure") for group in groups]
    for where, key in told:
        found = where.values.get(key)
        if found not in (None, [_BLOCK, _BLOCK]):
            raise where.refused(key, f"[{_BLOCK}, {_BLOCK}]", found)


def _decoded(parts: Mapping[str, Part], rows: int, groups: int | None) -> dict[str, Array]:
    codes = parts["weight"].read()
    scales = parts["weight_scale"].scales().reshape(-1, groups or 1)
    each = np.repeat(scales, rows, axis=0)[: len(codes)]
    return {"weight": codes, "weight_scale": each.reshape(-1) if groups is None else each}


def _encoded(operands: Mapping[str, Array], rows: int, shape: tuple[int, ...]) -> dict[str, Array]:
    scales = operands["weight_scale"][::rows].copy()
    return {"weight": operands["weight"], "weight_scale": scales.reshape(shape)}


def _of_bitsandbytes(source: PartSource, module: str, codes: Part) -> Layer:
    n, k = codes.shape
    parts = {"weight": find(source, codes.entry.name, ("I8",), (n, k))}
    parts["weight_scale"] = find(source, f"{module}.SCB", ("F32",), (n,))
    order = f"{module}.weight_format"
    if order in source.by_name:
        parts["format"] = find(source, order, ("U8",), ())
    parts |= with_bias(source, module, n)
    fields = {"code_dtype": planq.DType.INT8, "weight_scope": planq.Scope.channel(0)}
    form, kind = StoredAs.BITSANDBYTES_INT8, planq.LinearMixedDescriptor
    untold = ("weight_scale",)  # a quotient by 127 does not tell what was divided
    return Layer(module, form, (n, k), kind, fields, parts, _divided, _codes, untold)


def _divided(parts: Mapping[str, Part]) -> dict[str, Array]:
    if "format" in parts and parts["format"].read() != 0:
        raise parts["format"].refused("0, rows", str(parts["format"].read()))
    return {
        "weight": parts["weight"].read(),
        "weight_scale": parts["weight_scale"].read() / _LARGEST,
    }


def _codes(operands: Mapping[str, Array]) -> dict[str, Array]:
    return {"weight": operands["weight"]}
