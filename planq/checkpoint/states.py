"""Weights in bitsandbytes' layout: codes under the weight's name, and their state beside them.

A state is what `planq.QuantState` packs: tensors under ``NAME.absmax`` and the like, and the rest
as JSON under ``NAME.quant_state.bitsandbytes__nf4``. It has everything that restoring needs. So a
file needs no metadata, and any program may have written it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import planq
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.files import TensorEntry, expect
from planq.checkpoint.header import BITS
from planq.checkpoint.schemes import FORMAT_NAME, STORAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planq.checkpoint.files import TensorSource
    from planq.executors import Bytes

Array = npt.NDArray[Any]

_PACKED = "quant_state.bitsandbytes__"
_TENSORS = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
# The key of the codes, beside the keys of the state.
_CODES = ""

_NUMPY = {STORAGE[name]: np.dtype(name) for name in ("uint8", "float32", "float64")}
# "-2.2250738585072014e-308": no float64 takes more characters.
_LONGEST_NUMBER = 24


@dataclass(frozen=True, slots=True)
class CodebookWeight:
    """A weight as the file holds it.

    Attributes:
        original: The weight before it was quantized; its payload is not in the file.
        parts: The tensors that the weight became, by their key in the state.
        state: The state; its arrays have shapes and types, but may lack the values.
    """

    original: TensorEntry
    parts: dict[str, TensorEntry]
    state: planq.QuantState

    @property
    def nbytes(self) -> int:
        """Size of all parts."""
        return sum(part.nbytes for part in self.parts.values())

    def restoring(self, dtype: planq.DType | None = None) -> planq.BlockwiseDequantizeDescriptor:
        """Returns the descriptor that dequantizes it, to ``dtype`` or to the weight's own type."""
        state = self.state
        statistics = state.nested_absmax if state.nested else state.absmax
        return planq.BlockwiseDequantizeDescriptor(
            shape=self.original.shape,
            input_dtype=planq.DType.UINT4 if state.quant_type else planq.DType.UINT8,
            output_dtype=dtype or state.dtype,
            entries=len(state.codebook),
            block_size=state.block_size,
            absmax_dtype=statistics.dtype,
            nested_block_size=state.nested_block_size,
        )

    def values(self, payload: Bytes) -> Bytes:
        """Returns the bytes that the plans read: the weight as it is."""
        return payload

    def payloads(self, made: Mapping[str, Bytes]) -> dict[str, Bytes]:
        """Returns the bytes of each part, made from the outputs of the quantization."""
        measured = {
            name: data.view(getattr(self.state, name).dtype)
            for name, data in made.items()
            if name != "output"
        }
        tensors = _packed(replace(self.state, **measured))
        return {_CODES: made["output"]} | {
            key: data.view(np.uint8) for key, data in tensors.items()
        }

    def inputs(self, payloads: Mapping[str, Bytes]) -> dict[str, Bytes]:
        """Returns the operands of the dequantization, made from the bytes of the parts."""
        state = planq.QuantState.from_dict(
            {
                key: payloads[key].view(_NUMPY[part.dtype])
                for key, part in self.parts.items()
                if key != _CODES
            }
        )
        read = self.restoring().operands().keys() - {"input", "output"}
        statistics = {name: getattr(state, name).view(np.uint8) for name in read}
        return {"input": payloads[_CODES], **statistics}


def codebook_weight(
    original: TensorEntry, desc: planq.BlockwiseQuantizeDescriptor, storage: str = "uint8"
) -> CodebookWeight:
    """Returns the form in which a weight will be stored, before it is quantized.

    Args:
        original: The weight.
        desc: The descriptor that will make its codes.
        storage: The element type of the tensor that holds 4-bit codes.

    Raises:
        CheckpointError: The codes do not fill a whole number of such elements.
    """
    operands = desc.operands()
    four_bits = desc.output_dtype is planq.DType.UINT4
    measured = {
        name: _without_values(np.dtype(spec.storage), spec.extents)
        for name, spec in operands.items()
        if name not in ("input", "output")
    }
    state = planq.QuantState(
        codebook=getattr(planq.codebooks, desc.codebook.value)(),
        block_size=desc.block_size,
        dtype=desc.input_dtype,
        shape=desc.shape,
        quant_type=desc.codebook.value if four_bits else None,
        nested_codebook=planq.codebooks.dynamic() if desc.nested_block_size else None,
        nested_block_size=desc.nested_block_size,
        **measured,
    )
    nbytes = operands["output"].nbytes
    stored = STORAGE[storage]
    size = BITS[stored] // 8
    if nbytes % size:
        what = f"{nbytes} bytes of codes are no whole number of {storage}"
        raise CheckpointError(f"--quant-storage: tensor {original.name!r}: {what}")
    shape = (nbytes // size, 1) if four_bits else desc.shape
    codes = TensorEntry(original.name, stored, shape, nbytes)
    tensors = {
        key: TensorEntry(
            f"{original.name}.{key}", STORAGE[values.dtype.name], values.shape, values.nbytes
        )
        for key, values in _packed(state).items()
    }
    return CodebookWeight(original, {_CODES: codes, **tensors}, state)


def read_states(reader: TensorSource) -> dict[str, CodebookWeight]:
    """Finds the weights of open files that have a state, by name, and checks their parts.

    Raises:
        CheckpointError: A state contradicts itself or its codes, or has none.
    """
    states: dict[str, dict[str, TensorEntry]] = {}
    for entry in reader.by_name.values():
        name, dot, kind = entry.name.rpartition("." + _PACKED)
        if dot:
            states.setdefault(name, {})[_PACKED + kind] = entry
    return {name: _read_state(reader, name, packed) for name, packed in states.items()}


def _read_state(
    reader: TensorSource, name: str, packed: Mapping[str, TensorEntry]
) -> CodebookWeight:
    named = {key: reader.by_name.get(f"{name}.{key}") for key in _TENSORS}
    tensors = {key: entry for key, entry in named.items() if entry}
    values = {
        key: _without_values(_numpy(reader, entry), entry.shape) for key, entry in tensors.items()
    }
    values |= {key: _json(reader, entry) for key, entry in packed.items()}
    codes = reader.by_name.get(name)
    if codes is None:
        raise CheckpointError(f"{reader.path}: no tensor {name!r}, but a state of it")
    try:
        state = planq.QuantState.from_dict(values)
        original = _original(codes, state)
        weight = CodebookWeight(original, {_CODES: codes, **tensors, **packed}, state)
        operands = weight.restoring().operands()
    except (planq.ArgumentError, planq.DescriptorError) as error:
        raise CheckpointError(f"{reader.path}: state of {name!r}: {error}") from error
    _check_codes(reader, weight, operands)
    return replace(weight, original=replace(original, nbytes=operands["output"].nbytes))


def _json(reader: TensorSource, entry: TensorEntry) -> Array:
    """The tensor that has a state's JSON; one that is too large for JSON is not read."""
    dtype = _numpy(reader, entry)
    if entry.nbytes > planq.QuantState.LARGEST_JSON:
        return _without_values(dtype, (entry.nbytes // dtype.itemsize,))
    return reader.tensor(entry).view(dtype)


def _original(codes: TensorEntry, state: planq.QuantState) -> TensorEntry:
    """The weight that a state describes; for 8-bit codes, its shape may be that of the codes."""
    shape = codes.shape if state.shape is None else state.shape
    return TensorEntry(codes.name, FORMAT_NAME[planq.DType(state.dtype)], shape, 0)


def _check_codes(
    reader: TensorSource, weight: CodebookWeight, operands: Mapping[str, planq.OperandSpec]
) -> None:
    """Refuses codes whose number is not the one that the state implies.

    4-bit codes are compared by bytes alone: bitsandbytes may store them as elements of another
    type, and older versions stored them as a row instead of a column.
    """
    codes = weight.parts[_CODES]
    if weight.state.quant_type is None:
        expect(reader, replace(codes, dtype="U8", shape=weight.original.shape))
    elif codes.nbytes != operands["input"].nbytes:
        expected = f"{operands['input'].nbytes} bytes of codes"
        raise CheckpointError(
            f"{reader.path}: tensor {codes.name!r}: expected {expected}, found {codes.nbytes}"
        )
    absmax = weight.parts["absmax"]
    expect(reader, replace(absmax, shape=operands["absmax"].extents))


def _packed(state: planq.QuantState) -> dict[str, Array]:
    """The tensors of a state, padded so that their sizes do not depend on measured values.

    The mean of nested statistics is a number in the JSON. Blanks pad the JSON to the length that it
    has with the longest number.
    """
    tensors: dict[str, Array] = state.to_dict(packed=True)
    if state.nested:
        key = next(key for key in tensors if key.startswith(_PACKED))
        spare = _LONGEST_NUMBER - len(json.dumps(state.nested_offset.item()))
        tensors[key] = np.pad(tensors[key], (0, spare), constant_values=ord(" "))
    return tensors


def _numpy(reader: TensorSource, entry: TensorEntry) -> np.dtype[Any]:
    if entry.dtype not in _NUMPY:
        types = ", ".join(_NUMPY)
        where = f"{reader.path}: tensor {entry.name!r}"
        raise CheckpointError(f"{where}: expected one of {types}, found {entry.dtype}")
    return _NUMPY[entry.dtype]


def _without_values(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """An array that takes no memory and has only a type and a shape."""
    return np.broadcast_to(np.zeros((), dtype), shape)
