"""Layouts in a file of weights that have scales: names, shapes and the order of bytes.

- ``PLAIN``, and ``NAIVE`` of compressed-tensors: codes under the weight's name, one or two a byte,
  and scales under ``NAME_scale``.
- ``PACKED`` of compressed-tensors: unsigned codes packed into int32 under ``NAME_packed``, each row
  padded with zeros; scales under ``NAME_scale``; the weight's shape under ``NAME_shape``; zero
  points of 4 bits under ``NAME_zero_point``, packed likewise, but along columns.
- ``ROWS`` of bitsandbytes: int8 codes under the weight's name; the absmax of each row under
  ``SCB``; 0, which means row-major, under ``weight_format``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

import planq
from planq.checkpoint.files import TensorEntry
from planq.checkpoint.schemes import STORAGE

if TYPE_CHECKING:
    from planq.checkpoint.schemes import Scaling
    from planq.executors import Bytes

_SUFFIX = {"output": "", "scale": "_scale", "zero_point": "_zero_point"}
_WORD_BYTES = 4
# XOR with these sign bits turns two's complement codes into unsigned codes with an offset.
_SIGN_BITS = {planq.DType.INT8: 0x80, planq.DType.INT4: 0x88, planq.DType.UINT4: 0}
# How many zero points of 4 bits a word has.
_NIBBLES = 8
_SHIFTS = np.arange(0, 4 * _NIBBLES, 4, dtype=np.uint32)
_LARGEST_INT8 = np.float32(127)


class Layout(StrEnum):
    """How a weight that has scales is laid out."""

    PLAIN = "plain"
    NAIVE = "naive"
    PACKED = "packed"
    ROWS = "rows"


def parts_of(layout: Layout, original: TensorEntry, desc: Scaling) -> dict[str, TensorEntry]:
    """Returns the tensors that a weight becomes, by operand of the quantization.

    Scales per channel are stored as a column of shape (rows, 1). So they broadcast over the codes,
    and loaders of quantized checkpoints expect that.

    Args:
        layout: The layout.
        original: The weight.
        desc: The descriptor that makes its codes.
    """
    if layout is Layout.ROWS:
        return _row_parts(original)
    column = (1,) if desc.scope.kind == "channel" else ()
    parts = {
        name: TensorEntry(
            original.name + _SUFFIX[name],
            STORAGE[spec.storage],
            spec.extents if name == "output" else spec.extents + column,
            spec.nbytes,
        )
        for name, spec in desc.operands().items()
        if name != "input"
    }
    if layout is Layout.PACKED:
        rows, words = original.shape[0], _words(parts["output"])
        parts["output"] = TensorEntry(
            f"{original.name}_packed", "I32", (rows, words), rows * words * _WORD_BYTES
        )
        if "zero_point" in parts:
            high, groups = -(-rows // _NIBBLES), parts["scale"].shape[1]
            name = parts["zero_point"].name
            size = high * groups * _WORD_BYTES
            parts["zero_point"] = TensorEntry(name, "I32", (high, groups), size)
        parts["shape"] = TensorEntry(f"{original.name}_shape", "I64", (2,), 16)
    return parts


def payloads_of(
    layout: Layout, original: TensorEntry, desc: Scaling, made: dict[str, Bytes]
) -> dict[str, Bytes]:
    """Returns the bytes of each part, made from the operands of the quantization."""
    if layout is Layout.ROWS:
        return {"output": made["output"], "absmax": made["absmax"], "format": np.zeros(1, np.uint8)}
    if layout is Layout.PACKED:
        shape = np.array(original.shape, np.int64).view(np.uint8)
        packed = {**made, "output": _packed(made["output"], original, desc), "shape": shape}
        if "zero_point" in made:
            packed["zero_point"] = _packed_zeros(made["zero_point"], original.shape[0])
        return packed
    return made


def inputs_of(
    layout: Layout, original: TensorEntry, desc: Scaling, payloads: dict[str, Bytes]
) -> dict[str, Bytes]:
    """Returns the operands of the dequantization, made from the bytes of the parts."""
    if layout is Layout.ROWS:
        scale = payloads["absmax"].view(np.float32) / _LARGEST_INT8
        return {"input": payloads["output"], "scale": scale.view(np.uint8)}
    codes = payloads["output"]
    if layout is Layout.PACKED:
        codes = _unpacked(codes, original, desc)
    named = {name: payloads[name] for name in payloads if name not in ("output", "shape")}
    if layout is Layout.PACKED and "zero_point" in named:
        named["zero_point"] = _unpacked_zeros(named["zero_point"], original.shape[0])
    return {"input": codes, **named}


def _row_parts(original: TensorEntry) -> dict[str, TensorEntry]:
    module, rows = original.name.removesuffix("weight"), original.shape[0]
    codes = original.shape[0] * original.shape[1]
    return {
        "output": TensorEntry(original.name, "I8", original.shape, codes),
        "absmax": TensorEntry(f"{module}SCB", "F32", (rows,), 4 * rows),
        "format": TensorEntry(f"{original.name}_format", "U8", (), 1),
    }


def _words(codes: TensorEntry) -> int:
    """How many int32 words a row of codes takes."""
    return -(-codes.shape[-1] // _WORD_BYTES)


def _row_bytes(desc: Scaling) -> int:
    return desc.operands()["output"].extents[-1]


def _packed(codes: Bytes, original: TensorEntry, desc: Scaling) -> Bytes:
    rows, columns = original.shape
    width = _row_bytes(desc)
    packed = np.zeros((rows, -(-width // _WORD_BYTES) * _WORD_BYTES), np.uint8)
    packed[:, :width] = codes.reshape(rows, width) ^ np.uint8(_SIGN_BITS[desc.output_dtype])
    if desc.output_dtype is not planq.DType.INT8 and columns % 2:  # the spare nibble has to be zero
        packed[:, width - 1] &= 0x0F
    return packed.reshape(-1)


def _unpacked(packed: Bytes, original: TensorEntry, desc: Scaling) -> Bytes:
    rows, width = original.shape[0], _row_bytes(desc)
    codes = packed.reshape(rows, -1)[:, :width] ^ np.uint8(_SIGN_BITS[desc.output_dtype])
    return np.ascontiguousarray(codes).reshape(-1)


def _packed_zeros(zeros: Bytes, rows: int) -> Bytes:
    """Returns words of zero points of 8 rows, the first one in the lowest bits."""
    values = zeros.view(np.uint32).reshape(rows, -1)
    padded = np.pad(values, ((0, -rows % _NIBBLES), (0, 0)))
    places = padded.reshape(-1, _NIBBLES, values.shape[1]) << _SHIFTS[:, None]
    words: Bytes = np.bitwise_or.reduce(places, axis=1).reshape(-1).view(np.uint8)
    return words


def _unpacked_zeros(packed: Bytes, rows: int) -> Bytes:
    words = packed.view(np.uint32).reshape(-(-rows // _NIBBLES), -1)
    values = words[:, None, :] >> _SHIFTS[:, None] & 15
    zeros = values.reshape(-1, words.shape[1])[:rows].astype(np.int32)
    return np.ascontiguousarray(zeros).reshape(-1).view(np.uint8)
