"""The blocks of GGUF files in NumPy: codes, scales and minima, written from the contract alone.

A function for each type takes blocks as rows of bytes, in int64, and gives what their elements are
made of: the integer code `q`, the scale `E`, and the minimum `C` where the type has one. Scales and
minima are float32 and have an entry for each element, or one for the whole block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planq.audit.ops.gguf.grids import grid
from planq.audit.reference.formats import Array

Decoded = tuple[Array, Array, Array | None]

# What codes of four bits stand for; values of the second are twice those of float4_e2m1fn.
NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int64
)
DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int64)


def bit(word: Array, i: Array) -> Array:
    """The bit of that number."""
    return np.asarray(word >> i & 1)


def two(byte: Array, i: Array) -> Array:
    """The pair of bits of that number."""
    return np.asarray(byte >> 2 * i & 3)


def nibble(byte: Array, i: Array | int) -> Array:
    """The lower four bits, or the upper four."""
    return np.asarray(byte >> 4 * i & 15)


def signed(byte: Array) -> Array:
    """Two's complement."""
    return np.asarray((byte ^ 128) - 128)


def word(block: Array, at: int, count: int) -> Array:
    """A little-endian integer of so many bytes, in a column."""
    return np.asarray((block[:, at : at + count] << 8 * np.arange(count)).sum(1, keepdims=True))


def half(block: Array, at: int) -> Array:
    """A float16 as float32, in a column."""
    return word(block, at, 2).astype(np.uint16).view(np.float16).astype(np.float32)


def nibbles(block: Array, at: int) -> Array:
    """32 codes of 16 bytes: the lower halves of all, then the upper halves."""
    e = np.arange(32)
    return nibble(block[:, at + e % 16], e // 16)


def fifths(block: Array, at: int) -> Array:
    """32 codes of five bits: the uppermost ones in a word, the others in the 16 bytes behind it."""
    return nibbles(block, at + 4) + 16 * bit(word(block, at, 4), np.arange(32))


def halves_of_two(block: Array, at: int) -> Array:
    """256 codes of two bits: each 32 bytes have 128, a pair of bits of all after another."""
    e = np.arange(256)
    return two(block[:, at + 32 * (e // 128) + e % 32], e % 128 // 32)


def nibbles_of_two(block: Array, at: int) -> Array:
    """256 codes of four bits: each 32 bytes have 64, the lower halves of all first."""
    e = np.arange(256)
    return nibble(block[:, at + 32 * (e // 64) + e % 32], e // 32 % 2)


def q4_0(block: Array) -> Decoded:
    """Four bits."""
    return nibbles(block, 2) - 8, half(block, 0), None


def q4_1(block: Array) -> Decoded:
    """Four bits above a minimum."""
    return nibbles(block, 4), half(block, 0), half(block, 2)


def q5_0(block: Array) -> Decoded:
    """Five bits."""
    return fifths(block, 2) - 16, half(block, 0), None


def q5_1(block: Array) -> Decoded:
    """Five bits above a minimum."""
    return fifths(block, 4), half(block, 0), half(block, 2)


def q8_0(block: Array) -> Decoded:
    """Bytes."""
    return signed(block[:, 2:]), half(block, 0), None


def q8_1(block: Array) -> Decoded:
    """Bytes, with a sum that no element is made of."""
    return signed(block[:, 4:]), half(block, 0), None


def q8_k(block: Array) -> Decoded:
    """Bytes under a float32, with sums that no element is made of."""
    d = word(block, 0, 4).astype(np.uint32).view(np.float32)
    return signed(block[:, 4:260]), d, None


def q2_k(block: Array) -> Decoded:
    """Two bits; scales and minima of four bits."""
    pair = block[:, np.arange(256) // 16]
    scale = half(block, 80) * nibble(pair, 0).astype(np.float32)
    return halves_of_two(block, 16), scale, -half(block, 82) * nibble(pair, 1).astype(np.float32)


def q3_k(block: Array) -> Decoded:
    """Two bits and a third one apart; scales of six bits."""
    e, j = np.arange(256), np.arange(16)
    code = halves_of_two(block, 32) + 4 * bit(block[:, e % 32], e // 32) - 4
    s = block[:, 96:108]
    scale = nibble(s[:, j % 8], j // 8) + 16 * two(s[:, 8 + j % 4], j // 4) - 32
    return code, half(block, 108) * scale[:, e // 16].astype(np.float32), None


def six_bits(block: Array) -> tuple[Array, Array]:
    """The scales and the minima of 256 elements, out of twelve bytes."""
    first, second, third = block[:, 4:8], block[:, 8:12], block[:, 12:16]
    scale = [first & 63, nibble(third, 0) + 16 * (first >> 6)]
    minimum = [second & 63, nibble(third, 1) + 16 * (second >> 6)]
    j = np.arange(256) // 32
    return (
        half(block, 0) * np.concatenate(scale, axis=1)[:, j].astype(np.float32),
        -half(block, 2) * np.concatenate(minimum, axis=1)[:, j].astype(np.float32),
    )


def q4_k(block: Array) -> Decoded:
    """Four bits; scales and minima of six bits."""
    return nibbles_of_two(block, 16), *six_bits(block)


def q5_k(block: Array) -> Decoded:
    """Four bits and a fifth one apart; scales and minima of six bits."""
    e = np.arange(256)
    code = nibbles_of_two(block, 48) + 16 * bit(block[:, 16 + e % 32], e // 32)
    return code, *six_bits(block)


def q6_k(block: Array) -> Decoded:
    """Four bits and two apart; scales of a byte."""
    e = np.arange(256)
    upper, r = e // 128, e % 128
    low = nibble(block[:, 64 * upper + r % 64], r // 64)
    high = two(block[:, 128 + 32 * upper + r % 32], r // 32)
    scale = signed(block[:, 192 + e // 16]).astype(np.float32)
    return low + 16 * high - 32, half(block, 208) * scale, None


def iq4_nl(block: Array) -> Decoded:
    """Places in a table."""
    return NONLINEAR[nibbles(block, 2)], half(block, 0), None


def iq4_xs(block: Array) -> Decoded:
    """Places in a table; scales of six bits."""
    e, j = np.arange(256), np.arange(8)
    code = NONLINEAR[nibble(block[:, 8 + 16 * (e // 32) + e % 16], e % 32 // 16)]
    scale = nibble(block[:, 4 + j // 2], j % 2) + 16 * two(word(block, 2, 2), j) - 32
    return code, half(block, 0) * scale[:, e // 32].astype(np.float32), None


def mxfp4(block: Array) -> Decoded:
    """Numbers of four bits under a power of two."""
    exponent = (block[:, :1] - 128).astype(np.int32)
    return DOUBLED[nibbles(block, 1)], np.ldexp(np.float32(1), exponent), None


def nvfp4(block: Array) -> Decoded:
    """Numbers of four bits; scales that are floats of seven bits."""
    e = np.arange(64)
    code = DOUBLED[nibble(block[:, 4 + 8 * (e // 16) + e % 8], e % 16 // 8)]
    x = block[:, :4]
    mantissa, exponent = x & 7, x >> 3 & 15
    normal = np.ldexp((8 + mantissa).astype(np.float32), (exponent - 11).astype(np.int32))
    scale = np.where(exponent == 0, np.ldexp(mantissa.astype(np.float32), -10), normal)
    return code, np.where(x == 0x7F, np.float32(0), scale)[:, e // 16], None


def tq1_0(block: Array) -> Decoded:
    """Five digits of base three a byte, four in each of the last."""
    digits = [
        block[:, first : first + count] * 3**n % 256 * 3 >> 8
        for first, count, most in ((0, 32, 5), (32, 16, 5), (48, 4, 4))
        for n in range(most)
    ]
    return np.concatenate(digits, axis=1) - 1, half(block, 52), None


def tq2_0(block: Array) -> Decoded:
    """Two bits."""
    return halves_of_two(block, 0) - 1, half(block, 64), None


def q1_0(block: Array) -> Decoded:
    """Signs."""
    e = np.arange(128)
    return 2 * bit(block[:, 2 + e // 8], e % 8) - 1, half(block, 0), None


def q2_0(block: Array) -> Decoded:
    """Two bits, neighbours in one byte."""
    e = np.arange(64)
    return two(block[:, 2 + e // 4], e % 4) - 1, half(block, 0), None


def odd(factor: Array) -> Array:
    """What the bits of a scale multiply it by."""
    return (2 * factor + 1).astype(np.float32)


def repeated(scale: Array) -> Array:
    """The scales of sub-blocks, for each of 256 elements."""
    return np.repeat(scale, 256 // scale.shape[1], axis=1)


def signed_points(name: str, code: Array, signs: Array) -> Array:
    """The elements of points; bits of `signs` make eight neighbours each negative."""
    numbers = grid(name)[code].reshape(len(code), 32, 8)
    return (numbers * (1 - 2 * bit(signs[:, :, None], np.arange(8)))).reshape(-1, 256)


def even(seven: Array) -> Array:
    """Seven signs, and an eighth, which makes the number of negative ones even."""
    ones = bit(seven[:, :, None], np.arange(7)).sum(axis=2)
    return np.asarray((seven & 127) + 128 * (ones % 2))


def words_of_four(block: Array, at: int, step: int) -> Array:
    """A word of 32 bits for each 32 elements, of which `step` bytes hold something."""
    own = block[:, at : at + 8 * step].reshape(len(block), 8, step)[:, :, step - 4 :]
    return np.asarray((own << 8 * np.arange(4)).sum(axis=2))


def sevens(own: Array) -> Array:
    """The signs of 256 elements, out of words that have four times seven bits of them."""
    return even((own[:, :, None] >> 7 * np.arange(4) & 127).reshape(-1, 32))


def iq2_xxs(block: Array) -> Decoded:
    """Points of eight, signs and scales in words of 32 bits."""
    code = block[:, 2:].reshape(-1, 8, 8)[:, :, :4].reshape(-1, 32)
    own = words_of_four(block, 2, 8)
    scale = half(block, 0) * odd(own >> 28) / np.float32(8)
    return signed_points("iq2_xxs", code, sevens(own)), repeated(scale), None


def scale_nibbles(block: Array, at: int, count: int) -> Array:
    """Scales of four bits, two in each byte."""
    j = np.arange(count)
    return nibble(block[:, at + j // 2], j % 2)


def iq2_xs(block: Array) -> Decoded:
    """Points of nine bits, with seven of signs; scales of four bits."""
    own = block[:, 2:66:2] + 256 * block[:, 3:66:2]
    scale = half(block, 0) * odd(scale_nibbles(block, 66, 16)) / np.float32(8)
    return signed_points("iq2_xs", own & 511, even(own >> 9)), repeated(scale), None


def iq2_s(block: Array) -> Decoded:
    """Points of ten bits, two of them apart; all signs; scales of four bits."""
    i = np.arange(32)
    code = block[:, 2 + i] + 256 * two(block[:, 66 + i // 4], i % 4)
    scale = half(block, 0) * odd(scale_nibbles(block, 74, 16)) / np.float32(8)
    return signed_points("iq2_s", code, block[:, 34:66]), repeated(scale), None


def iq3_xxs(block: Array) -> Decoded:
    """Points of four elements; signs and scales in words of 32 bits."""
    own = words_of_four(block, 66, 4)
    scale = half(block, 0) * odd(own >> 28) / np.float32(4)
    return signed_points("iq3_xxs", block[:, 2:66], sevens(own)), repeated(scale), None


def iq3_s(block: Array) -> Decoded:
    """Points of four elements and nine bits, one of them apart; all signs; scales of four bits."""
    i = np.arange(64)
    code = block[:, 2 + i] + 256 * bit(block[:, 66 + i // 8], i % 8)
    scale = half(block, 0) * odd(scale_nibbles(block, 106, 8))
    return signed_points("iq3_s", code, block[:, 74:106]), repeated(scale), None


def raised_points(code: Array, below: Array) -> Array:
    """The elements of points of eight, each 1 above eight times its number, or 1 below."""
    return (grid("iq1")[code] + 1 - 2 * below[:, :, None]).reshape(-1, 256)


def iq1_s(block: Array) -> Decoded:
    """Points of eleven bits, three of them apart, with a bit of where they are."""
    high = block[:, 34:50:2] + 256 * block[:, 35:50:2]
    i = np.arange(32)
    code = block[:, 2 + i] + 256 * (high[:, i // 4] >> 3 * (i % 4) & 7)
    scale = half(block, 0) * odd(high >> 12 & 7) / np.float32(8)
    return raised_points(code, (high >> 15)[:, i // 4]), repeated(scale), None


def iq1_m(block: Array) -> Decoded:
    """The same, but for each eight elements; the scale of the block is spread over four words."""
    i, j = np.arange(32), np.arange(16)
    high = nibble(block[:, 32 + i // 2], i % 2)
    words = block[:, 48:56:2] + 256 * block[:, 49:56:2]
    whole = ((words >> 12) << 4 * np.arange(4)).sum(axis=1, keepdims=True)
    d = whole.astype(np.uint16).view(np.float16).astype(np.float32)
    scale = d * odd(words[:, j // 4] >> 3 * (j % 4) & 7) / np.float32(8)
    return raised_points(block[:, i] + 256 * (high & 7), high >> 3), repeated(scale), None


@dataclass(frozen=True)
class Format:
    """A type of blocks.

    Attributes:
        elements: In a block.
        nbytes: Of a block.
        decode: Codes, scales and minima of blocks.
        scales: Where in a block its own scales begin, those of scales among them.
        scale: What number each of them is. Of "quarters", each four bits of a float16 are the upper
            half of every second byte.
    """

    elements: int
    nbytes: int
    decode: Callable[[Array], Decoded]
    scales: tuple[int, ...] = (0,)
    scale: str = "float16"


FORMATS = {
    "q4_0": Format(32, 18, q4_0),
    "q4_1": Format(32, 20, q4_1, (0, 2)),
    "q5_0": Format(32, 22, q5_0),
    "q5_1": Format(32, 24, q5_1, (0, 2)),
    "q8_0": Format(32, 34, q8_0),
    "q8_1": Format(32, 36, q8_1, (0, 2)),
    "q8_k": Format(256, 292, q8_k, (0,), "float32"),
    "q2_k": Format(256, 84, q2_k, (80, 82)),
    "q3_k": Format(256, 110, q3_k, (108,)),
    "q4_k": Format(256, 144, q4_k, (0, 2)),
    "q5_k": Format(256, 176, q5_k, (0, 2)),
    "q6_k": Format(256, 210, q6_k, (208,)),
    "iq4_nl": Format(32, 18, iq4_nl),
    "iq4_xs": Format(256, 136, iq4_xs),
    "mxfp4": Format(32, 17, mxfp4, (0,), "exponent"),
    "nvfp4": Format(64, 36, nvfp4, (0, 1, 2, 3), "ue4m3"),
    "tq1_0": Format(256, 54, tq1_0, (52,)),
    "tq2_0": Format(256, 66, tq2_0, (64,)),
    "q1_0": Format(128, 18, q1_0),
    "q2_0": Format(64, 18, q2_0),
    "iq2_xxs": Format(256, 66, iq2_xxs),
    "iq2_xs": Format(256, 74, iq2_xs),
    "iq2_s": Format(256, 82, iq2_s),
    "iq3_xxs": Format(256, 98, iq3_xxs),
    "iq3_s": Format(256, 110, iq3_s),
    "iq1_s": Format(256, 50, iq1_s),
    "iq1_m": Format(256, 56, iq1_m, (48,), "quarters"),
}
