"""Layers of bitsandbytes in 4 bits: codes under ``NAME.weight``, and their state beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import planq
from planq.checkpoint.peers.layer import Layer, StoredAs
from planq.checkpoint.peers.parts import Array, Part, with_bias
from planq.checkpoint.states import CodebookWeight, read_states

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planq.checkpoint.files import PartSource

_TABLES = (planq.Codebook.NF4, planq.Codebook.FP4, planq.Codebook.INT4, planq.Codebook.AF4)
_WEIGHT = ".weight"
# Which part of a state has the operand's numbers.
_PART = {
    "": "weight",
    "quant_map": "codebook",
    "nested_quant_map": "nested_codebook",
}


def state_layers(shards: PartSource) -> dict[str, Layer]:
    """Returns the layers of all states, by the names of their weights.

    Raises:
        CheckpointError: A state contradicts itself or its codes, or no linear layer takes it.
    """
    return {
        name: _layer(shards, name.removesuffix(_WEIGHT), weight)
        for name, weight in read_states(shards).items()
    }


def _layer(shards: PartSource, module: str, weight: CodebookWeight) -> Layer:
    state, codes = weight.state, Part(shards, weight.original)
    parts = {_PART.get(key, key): Part(shards, entry) for key, entry in weight.parts.items()}
    if state.quant_type is None:
        raise codes.refused(
            "codes of 4 bits, which linear_4bit takes",
            "codes of 8 bits; dequantize them, by planq.BlockwiseDequantizeDescriptor",
        )
    if len(weight.original.shape) != 2:
        raise codes.refused("a weight of two axes", str(list(weight.original.shape)))
    statistics = "nested_absmax" if state.nested else "absmax"
    if parts[statistics].entry.dtype != "F32":
        raise parts[statistics].refused("F32", parts[statistics].entry.dtype)
    n, k = weight.original.shape
    table = parts["codebook"].read()
    named = [known for known in _TABLES if _same(table, getattr(planq.codebooks, known.value)())]
    fields: dict[str, Any] = {
        "code_dtype": planq.DType.UINT4,
        "codebook": named[0] if named else planq.Codebook.GIVEN,
        "block_size": state.block_size,
        "nested_block_size": state.nested_block_size,
        "nibble_order": planq.NibbleOrder.HIGH_FIRST,
    }
    parts |= with_bias(shards, module, n)
    packed = next(key for key in weight.parts if key.startswith("quant_state."))
    parts["nested_offset"] = parts.pop(packed)

    def decode(parts: Mapping[str, Part]) -> dict[str, Array]:
        payloads = {key: shards.tensor(entry) for key, entry in weight.parts.items()}
        given = weight.inputs(payloads)
        operands: dict[str, Array] = {"weight": given.pop("input")}
        if named:
            del given["codebook"]
        for name, data in given.items():
            nested_codes = name == "absmax" and state.nested
            operands[name] = data if nested_codes else data.view(np.float32)
        return operands

    kind = planq.Linear4BitDescriptor
    form, untold = StoredAs.BITSANDBYTES, ("nested_offset",)
    return Layer(module, form, (n, k), kind, fields, parts, decode, _encoded, untold)


# The operands that are tensors of the file as they are.
_TENSORS = ("weight", "absmax", "codebook", "nested_absmax", "nested_codebook")


def _encoded(operands: Mapping[str, Array]) -> dict[str, Array]:
    return {name: operands[name] for name in _TENSORS if name in operands}


def _same(table: Array, known: Array) -> bool:
    """Whether two tables have the same bytes."""
    return table.tobytes() == known.tobytes()
