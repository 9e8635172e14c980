"""Layers of compressed-tensors' ``pack-quantized``: integers of 4 or 8 bits in words along k.

``weight_packed`` (n, k / 8) has a row's codes, the lowest bits first, plus 8 (of 8 bits: plus 128).
``weight_scale`` is (n, groups), (n, 1) or (1,), ``weight_shape`` is (n, k). Asymmetric schemes have
``weight_zero_point`` (n / 8, groups), packed along n, with the same offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import planq
from planq.checkpoint.peers.layer import Layer, LinearDescriptor, StoredAs
from planq.checkpoint.peers.parts import (
    FLOATS,
    WORD,
    Array,
    Part,
    bits_of,
    check_order,
    find,
    group_size,
    scale_dtype,
    with_bias,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planq.checkpoint.files import PartSource
    from planq.checkpoint.peers.config import PeerConfig

_BITS = (4, 8)
# The offset of signed codes turns the sign bit of each.
_FLIPS = {planq.DType.INT4: 0x88, planq.DType.INT8: 0x80}


@dataclass(frozen=True, slots=True)
class _Scheme:
    """What a group of the config has for its layers; group_size is None for whole rows."""

    bits: int
    group_size: int | None
    symmetric: bool


def packed_layers(shards: PartSource, module: str, config: PeerConfig | None) -> list[Layer]:
    """Returns the layer of a module.

    Raises:
        CheckpointError: A tensor or the config is not what the format has.
    """
    schemes = _schemes(config) if config else []
    codes = find(shards, f"{module}.weight_packed", ("I32",), (None, None))
    shape = find(shards, f"{module}.weight_shape", ("I64", "I32"), (2,))
    n, k = map(int, shape.read())
    if (n, min(k, 0)) != (codes.shape[0], 0):
        raise shape.refused(f"{codes.shape[0]} rows and their width", f"{[n, k]}")
    bits = _bits(codes, k, schemes)
    schemes = [scheme for scheme in schemes if scheme.bits == bits]
    scales = find(shards, f"{module}.weight_scale", FLOATS)
    parts = {"weight": codes, "weight_scale": scales, "shape": shape}
    order, zeros = f"{module}.weight_g_idx", f"{module}.weight_zero_point"
    groups = 1
    if scales.shape != (1,):  # else one scale for all rows
        scales = find(shards, scales.entry.name, FLOATS, (n, None))
        groups = scales.shape[1]
    told = {scheme.group_size or max(k, 1) for scheme in schemes}
    size = group_size(scales, k, groups, told)
    if order in shards.by_name:
        parts["g_idx"] = find(shards, order, ("I32", "I64"), (k,))
    asymmetric = {not scheme.symmetric for scheme in schemes}
    if zeros in shards.by_name or asymmetric == {True}:
        words = -(-n * bits // WORD)
        parts["weight_zero_point"] = find(shards, zeros, ("I32",), (words, groups))
        if asymmetric == {False}:
            raise parts["weight_zero_point"].refused(
                "no zero points, as the config says symmetric", "some"
            )
    kind, fields = _descriptor(bits, groups, size, symmetric="weight_zero_point" not in parts)
    fields["scale_dtype"] = scale_dtype(scales)
    parts |= with_bias(shards, module, n)

    def decode(parts: Mapping[str, Part]) -> dict[str, Array]:
        if "g_idx" in parts:
            check_order(parts["g_idx"], k, size)
        return _decoded(parts, (n, k), bits, fields)

    flip = _FLIPS.get(fields["code_dtype"], 0)
    encode = partial(_encoded, bits=bits, flip=flip, scales=scales.shape)
    return [Layer(module, StoredAs.PACK_QUANTIZED, (n, k), kind, fields, parts, decode, encode)]


def _schemes(config: PeerConfig) -> list[_Scheme]:
    schemes = []
    for group in config.objects("config_groups"):
        weights = group.section("weights")
        if weights.word("type", ("int", "float"), "int") == "float":
            continue
        whole = weights.values.get("group_size") in (None, -1)
        usual = "channel" if whole else "group"
        strategy = weights.word("strategy", ("tensor", "channel", "group"), usual)
        size = weights.integer("group_size") if strategy == "group" else None
        if size is not None and size < 1:
            raise weights.refused("group_size", "a positive number", size)
        symmetric = weights.flag("symmetric", usual=True)
        schemes.append(_Scheme(weights.integer("num_bits", 8), size, symmetric))
    return schemes


def _bits(codes: Part, columns: int, schemes: list[_Scheme]) -> int:
    """The size of a code, which the width of a row in words tells."""
    known = sorted({scheme.bits for scheme in schemes} or set(_BITS))
    found = [bits for bits in known if -(-columns * bits // WORD) == codes.shape[1]]
    if len(found) == 1 and found[0] in _BITS:
        return found[0]
    sizes = " or ".join(str(bits) for bits in known)
    raise codes.refused(
        f"{columns} codes of 4 or 8 bits a row, in words of 32",
        f"{codes.shape[1]} words, with codes of {sizes} bits by the config"
        if schemes
        else f"{codes.shape[1]} words",
    )


def _descriptor(
    bits: int, groups: int, size: int, *, symmetric: bool
) -> tuple[type[LinearDescriptor], dict[str, Any]]:
    four_bits = bits == 4
    fields: dict[str, Any] = {"nibble_order": planq.NibbleOrder.LOW_FIRST} if four_bits else {}
    if symmetric and groups == 1:
        code_dtype = planq.DType.INT4 if four_bits else planq.DType.INT8
        fields |= {"code_dtype": code_dtype, "weight_scope": planq.Scope.channel(0)}
        return planq.LinearMixedDescriptor, fields
    fields["weight_scope"] = planq.Scope.group(size)
    if not symmetric:
        fields["weight_mode"] = planq.Mode.ASYMMETRIC
        fields["zero_point_dtype"] = planq.DType.UINT8
    if not four_bits:
        fields["code_dtype"] = planq.DType.INT8 if symmetric else planq.DType.UINT8
        return planq.LinearMixedDescriptor, fields
    fields["code_dtype"] = planq.DType.INT4 if symmetric else planq.DType.UINT4
    return planq.Linear4BitDescriptor, fields


def _decoded(
    parts: Mapping[str, Part], shape: tuple[int, int], bits: int, fields: Mapping[str, Any]
) -> dict[str, Array]:
    n, k = shape
    words = np.ascontiguousarray(parts["weight"].read())
    data = words.view(np.uint8).reshape(n, WORD // 8 * words.shape[1])
    codes: Array = np.ascontiguousarray(data[:, : -(-k * bits // 8)])
    codes ^= np.uint8(_FLIPS.get(fields["code_dtype"], 0))
    if fields["code_dtype"] is planq.DType.INT8:
        codes = codes.view(np.int8)
    scales = parts["weight_scale"].scales()
    if scales.shape == (1,):
        scales = np.repeat(scales[None], n, axis=0)
    per_row = fields["weight_scope"] == planq.Scope.channel(0)
    operands = {"weight": codes, "weight_scale": scales.reshape(n) if per_row else scales}
    if "weight_zero_point" in parts:
        packed = parts["weight_zero_point"].read()
        operands["weight_zero_point"] = np.ascontiguousarray(bits_of(packed.T, bits)[:, :n].T)
    return operands


def _encoded(
    operands: Mapping[str, Array], bits: int, flip: int, scales: tuple[int, ...]
) -> dict[str, Array]:
    codes = operands["weight"].view(np.uint8) ^ np.uint8(flip)
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % (WORD // 8))))
    scale = operands["weight_scale"]
    stored = {
        "weight": np.ascontiguousarray(padded).view("<i4"),
        "weight_scale": scale.reshape(-1)[:1] if scales == (1,) else scale.reshape(scales),
    }
    if "weight_zero_point" in operands:
        packed = words_of(np.ascontiguousarray(operands["weight_zero_point"].T), bits)
        stored["weight_zero_point"] = np.ascontiguousarray(packed.T)
    return stored
