"""The fixed problems and inputs of `gguf_dequantize`."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from planq.audit.ops.elementwise.elements import TYPES, ElementCase
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.gguf_dequantize.reference import Problem, gguf_dequantize
from planq.audit.reference.formats import Array, Arrays
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
SCALES = {"extreme": EXTREME, "nonfinite": NONFINITE}
NBYTES = {"float16": 2, "float32": 4, "exponent": 1, "ue4m3": 1}
DATA = ("finite", "extreme", "bytes", "nonfinite", "zeros", "ones")
# Rows, and how long one is: in blocks, or in runs of 256 elements, which are whole blocks of all.
BLOCKS = (((), 1), ((3,), 1), ((2, 3), 2), ((5,), 3), ((), 7), ((1, 9), 1))
RUNS = (((), 1), ((4,), 16), ((), 64), ((64,), 1), ((2, 3), 5), ((7,), 9), ((1,), 31))
EMPTY = ((0,), (0, 256), (3, 0), (2, 0, 512))


def random_bytes(count: int, seed: int) -> Array:
    """Bytes of any values."""
    return hashed(seed, -(-count // 8)).astype("<u8").view(np.uint8)[:count]


def rescaled(problem: Problem, blocks: Array, scales: tuple[int, ...], seed: int) -> Array:
    """The blocks with every scale one of these."""
    form = problem.format
    places = hashed(seed, len(blocks) * len(form.scales)) % np.uint64(len(scales))
    chosen = np.array(scales, "<u4")[places].reshape(len(blocks), len(form.scales))
    own = blocks.copy()
    for i, byte in itertools.product(range(len(form.scales)), range(NBYTES[form.scale])):
        own[:, form.scales[i] + byte] = chosen[:, i] >> 8 * byte & 255
    return own


def finite(problem: Problem, blocks: Array) -> Array:
    """The blocks with a smaller exponent where a scale was infinite or NaN."""
    form, own = problem.format, blocks.copy()
    low, high = {"float16": (0, 0x7C), "float32": (0x80, 0x7F)}.get(form.scale, (0, 0))
    for at in form.scales if high else ():
        last = at + NBYTES[form.scale] - 1
        full = (own[:, last] & high == high) & (own[:, last - 1] & low == low)
        own[full, last] &= 0xBF
    return own


def made(problem: Problem, data: str, seed: int) -> Array:
    """Blocks of a kind, as bytes."""
    shape = problem.input_shape
    if data in ("zeros", "ones"):
        return np.full(shape, 255 if data == "ones" else 0, np.uint8)
    blocks = random_bytes(math.prod(shape), seed).reshape(-1, problem.format.nbytes)
    scales = SCALES.get(data, {}).get(problem.format.scale)
    if scales:
        blocks = rescaled(problem, blocks, scales, seed + 1)
    elif data != "bytes":
        blocks = finite(problem, blocks)
    return blocks.reshape(shape)


@dataclass(frozen=True)
class Case(ElementCase):
    """A problem with its blocks."""

    data: str = "finite"

    def reseeded(self, seed: int) -> Case:
        """Other blocks, of another kind."""
        return replace(self, data=DATA[seed % len(DATA)], seed=seed + 1000)

    def inputs(self) -> Arrays:
        """Bytes."""
        return {"input": made(self.problem, self.data, self.seed)}

    def expected(self, given: Arrays) -> Arrays:
        """The reference's output."""
        return gguf_dequantize(self.problem, given)


def shape_of(place: int, elements: int) -> tuple[int, ...]:
    """Of few blocks and of many in turn."""
    sizes, unit = (BLOCKS, elements) if place % 2 else (RUNS, 256)
    rows, count = sizes[place // 2 % len(sizes)]
    return (*rows, count * unit)


@cache
def cases() -> tuple[Case, ...]:
    """Every type with every output, finite and of two other kinds; so each type has all kinds."""
    found: list[Case] = []
    others = DATA[1:]
    for turn, (kind, out) in enumerate(itertools.product(FORMATS, TYPES)):
        for data in ("finite", others[turn % 5], others[(turn + 3) % 5]):
            shape = shape_of(len(found), FORMATS[kind].elements)
            found.append(Case(Problem(shape, kind, out), data, len(found)))
    return tuple(found)


@cache
def empty_cases() -> tuple[Case, ...]:
    """No rows, and rows without blocks."""
    return tuple(
        Case(Problem(EMPTY[place % len(EMPTY)], kind, TYPES[place % len(TYPES)]))
        for place, kind in enumerate(FORMATS)
    )
