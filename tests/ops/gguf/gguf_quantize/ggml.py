"""ggml's own quantizers, in C, out of the package `xllamacpp`."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np

from planq.audit.reference.formats import Array

# Types that are in no file have functions of their own.
ROWS = {"q8_1": "quantize_row_q8_1_ref", "q8_k": "quantize_row_q8_K_ref"}


def number(kind: str) -> int:
    """Of a type; the package `gguf` does not know all."""
    return 42 if kind == "q2_0" else int(gguf.GGMLQuantizationType[kind.upper()])


@cache
def library() -> ctypes.PyDLL:
    """What has the functions: an extension module, so under Python's lock."""
    found = find_spec("xllamacpp")
    assert found
    assert found.origin
    (path,) = Path(found.origin).parent.glob("xllamacpp*.so")
    return ctypes.PyDLL(str(path))


def quantized(kind: str, x: Array, nbytes: int) -> Array:
    """Blocks, each a row of `x`, as rows of so many bytes."""
    x = np.ascontiguousarray(x, np.float32)
    blocks = np.zeros((len(x), nbytes), np.uint8)
    source, target = (ctypes.c_void_p(held.ctypes.data) for held in (x, blocks))
    if kind in ROWS:
        library()[ROWS[kind]](source, target, ctypes.c_int64(x.size))
        return blocks
    rows, elements = map(ctypes.c_int64, x.shape)
    quantize = library()["ggml_quantize_chunk"]
    quantize.restype = ctypes.c_size_t
    made = quantize(number(kind), source, target, ctypes.c_int64(0), rows, elements, None)
    assert made == blocks.size
    return blocks
