"""Blocks of bytes for the operators of the family: of any values, and with scales of a kind."""

from __future__ import annotations

import itertools
import math

import numpy as np

from planq.audit.ops.gguf.blocks import Format
from planq.audit.reference.formats import Array
from planq.audit.reference.inputs import hashed

# Bits of scales at the ends of their types: zeros, the smallest and the largest subnormals, the
# smallest normals and the largest numbers; of the exponents those of subnormal scales and of
# results that overflow; of ue4m3 also those with bit 7, which is ignored, and the one that is 0.
EXTREME: dict[str, tuple[int, ...]] = {
    "float16": (0, 0x8000, 1, 0x8001, 0x3FF, 0x83FF, 0x400, 0x8400, 0x7BFF, 0xFBFF),
    "float32": (0, 1 << 31, 1, 0x807FFFFF, 0x800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7E800001),
    "exponent": (0, 1, 2, 3, 103, 104, 113, 142, 252, 253, 254, 255),
    "ue4m3": (0, 0x80, 1, 0x81, 7, 8, 0x7E, 0xFE, 0x7F, 0xFF),
}
# Infinities, and NaN of both kinds and signs.
NONFINITE: dict[str, tuple[int, ...]] = {
    "float16": (0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0xFFFF, 0, 0x3C00),
    "float32": (0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0, 1 << 30),
}
# Numbers of about one size, as weights have them: the sums of products then hang on every bit.
NEAR: dict[str, tuple[int, ...]] = {
    "float16": tuple(sign | bits for bits in range(0x2C00, 0x3800, 0x4B) for sign in (0, 0x8000)),
    "float32": tuple(range(0x3D800000, 0x3F000000, 0x1234F)),
    "exponent": tuple(range(120, 131)),
    "ue4m3": tuple(range(0x28, 0x40)),
}
SCALES = {
    data: numbers | {"quarters": numbers["float16"]}
    for data, numbers in (("near", NEAR), ("extreme", EXTREME), ("nonfinite", NONFINITE))
}
NBYTES = {"float16": 2, "float32": 4, "exponent": 1, "ue4m3": 1}


def random_bytes(count: int, seed: int) -> Array:
    """Bytes of any values."""
    return hashed(seed, -(-count // 8)).astype("<u8").view(np.uint8)[:count]


def rescaled(form: Format, blocks: Array, scales: tuple[int, ...], seed: int) -> Array:
    """The blocks with every scale one of these."""
    places = hashed(seed, len(blocks) * len(form.scales)) % np.uint64(len(scales))
    chosen = np.array(scales, "<u4")[places].reshape(len(blocks), len(form.scales))
    own = blocks.copy()
    if form.scale == "quarters":
        for i, quarter in itertools.product(range(len(form.scales)), range(4)):
            at = form.scales[i] + 2 * quarter + 1
            own[:, at] = own[:, at] & 15 | (chosen[:, i] >> 4 * quarter & 15) << 4
        return own
    for i, byte in itertools.product(range(len(form.scales)), range(NBYTES[form.scale])):
        own[:, form.scales[i] + byte] = chosen[:, i] >> 8 * byte & 255
    return own


def finite(form: Format, blocks: Array) -> Array:
    """The blocks with a smaller exponent where a scale was infinite or NaN."""
    own = blocks.copy()
    if form.scale == "quarters":
        for at in form.scales:
            full = (own[:, at + 7] & 0x70 == 0x70) & (own[:, at + 5] & 0xC0 == 0xC0)
            own[full, at + 7] &= 0xBF
    low, high = {"float16": (0, 0x7C), "float32": (0x80, 0x7F)}.get(form.scale, (0, 0))
    for at in form.scales if high else ():
        last = at + NBYTES[form.scale] - 1
        full = (own[:, last] & high == high) & (own[:, last - 1] & low == low)
        own[full, last] &= 0xBF
    return own


def made(form: Format, shape: tuple[int, ...], data: str, seed: int) -> Array:
    """Blocks of a kind, as bytes."""
    if data in ("zeros", "ones"):
        return np.full(shape, 255 if data == "ones" else 0, np.uint8)
    blocks = random_bytes(math.prod(shape), seed).reshape(-1, form.nbytes)
    scales = SCALES.get(data, {}).get(form.scale)
    if scales:
        blocks = rescaled(form, blocks, scales, seed + 1)
    elif data != "bytes":
        blocks = finite(form, blocks)
    return blocks.reshape(shape)
