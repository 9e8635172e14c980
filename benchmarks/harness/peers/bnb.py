"""The functions of bitsandbytes that do what an operator does, on the same operands."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import torch

import planq
from harness.formulas.segments import Operands

Call = Callable[[Operands], Any]  # a tuple whose first item is the result

NESTED_BLOCK_SIZE: Final = 256  # the only one that it makes


def call_for(desc: Any) -> Call:
    """The function for a descriptor."""
    library: Any = importlib.import_module("bitsandbytes.functional")
    return _CALLS[desc.operator](library, desc)


def _rows(library: Any, desc: Any) -> Call:
    return lambda given: library.int8_vectorwise_quant(given["input"])


def _codes(library: Any, desc: Any) -> Call:
    size, nested = desc.block_size, desc.nested_block_size
    if desc.output_dtype is planq.DType.UINT8:
        return lambda given: library.quantize_blockwise(
            given["input"], code=given.get("codebook"), blocksize=size
        )
    if nested not in (None, NESTED_BLOCK_SIZE):
        raise RuntimeError(f"blocks of {nested} statistics are not made")
    return lambda given: library.quantize_4bit(
        given["input"],
        blocksize=size,
        compress_statistics=nested is not None,
        quant_type=desc.codebook.value,
    )


def _values(library: Any, desc: Any) -> Call:
    eight_bit = desc.input_dtype is planq.DType.UINT8
    decode = library.dequantize_blockwise if eight_bit else library.dequantize_4bit
    table = {kind: library.create_dynamic_map().to(kind) for kind in _devices()}

    def state(given: Operands) -> Any:
        code = given.get("codebook", table[given["absmax"].device.type])
        return state_of(library, desc, given, desc.shape, desc.output_dtype, code)

    # A column: it takes a single row of packed codes for a transposed weight.
    return lambda given: (decode(given["input"].view(-1, 1), state(given)),)


def state_of(
    library: Any, desc: Any, given: Operands, shape: Any, dtype: planq.DType, code: Any = None
) -> Any:
    """What it keeps beside codes in blocks, from the operands of a descriptor with blocks."""
    made = library.QuantState(
        absmax=given["absmax"],
        shape=torch.Size(shape),
        code=code,
        blocksize=desc.block_size,
        quant_type=desc.codebook.value,
        dtype=getattr(torch, dtype.value),
    )
    if "nested_absmax" in given:
        made.nested, made.offset = True, given["nested_offset"]
        made.state2 = library.QuantState(
            absmax=given["nested_absmax"],
            code=given["nested_codebook"],
            blocksize=desc.nested_block_size,
            dtype=torch.float32,
        )
    return made


def _devices() -> list[str]:
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


_CALLS: Final[dict[str, Callable[[Any, Any], Call]]] = {
    "dynamic_range_quantize": _rows,
    "blockwise_quantize": _codes,
    "blockwise_dequantize": _values,
}
