"""Quotient.DIVIDE is true IEEE division, seen through the public operator.

A code shows whether its quotient was rounded correctly only near a tie `k + 1/2`, so most elements
here are within a few units in the last place of one; where a zero point far outside the code range
makes the codes the quotients' own last bits, every bit is seen. NumPy's division is the IEEE one.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from planq.audit.memory import Host
from planq.audit.ops.affine.dynamic_range_quantize.adapter import descriptor
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array
from planq.audit.runner import Bench

F32 = np.float32
ROWS, COLUMNS = 256, 4096
CHUNKS = 200
ULPS = 3


class Quantizer:
    """One plan and its operands, run again and again on arrays of one shape."""

    def __init__(self, problem: Problem) -> None:
        """Selects once."""
        self._problem = problem
        self._bench = Bench(Host(), descriptor(problem))

    def __call__(self, x: Array) -> dict[str, Array]:
        """The outputs for `x`."""
        self._bench.load({"input": x})
        self._bench.run()
        return self._bench.outputs()


def magnitudes(seed: int) -> Array:
    """Row maxima: any positive normal or subnormal float32, ends of the range more often."""
    words = inputs.hashed(seed, ROWS)
    exponent = inputs.field(words, 40, 8) % 255
    ends = inputs.field(words, 50, 2)
    exponent = np.where(
        ends == 0, exponent % 12, np.where(ends == 1, 254 - exponent % 12, exponent)
    )
    raw = (exponent << 23 | inputs.field(words, 0, 23)).astype(np.uint32)
    return np.asarray(np.maximum(raw, np.uint32(1)).view(F32))


def near_ties(s: Array, M: Array, seed: int) -> Array:
    """Rows of `(k + 1/2) * s` moved by a few units in the last place, clamped to the row's M."""
    words = inputs.hashed(seed, COLUMNS)
    half = (inputs.field(words, 0, 8) - 127.5).astype(F32)
    moved = (inputs.field(words, 8, 8) % (2 * ULPS + 1) - ULPS).astype(np.int32)
    tie = s[:, None] * half[None, :]
    x = (tie.view(np.int32) + moved[None, :]).view(F32)
    return np.asarray(np.fmax(np.fmin(x, M[:, None]), -M[:, None]))


def anywhere(M: Array, seed: int) -> Array:
    """Rows of random float32 bits within the row's magnitude."""
    words = inputs.hashed(seed, ROWS * COLUMNS // 2)
    raw = words.view(np.uint32).reshape(ROWS, COLUMNS)
    below = (raw & np.uint32(0x7FFFFFFF)) % (M.view(np.uint32)[:, None] + np.uint32(1))
    signed = below | (raw & np.uint32(0x80000000))
    return np.asarray(signed.view(F32))


@pytest.mark.parametrize("share", range(4))
def test_two_hundred_million_float32_pairs(share: int) -> None:
    """Rows of 4096 numerators over random scales of every exponent: 200 x 2^20 pairs in all."""
    quantizer = Quantizer(Problem((ROWS, COLUMNS)))
    with np.errstate(all="ignore"):
        for chunk in range(share, CHUNKS, 4):
            M = magnitudes(chunk)
            s = np.maximum(M / F32(127), F32(2.0**-126))
            x = anywhere(M, chunk) if chunk % 10 == 9 else near_ties(s, M, chunk)
            x[:, chunk % COLUMNS] = M
            results = quantizer(x)
            assert np.array_equal(results["scale"], s)
            codes = np.clip(np.rint(x / s[:, None]), -127, 127).astype(np.int8)
            assert np.array_equal(results["output"], codes), chunk


def test_the_pairs_tell_division_from_multiplication() -> None:
    """The inputs above would catch a kernel that multiplies by the reciprocal."""
    M = magnitudes(0)
    s = np.maximum(M / F32(127), F32(2.0**-126))
    x = near_ties(s, M, 0)
    assert (np.rint(x / s[:, None]) != np.rint(x * (F32(1) / s)[:, None])).mean() > 0.01


def test_every_bit_of_quotients_near_two_to_the_twenty_fourth() -> None:
    """Without zero in the range, codes are `rne(x / s) + zero_point`: the quotient's last bits.

    Rows hold 256 neighbouring float32 values; quotients lie in 2^15 ... 2^24, rows use all scales.
    """
    rows, spread = 8192, 256
    words = inputs.hashed(7, rows)
    exponent = inputs.field(words, 30, 8) % 200 + 30
    shift = inputs.field(words, 40, 3)
    start = (exponent << 23 | inputs.field(words, 0, 23)).astype(np.int64)
    x = (start[:, None] + (np.arange(spread) << shift[:, None])).astype(np.uint32).view(F32)
    problem = Problem(x.shape, output_dtype="uint8", mode="asymmetric", include_zero=False)
    results = Quantizer(problem)(x)
    lo, hi = x.min(axis=1), x.max(axis=1)
    s = (hi - lo) / F32(255)
    zero_point = -np.rint(lo / s).astype(np.int64)
    codes = np.rint(x / s[:, None]).astype(np.int64) + zero_point[:, None]
    assert np.array_equal(results["scale"], s)
    assert np.array_equal(results["zero_point"], zero_point)
    assert np.array_equal(results["output"], np.clip(codes, 0, 255))


@pytest.mark.parametrize("input_dtype", ["bfloat16", "float16"])
def test_all_sixteen_bit_numerators_against_many_magnitudes(input_dtype: str) -> None:
    """Row `i` holds every 16-bit pattern whose magnitude is at most `M_i`."""
    fmt = FLOATS[input_dtype]
    patterns = np.arange(2**16, dtype=np.uint16)
    largest = int(np.array(fmt.largest).astype(fmt.dtype).view(np.uint16))
    chosen = np.unique(np.concatenate([np.arange(1, 9), np.arange(9, largest + 1, largest // 400)]))
    quantizer = Quantizer(Problem((16, 2**16), input_dtype))
    chosen = chosen[: len(chosen) // 16 * 16].astype(np.uint16)
    with np.errstate(all="ignore"):
        for tops in chosen.reshape(-1, 16):
            raw = np.where((patterns & 0x7FFF) <= tops[:, None], patterns, 0).astype(np.uint16)
            x = raw.view(fmt.dtype)
            wide = x.astype(F32)
            s = np.maximum(tops.view(fmt.dtype).astype(F32) / F32(127), F32(2.0**-126))
            results = quantizer(x)
            assert np.array_equal(results["scale"], s)
            codes = np.clip(np.rint(wide / s[:, None]), -127, 127).astype(np.int8)
            assert np.array_equal(results["output"], codes)


@pytest.mark.parametrize("q_max", range(1, 128))
def test_all_bfloat16_numerators_under_every_q_max(q_max: int) -> None:
    """One row of all 2^16 patterns, NaN and infinities saturated."""
    x = np.arange(2**16, dtype=np.uint16).view(FLOATS["bfloat16"].dtype).reshape(1, -1)
    problem = Problem(x.shape, "bfloat16", q_min=-q_max, q_max=q_max, nonfinite="saturate")
    results = Quantizer(problem)(x)
    with np.errstate(all="ignore"):
        wide = x.astype(F32)
        s = F32(FLOATS["bfloat16"].largest) / F32(q_max)
        value = np.where(np.isnan(wide), F32(0), wide / s)
    codes = np.clip(np.rint(value), -q_max, q_max).astype(np.int8)
    assert results["scale"].tolist() == [s]
    assert np.array_equal(results["output"], codes)


def test_a_million_float64_pairs_near_ties() -> None:
    """Computed in float64 throughout, at every exponent."""
    rows, columns = 1024, 1024
    words = inputs.hashed(11, rows)
    exponent = (inputs.field(words, 52, 11) % 2047).astype(np.uint64)
    M = (exponent << np.uint64(52) | words & np.uint64(2**52 - 1)).view(np.float64)
    s = np.maximum(M / 127.0, 2.0**-1022)
    half = inputs.field(inputs.hashed(12, columns), 0, 8) - 127.5
    moved = np.arange(columns) % 5 - 2
    with np.errstate(all="ignore"):
        x = ((s[:, None] * half).view(np.int64) + moved).view(np.float64)
        x = np.fmax(np.fmin(x, M[:, None]), -M[:, None])
        x[:, 3] = M
        results = Quantizer(Problem(x.shape, "float64"))(x)
        codes = np.clip(np.rint(x / s[:, None]), -127, 127).astype(np.int8)
    assert np.array_equal(results["scale"], s)
    assert np.array_equal(results["output"], codes)


def test_every_float32_significand_over_every_divisor_of_int8() -> None:
    """Scales themselves are quotients `fl(M / q_max)`: all 2^23 significands, sampled divisors."""
    M = (np.uint32(127 << 23) + np.arange(2**23, dtype=np.uint32)).view(F32).reshape(-1, 1)
    for q_max in (3, 7, 11, 63, 113, 127):
        problem = Problem(M.shape, q_min=-q_max, q_max=q_max)
        results = Quantizer(problem)(M)
        assert np.array_equal(results["scale"], M[:, 0] / F32(q_max))
        assert (results["output"] == q_max).all()
    assert math.prod(M.shape) == 2**23
