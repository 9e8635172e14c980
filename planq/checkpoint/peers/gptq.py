"""Layers of GPTQ: ``qweight``, ``qzeros``, ``scales`` and ``g_idx``.

A word of ``qweight`` (k / 8, n) has eight codes of one column of outputs, along k, the lowest bits
first; with codes of 8 bits it has four. ``qzeros`` (groups, n / 8) has zero points along n. The
weight is ``scale * (code - zero_point)``. In the first version of the format ``qzeros`` has one
less than the zero point, in ``gptq_v2`` the zero point itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import planq
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.peers.layer import Layer, StoredAs
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

_VERSIONS = ("gptq", "gptq_v2")


def gptq_layers(shards: PartSource, module: str, config: PeerConfig | None) -> list[Layer]:
    """Returns the layer of a module.

    Raises:
        CheckpointError: A tensor or the config is not what the format has, or nothing tells the
            version of the format.
    """
    if config is None:
        what = "GPTQ without a quantization_config, which alone tells gptq and gptq_v2 apart"
        raise CheckpointError(f"{shards.path}: {module!r}: {what}: zero points differ by one")
    bits, version = _options(config)
    qweight = find(shards, f"{module}.qweight", ("I32",), (None, None))
    k, n = qweight.shape[0] * WORD // bits, qweight.shape[1]
    scales = find(shards, f"{module}.scales", FLOATS, (None, n))
    groups = scales.shape[0]
    if n * bits % WORD:
        raise qweight.refused(f"a multiple of {WORD // bits} columns", qweight.entry.words)
    qzeros = find(shards, f"{module}.qzeros", ("I32",), (groups, n * bits // WORD))
    told = config.integer("group_size", 128)
    size = group_size(scales, k, groups, {told if told > 0 else max(k, 1)})
    parts = {"weight": qweight, "weight_scale": scales, "weight_zero_point": qzeros}
    order = f"{module}.g_idx"
    act_order = config.flag("desc_act", usual=False)
    if act_order or order in shards.by_name:
        parts["g_idx"] = find(shards, order, ("I32", "I64"), (k,))
    parts |= with_bias(shards, module, n)

    def decode(parts: Mapping[str, Part]) -> dict[str, Array]:
        if "g_idx" in parts:
            check_order(parts["g_idx"], k, size)
        return _decoded(parts, bits, version)

    four_bits = bits == 4
    fields: dict[str, Any] = {
        "code_dtype": planq.DType.UINT4 if four_bits else planq.DType.UINT8,
        "weight_scope": planq.Scope.group(size),
        "weight_mode": planq.Mode.ASYMMETRIC,
        "scale_dtype": scale_dtype(scales),
        "zero_point_dtype": planq.DType.UINT8,
        "nibble_order": planq.NibbleOrder.LOW_FIRST,
    }
    kind = planq.Linear4BitDescriptor if four_bits else planq.LinearMixedDescriptor
    encode = partial(_encoded, bits=bits, version=version)
    return [Layer(module, version, (n, k), kind, fields, parts, decode, encode)]


def _options(config: PeerConfig) -> tuple[int, StoredAs]:
    bits = config.integer("bits")
    if bits not in (4, 8):
        raise config.refused("bits", "4 or 8", bits)
    key = "checkpoint_format" if config.values.get("checkpoint_format") is not None else "format"
    version = StoredAs(config.word(key, _VERSIONS, "gptq"))
    config.word("pack_dtype", ("int32",), "int32")
    dynamic = config.values.get("dynamic")
    if dynamic:
        raise config.refused("dynamic", "the same options for every layer", dynamic)
    return bits, version


def _decoded(parts: Mapping[str, Part], bits: int, version: StoredAs) -> dict[str, Array]:
    # The bytes of a word are its codes, two a byte and the low nibble first, in order along k.
    codes = np.ascontiguousarray(parts["weight"].read().T).view(np.uint8)
    zeros = bits_of(parts["weight_zero_point"].read(), bits)
    if version is StoredAs.GPTQ:
        if (zeros == 2**bits - 1).any():
            raise parts["weight_zero_point"].refused(
                f"numbers of 0 to {2**bits - 2}, one less than the zero points",
                f"{2**bits - 1}: a zero point of 0 overflows to it, and spoils those after it",
            )
        zeros += np.uint8(1)
    return {
        "weight": codes,
        "weight_scale": np.ascontiguousarray(parts["weight_scale"].scales().T),
        "weight_zero_point": np.ascontiguousarray(zeros.T),
    }


def _encoded(operands: Mapping[str, Array], bits: int, version: StoredAs) -> dict[str, Array]:
    zeros = operands["weight_zero_point"]
    if version is StoredAs.GPTQ:
        zeros = zeros - np.uint8(1)
    return {
        "weight": np.ascontiguousarray(operands["weight"].view("<i4").T),
        "weight_scale": np.ascontiguousarray(operands["weight_scale"].T),
        "weight_zero_point": words_of(np.ascontiguousarray(zeros.T), bits),
    }
