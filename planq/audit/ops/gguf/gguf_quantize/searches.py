"""The types of blocks whose scales are searched: K-quants, and those with a table of values."""

from __future__ import annotations

import numpy as np

from planq.audit.ops.gguf.blocks import NONLINEAR
from planq.audit.ops.gguf.gguf_quantize import codes
from planq.audit.ops.gguf.gguf_quantize.floats import (
    F32,
    TINY,
    chain,
    extreme,
    halved,
    inverse,
    joined,
    nearest,
    peak,
)
from planq.audit.reference.formats import Array

TENTH = F32(0.1)


class Minimum:
    """The search for a scale and a minimum of sub-blocks, which are rows."""

    def __init__(self, x: Array, w: Array, n: int, absolute: bool = False) -> None:
        """With weights, the largest code, and whether errors count as they are, not squared."""
        self.x, self.w, self.n, self.absolute = x, w, n, absolute
        self.sum_w, self.sum_x = chain(w), chain(w * x)

    def codes(self, i: Array, lo: Array) -> Array:
        """Of elements above a minimum."""
        return nearest(i * (self.x - lo), 0, self.n)

    def error(self, s: Array, lo: Array, q: Array) -> Array:
        """Weighted, of the values that the codes stand for."""
        e = (s * q.astype(F32) + lo) - self.x
        return chain(self.w * (np.abs(e) if self.absolute else e * e))

    def fitted(self, q: Array) -> tuple[Array, Array, Array]:
        """Whether codes have a best scale and minimum, and both."""
        w, f = self.w, q.astype(F32)
        one, two, cross = chain(w * f), chain((w * f) * f), chain((w * f) * self.x)
        det = self.sum_w * two - one * one
        s = (self.sum_w * cross - self.sum_x * one) / det
        m = (two * self.sum_x - one * cross) / det
        return det > 0, np.where(m > 0, cross / two, s), np.where(m > 0, F32(0), m)

    def run(self, r: float, steps: int) -> tuple[Array, Array, Array]:
        """Scales, minima and codes."""
        n, lo, hi = F32(self.n), extreme(self.x, -1), extreme(self.x, 1)
        lo = np.where(lo > 0, F32(0), lo)
        flat = np.broadcast_to(hi == lo, self.x.shape)
        i = n / (hi - lo)
        s = np.where(hi == lo, F32(0), F32(1) / i)
        q = np.where(flat, 0, self.codes(i, lo))
        best = np.where(hi == lo, F32(0), self.error(s, lo, q))
        for t in range(steps + 1):
            other = self.codes((F32(r) + TENTH * F32(t) + n) / (hi - lo), lo)
            found, s1, m1 = self.fitted(other)
            error = self.error(s1, m1, other)
            take = found & (error < best)
            s, best = np.where(take, s1, s), np.where(take, error, best)
            q, lo = np.where(take, other, q), np.where(take, m1, lo)
        return s, lo, q


def under(x: Array, top: int) -> tuple[Array, Array, Array]:
    """Numbers of a block as integers up to `top` under one scale; that as bytes and as float32."""
    most = extreme(np.concatenate([np.zeros((len(x), 1), F32), x], axis=1), 1)
    return nearest(F32(top) / most * x, 0, top), *halved(most / F32(top))


def with_minima(
    x: Array, found: tuple[Array, Array, Array], n: int, top: int
) -> tuple[Array, Array, Array, Array]:
    """Scales and minima of sub-blocks as integers, codes, and the two scales as bytes."""
    s, m = found[0].reshape(len(x), -1), -found[1].reshape(len(x), -1)
    (scale, d, d16), (minimum, dmin, dmin16) = under(s, top), under(m, top)
    parts = x.reshape(*s.shape, -1)
    e = (d16 * scale.astype(F32))[:, :, None]
    above = parts + (dmin16 * minimum.astype(F32))[:, :, None]
    q = np.where(e == 0, found[2].reshape(parts.shape), nearest(above / e, 0, n))
    return scale, minimum, q.reshape(x.shape), np.concatenate([d, dmin], axis=1)


def q2_k(x: Array) -> Array:
    """Two bits; scales and minima of four bits."""
    parts = x.reshape(-1, 16)
    found = Minimum(parts, np.abs(parts), 3, absolute=True).run(-0.5, 15)
    scale, minimum, q, d = with_minima(x, found, 3, 15)
    return joined(scale | minimum << 4, codes.quarters(q), d)


def of_32(x: Array, n: int, r: float, steps: int) -> tuple[Array, Array, Array]:
    """The search for sub-blocks of 32."""
    parts = x.reshape(-1, 32)
    w = np.sqrt(chain(parts * parts) / F32(32)) + np.abs(parts)
    return Minimum(parts, w, n).run(r, steps)


def q4_k(x: Array) -> Array:
    """Four bits; scales and minima of six bits."""
    scale, minimum, q, d = with_minima(x, of_32(x, 15, -1.0, 20), 15, 63)
    return joined(d, codes.six_bits(scale, minimum), codes.halves(q, 32))


def q5_k(x: Array) -> Array:
    """Five bits, the uppermost ones apart; scales and minima of six bits."""
    scale, minimum, q, d = with_minima(x, of_32(x, 31, -0.5, 15), 31, 63)
    high, low = codes.eighths(q >> 4), codes.halves(q & 15, 32)
    return joined(d, codes.six_bits(scale, minimum), high, low)


def fit(x: Array, q: Array) -> tuple[Array, Array]:
    """`A` and `B` of codes that elements shall be multiples of."""
    w, f = x * x, q.astype(F32)
    return chain((w * x) * f), chain((w * f) * f)


def better(dot: Array, square: Array, best: Array) -> Array:
    """Whether another fit is."""
    return (square > 0) & (best * square < dot * dot)


def symmetric(x: Array, n: int) -> tuple[Array, Array]:
    """Scales, and codes from 0 on."""
    top = peak(x)
    q = nearest(F32(-n) / top * x, -n, n - 1)
    dot, square = fit(x, q)
    s = dot / square
    best = s * dot
    for t in (*range(-9, 0), *range(1, 10)):
        other = nearest(-(F32(n) + TENTH * F32(t)) / top * x, -n, n - 1)
        dot, square = fit(x, other)
        take = better(dot, square, best)
        s, q = np.where(take, dot / square, s), np.where(take, other, q)
        best = np.where(take, s * dot, best)
    tiny = np.abs(top) < TINY
    return np.where(tiny, F32(0), s), np.where(tiny, 0, q + n)


def recoded(x: Array, scale: Array, found: Array, n: int) -> Array:
    """Codes from 0 on under the scales of sub-blocks; where a scale is 0 those of the search."""
    parts = x.reshape(*scale.shape, -1)
    q = nearest(parts / scale[:, :, None], -n, n - 1) + n
    return np.where(scale[:, :, None] == 0, found.reshape(parts.shape), q).reshape(x.shape)


def q6_k(x: Array) -> Array:
    """Four bits and two apart; scales of a byte."""
    s, q = symmetric(x.reshape(-1, 16), 32)
    s = s.reshape(-1, 16)
    top = peak(s)
    i = F32(-128) / top
    d, d16 = halved(F32(1) / i)
    whole = nearest(i * s, -128, 127)
    q = recoded(x, d16 * whole.astype(F32), q, 32)
    blocks = joined(codes.halves(q & 15, 64), codes.quarters(q >> 4), whole, d)
    return np.where(np.abs(top) < TINY, np.uint8(0), blocks)


def swept(x: Array) -> tuple[Array, Array]:
    """Scales, and codes from 0 on, of the sweeps of Q3_K: element after element."""
    top, w = peak(x), x * x
    q = nearest(F32(-4) / top * x, -4, 3)
    dot, square = fit(x, q)
    for _ in range(5):
        for e in range(x.shape[1]):
            at = slice(e, e + 1)
            wx, old = w[:, at] * x[:, at], q[:, at].astype(F32)
            a, b = dot - wx * old, square - (w[:, at] * old) * old
            code = nearest((x[:, at] * b) / a, -4, 3)
            new = code.astype(F32)
            a1, b1 = a + wx * new, b + (w[:, at] * new) * new
            take = (a > 0) & (code != q[:, at]) & (b1 > 0) & ((dot * dot) * b1 < (a1 * a1) * square)
            q[:, at] = np.where(take, code, q[:, at])
            dot, square = np.where(take, a1, dot), np.where(take, b1, square)
    tiny = np.abs(top) < TINY
    return np.where(tiny, F32(0), dot / square), np.where(tiny, 0, q + 4)


def q3_k(x: Array) -> Array:
    """Two bits and a third one apart; scales of six bits."""
    s, q = swept(x.reshape(-1, 16))
    s = s.reshape(-1, 16)
    top = peak(s)
    i = F32(-32) / top
    whole = np.where(top == 0, -32, nearest(i * s, -32, 31))
    d, d16 = halved(np.where(top == 0, F32(0), F32(1) / i))
    q = recoded(x, d16 * whole.astype(F32), q, 4)
    high, low = codes.eighths(q >> 2), codes.quarters(q & 3)
    return joined(high, low, codes.six_bits_of_sixteen(whole + 32), d)


def places(v: Array) -> Array:
    """The nearest values of the table by their places, ties up; of a NaN that of 0."""
    middles = (NONLINEAR[1:] + NONLINEAR[:-1]).astype(F32) / F32(2)
    return np.searchsorted(middles, np.where(np.isnan(v), F32(0), v), "right")


def fit_nonlinear(x: Array, i: Array) -> tuple[Array, Array]:
    """`A` and `B` of the values that are nearest to elements times `i`."""
    w, f = x * x, NONLINEAR[places(i * x)].astype(F32)
    return chain((w * f) * x), chain((w * f) * f)


def nonlinear(x: Array) -> Array:
    """The scales of the search over the table."""
    top, first = peak(x), F32(NONLINEAR[0])
    dot, square = fit_nonlinear(x, F32(1) / (-top / first))
    s = dot / square
    best = s * dot
    for t in range(-7, 8):
        dot, square = fit_nonlinear(x, (F32(t) + first) / top)
        take = better(dot, square, best)
        s = np.where(take, dot / square, s)
        best = np.where(take, s * dot, best)
    return np.where(np.abs(top) < TINY, F32(0), s)


def iq4_nl(x: Array) -> Array:
    """Places in a table."""
    s = nonlinear(x)
    return joined(halved(s)[0], codes.halves(places(inverse(s) * x), 16))


def iq4_xs(x: Array) -> Array:
    """Places in a table; scales of six bits."""
    s = nonlinear(x.reshape(-1, 32)).reshape(-1, 8)
    d = -peak(s) / F32(32)
    whole = nearest(inverse(d) * s, -32, 31)
    i = inverse(d * whole.astype(F32))[:, :, None]
    q = places(i * x.reshape(-1, 8, 32)).reshape(x.shape)
    high, low = codes.neighbours(whole + 32 >> 4, 2), codes.neighbours(whole + 32 & 15, 4)
    return joined(halved(d)[0], high, low, codes.halves(q, 16))
