"""Layers of AWQ, in the order of its ``gemm`` kernels: ``qweight``, ``qzeros`` and ``scales``.

A word of ``qweight`` (k, n / 8) has the codes of eight columns of outputs for one k. Its nibbles,
the lowest first, are those of columns 0, 2, 4, 6, 1, 3, 5 and 7. So are those of ``qzeros``
(groups, n / 8). The weight is ``scale * (code - zero_point)``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import planq
from planq.checkpoint.peers.layer import Layer, StoredAs
from planq.checkpoint.peers.parts import (
    FLOATS,
    Array,
    Codes,
    Part,
    find,
    group_size,
    scale_dtype,
    split,
    with_bias,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planq.checkpoint.files import PartSource
    from planq.checkpoint.peers.config import PeerConfig

_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def awq_layers(shards: PartSource, module: str, config: PeerConfig | None) -> list[Layer]:
    """Returns the layer of a module.

    Raises:
        CheckpointError: A tensor or the config is not what the format has.
    """
    told = {_group_size(config)} if config else set()
    qweight = find(shards, f"{module}.qweight", ("I32",), (None, None))
    k, n = qweight.shape[0], qweight.shape[1] * len(_ORDER)
    scales = find(shards, f"{module}.scales", FLOATS, (None, n))
    groups = scales.shape[0]
    qzeros = find(shards, f"{module}.qzeros", ("I32",), (groups, qweight.shape[1]))
    size = group_size(scales, k, groups, {size if size > 0 else max(k, 1) for size in told})
    if k % size:  # nothing but the codes tells k, so a short group may be a row that is missing
        raise qweight.refused(f"a multiple of {size} rows", qweight.entry.words)
    fields: dict[str, Any] = {
        "code_dtype": planq.DType.UINT4,
        "weight_scope": planq.Scope.group(size),
        "weight_mode": planq.Mode.ASYMMETRIC,
        "scale_dtype": scale_dtype(scales),
        "zero_point_dtype": planq.DType.UINT8,
        "nibble_order": planq.NibbleOrder.LOW_FIRST,
    }
    parts = {"weight": qweight, "weight_scale": scales, "weight_zero_point": qzeros}
    parts |= with_bias(shards, module, n)
    kind, encode = planq.Linear4BitDescriptor, partial(_encoded, columns=k)
    return [Layer(module, StoredAs.AWQ, (n, k), kind, fields, parts, _decoded, encode)]


def _group_size(config: PeerConfig) -> int:
    bits = config.integer("bits", 4)
    if bits != 4:
        raise config.refused("bits", "4", bits)
    key = "version" if config.values.get("version") is not None else "format"
    config.word(key, ("gemm",), "gemm")
    if not config.flag("zero_point", usual=True):
        raise config.refused("zero_point", "true", False)
    return config.integer("group_size", 128)


def _decoded(parts: Mapping[str, Part]) -> dict[str, Array]:
    zeros = split(_in_order(parts["weight_zero_point"].read()))
    return {
        "weight": _turned(_in_order(parts["weight"].read())),
        "weight_scale": np.ascontiguousarray(parts["weight_scale"].scales().T),
        "weight_zero_point": np.ascontiguousarray(zeros.T),
    }


def _encoded(operands: Mapping[str, Array], columns: int) -> dict[str, Array]:
    zeros = words_of(np.ascontiguousarray(operands["weight_zero_point"].T), 4)
    return {
        "weight": _mixed(_turned(operands["weight"])[:columns].view("<i4")),
        "weight_scale": np.ascontiguousarray(operands["weight_scale"].T),
        "weight_zero_point": _mixed(zeros),
    }


def _mixed(words: Array) -> Array:
    """The inverse of `_in_order`, of words."""
    ordered = words.view(np.uint32)
    mixed = np.zeros_like(ordered)
    for place, column in enumerate(_ORDER):
        mixed |= ((ordered >> np.uint32(4 * column)) & np.uint32(15)) << np.uint32(4 * place)
    return mixed.view(np.int32)


def _in_order(words: Array) -> Codes:
    """The bytes of words whose nibbles are put into the order of their columns."""
    mixed = words.view(np.uint32)
    ordered = np.zeros_like(mixed)
    for place, column in enumerate(_ORDER):
        ordered |= ((mixed >> np.uint32(4 * place)) & np.uint32(15)) << np.uint32(4 * column)
    return ordered.view(np.uint8)


def _turned(data: Codes) -> Codes:
    """The transpose of a matrix of codes, two a byte and the low nibble first on either side."""
    if data.shape[0] % 2:
        data = np.concatenate([data, np.zeros_like(data[:1])])
    first, second = data[0::2], data[1::2]
    turned = np.empty((2 * data.shape[1], len(first)), np.uint8)
    turned[0::2] = ((first & 0x0F) | (second << 4)).T
    turned[1::2] = ((first >> 4) | (second & 0xF0)).T
    return turned
