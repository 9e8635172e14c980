"""`gguf_quantize` and its reference against ggml and the package `gguf`, byte for byte."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

import planq
from ops.gguf.gguf_quantize import ggml
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.gguf_quantize.hostile import ORDINARY, values
from planq.audit.ops.gguf.gguf_quantize.reference import QUANTIZERS, blocks_of
from planq.audit.reference.formats import Array

PACKAGED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4", "tq1_0", "tq2_0")
EACH = 64  # blocks of each distribution


def quantized(kind: str, x: Array) -> Array:
    """Blocks by planq on the host."""
    blocks = np.zeros((len(x), FORMATS[kind].nbytes), np.uint8)
    desc = planq.GgufQuantizeDescriptor(shape=x.shape, input_dtype="float32", type=kind)
    args = planq.GgufQuantizeArgs(input=x, output=blocks)
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    return blocks


def ordinary(kind: str, each: int) -> Array:
    """Blocks of twenty distributions, float32."""
    elements = FORMATS[kind].elements
    return values(ORDINARY, each, elements, 77).reshape(-1, elements).astype(np.float32)


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_bytes_are_those_of_ggml(kind: str) -> None:
    """Of its C, on 1280 blocks; the searches, too."""
    x = ordinary(kind, EACH)
    wanted = ggml.quantized(kind, x, FORMATS[kind].nbytes)
    assert len(np.unique(wanted, axis=0)) > 15 * EACH
    assert blocks_of(kind, x).tobytes() == wanted.tobytes()
    assert quantized(kind, x).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("kind", PACKAGED)
def test_bytes_are_those_of_the_package(kind: str) -> None:
    """Which has the simple types; the scale of zeros is -0 here where it has +0."""
    x = ordinary(kind, 2 * EACH)
    x = x[(x != 0).any(1)]
    with np.errstate(over="ignore", under="ignore"):  # of scales as float16
        wanted = gguf.quants.quantize(x, gguf.GGMLQuantizationType[kind.upper()])
    assert blocks_of(kind, x).tobytes() == wanted.tobytes()
    assert quantized(kind, x).tobytes() == wanted.tobytes()
