"""Elementary functions in NumPy, from the sequences of docs/numerics/functions.md.

Each takes float32 arrays, those of turns uint32 phases, and gives float32 with canonical NaNs.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from planq.audit.reference.formats import Array, canonical

F32, U32, I32 = np.float32, np.uint32, np.int32
Value = Array | float
Function = Callable[[Array], Array]


def numbers(text: str) -> tuple[float, ...]:
    """Hexadecimal floats, which float32 holds."""
    return tuple(float.fromhex(word) for word in text.split())


ROUND, LOG2E, LN2H, LN2L = numbers("0x1.8p23 0x1.715476p0 0x1.62e43p-1 -0x1.05c61p-29")
DOWN = 2.0**-100  # what a power above is scaled by, so that nothing of it underflows early


# --- Operations ----------------------------------------------------------------------------------


def fma(a: Value, b: Value, c: Value) -> Array:
    """`a · b + c`, rounded once.

    A product of two float32 is exact in float64. The sum is rounded to odd there, so that rounding
    it again to float32 is as good as rounding the exact sum.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    term = np.asarray(c, np.float64)
    total = np.asarray(product + term)
    back = total - product
    lost = (product - (total - back)) + (term - back)
    toward_zero = total.view(np.int64) - (lost * total < 0)
    odd = np.asarray(toward_zero | (np.abs(lost) > 0))
    return odd.view(np.float64).astype(F32)


def horner(x: Array, coefficients: tuple[float, ...]) -> Array:
    """A polynomial; coefficients ascend."""
    value: Value = coefficients[-1]
    for each in coefficients[-2::-1]:
        value = fma(value, x, each)
    return np.asarray(value)


def word(x: Array) -> Array:
    """Bits of float32."""
    return x.view(U32)


def number(i: Array) -> Array:
    """Float32 of bits."""
    return i.astype(U32, copy=False).view(F32)


def at_least(x: Array, bound: float) -> Array:
    """The larger; a NaN stays."""
    return np.where(x < bound, F32(bound), x)


def at_most(x: Array, bound: float) -> Array:
    """The smaller; a NaN stays."""
    return np.where(x > bound, F32(bound), x)


def sign(y: Array, x: Array) -> Array:
    """`|y|` with the sign of x."""
    return np.copysign(y, x)


def pair(x: Value, y: Value, z: Value) -> tuple[Array, Array]:
    """`x · y + z` rounded, and what that lost."""
    high = fma(x, y, z)
    return high, fma(x, y, z - high)


def product(x: Array, y: Value) -> tuple[Array, Array]:
    """`x · y` rounded, and what that lost."""
    high = np.asarray(x * F32(y))
    return high, fma(x, y, -high)


def whole(t: Array, bias: float) -> tuple[Array, Array]:
    """The integer n of `t = ROUND + bias + n`, and `2^(n + bias − 127)`."""
    return t - F32(ROUND + bias), number(word(t) << U32(23))


# --- Exponentials --------------------------------------------------------------------------------

EXP2 = numbers(
    "0x1.ebfbep-3 0x1.c6b06ap-5 0x1.3b2a5ap-7 0x1.5dab6p-10 0x1.4411bcp-13 0x1.d8dfc4p-17"
)
EXP = numbers("0x1p-1 0x1.555554p-3 0x1.5554eap-5 0x1.11131ap-7 0x1.6d4aaep-10 0x1.9de246p-13")
EXP2_FAST = {
    5: numbers("1 0x1.62e428p-1 0x1.ebf9bcp-3 0x1.c6b75ep-5 0x1.3cea66p-7 0x1.5bb684p-10"),
    4: numbers("1 0x1.62e034p-1 0x1.ebfdap-3 0x1.ca7214p-5 0x1.3c9p-7"),
    3: numbers("1 0x1.62f5fap-1 0x1.f00c4cp-3 0x1.c2a1fep-5"),
}
EXPM1R = numbers("0x1.fffffap-2 0x1.555492p-3 0x1.555a0cp-5 0x1.1239d6p-7 0x1.696f2cp-10")
EXP2M1R = numbers(
    "0x1.62e43p-1 0x1.ebfbdcp-3 0x1.c6af7cp-5 0x1.3b2dep-7 0x1.5f082ep-10 0x1.416b5ep-13"
)


def scale(y: Array, t: Array) -> Array:
    """`y · 2^n` with a bias of 254, as two factors."""
    i = word(t)
    first = i << U32(22) & U32(0x7F800000)
    return y * number(first) * number((i << U32(23)) - first)


def exp2(x: Array) -> Array:
    """`2^x`."""
    v = at_most(at_least(x, -151), 128)
    t = v + F32(ROUND + 254)
    f = v - whole(t, 254)[0]
    p, p_low = pair(horner(f, EXP2), f, LN2H)
    s, s_low = pair(f, p, 1)
    return scale(s + fma(f, p_low, s_low), t)


def exponential(v: Array, bias: float) -> tuple[Array, Array]:
    """`e^f` for `v = n ln 2 + f`, and t."""
    t = fma(v, LOG2E, ROUND + bias)
    n = whole(t, bias)[0]
    f = fma(n, -LN2H, v)
    p, p_low = pair(horner(f, EXP), f, 1)
    s, s_low = pair(f, p, 1)
    return s + fma(n * F32(-LN2L), s, fma(f, p_low, s_low)), t


def exp(x: Array) -> Array:
    """`e^x`."""
    return scale(*exponential(at_most(at_least(x, -104), 89), 254))


def exp_nonpositive(x: Array) -> Array:
    """`e^x` for x ≤ 0."""
    y, t = exponential(at_least(x, -104), 227)
    return y * whole(t, 227)[1] * F32(DOWN)


def exp2_fast(degree: int, x: Array) -> Array:
    """`2^x` for x ≤ 0, nearly."""
    v = np.where(x > -127, x, F32(-127))
    t = v + F32(ROUND)
    p = horner(v - whole(t, 0)[0], EXP2_FAST[degree])
    return number(word(p) + (word(t) << U32(23)))


# --- Quotients with 1 + e ------------------------------------------------------------------------


def gate(c: Array, negative: Array, g: Array, T: Array) -> Array:
    """`c / (1 + e)`, or `c e / (1 + e)`, with `e = (1 + g) · T · 2^−100`."""
    e = fma(T, g, T)
    d, d_low = pair(e, DOWN, 1)
    w = 1 / d
    u = c * np.where(negative, T, F32(1 / DOWN))
    m, m_low = pair(u, np.where(negative, g, F32(0)), u)
    y = m * w
    rest = fma(-y, d_low, fma(-y, d, m)) + m_low
    return fma(rest, w, y) * F32(DOWN)


def falling(v: Array) -> tuple[Array, Array]:
    """`e^v` for v ≤ 0, as g and T."""
    t = fma(v, LOG2E, ROUND + 227)
    n, T = whole(t, 227)
    f = fma(n, -LN2L, fma(n, -LN2H, v))
    return fma(f * f, horner(f, EXPM1R), f), T


def sigmoid(x: Array) -> Array:
    """`1 / (1 + e^−x)`."""
    return gate(np.ones_like(x), x < 0, *falling(-at_most(np.abs(x), 104)))


def silu(x: Array) -> Array:
    """`x / (1 + e^−x)`."""
    c = at_least(x, -110)
    return np.where(x > 20, x, sign(gate(c, x < 0, *falling(-np.abs(c))), x))


def gelu_tanh(x: Array) -> Array:
    """`x / (1 + e^−2u)` with `u = √(2/π) · (x + 0.044715 x³)`."""
    a, b, a_low, b_low = numbers("0x1.26aecp1 0x1.a5a7dp-4 0x1.0de73ap-22 -0x1.151aaep-29")
    c = at_least(x, -11)
    v = -np.abs(c)
    z, z_low = product(c, c)
    factor, factor_low = pair(z, b, a)
    factor_low = fma(z_low, b, factor_low) + fma(z, b_low, a_low)
    t = fma(v, factor, ROUND + 227)
    n, T = whole(t, 227)
    f = fma(v, factor_low, fma(v, factor, -n))
    return np.where(x > 10, x, sign(gate(c, x < 0, f * horner(f, EXP2M1R), T), x))


TANH = numbers(
    "-0x1.55555p-2 0x1.110f8p-3 -0x1.b9d1ecp-5 0x1.632334p-6 -0x1.0f7cf2p-7 0x1.54c414p-9"
    " -0x1.e380ep-12"
)


def tanh(x: Array) -> Array:
    """By an odd polynomial below 0.9, else `1 − 2 / (1 + e^2|x|)`."""
    z = x * x
    small = fma(x, z * horner(z, TANH), x)
    a = at_most(np.abs(x), 10)
    n, T = whole(fma(a, 2 * LOG2E, ROUND + 128), 128)
    f = fma(n, -LN2L / 2, fma(n, -LN2H / 2, a))
    g = fma(f * f, horner(f, tuple(2.0 ** (i + 1) * c for i, c in enumerate(EXPM1R))), f)
    big = fma(-2, 1 / fma(T, g, fma(T, 0.5, 1)), 1)
    return sign(np.where(np.abs(x) >= F32(0.9), big, small), x)


ERF = numbers(
    "0x1.06eba8p-3 -0x1.81274p-2 0x1.ce2d4ap-4 -0x1.b7fdaap-6 0x1.5423dcp-8 -0x1.a4afd2p-11"
    " 0x1.4b190ep-14"
)
ERF_LOG = numbers(
    "-0x1.a0c7a2p0 -0x1.d5ac96p-1 -0x1.3685ep-3 0x1.0d4c88p-5 -0x1.2cf57ep-8 0x1.3df506p-12"
)


def erf(x: Array) -> Array:
    """By an odd polynomial below 1, else `1 − 2^(a·h(a))`."""
    a, z = at_most(np.abs(x), 4), x * x
    small = fma(x, horner(z, ERF), x)
    h = horner(a, ERF_LOG)
    n, T = whole(fma(a, h, ROUND + 127), 127)
    power = horner(fma(a, h, -n), (1.0, *EXP2M1R))
    return np.where(np.abs(x) >= 1, sign(fma(-power, T, 1), x), small)


GELU_P = numbers("0x1.cp-1 0x1.477378p-2 0x1.d553f8p-8"), numbers("0x1.8815ccp-1 0x1.221006p-4")
GELU_Q = (
    numbers("0x1.cp0 0x1.0ce25p1 0x1.6b904ep-3"),
    numbers("0x1.76c4dp1 0x1.a37388p-1 0x1.261aa4p-6"),
)


def gelu_erf(x: Array) -> Array:
    """`x · Φ(x)`; Φ below 0 is `e^(−x²/2) · P / Q`."""
    high, low = numbers("-0x1.715476p-1 -0x1.4ae0cp-27")
    c = at_most(at_least(x, -14.5), 14.5)
    a, (z, z_low) = np.abs(c), product(c, c)
    n, T = whole(fma(z, high, ROUND + 227), 227)
    f = fma(z_low, high, fma(z, low, fma(z, high, -n)))
    u = c * T
    m = fma(u, f * horner(f, EXP2M1R), u)
    p, q = (fma(a, horner(z, odd), horner(z, even)) for even, odd in (GELU_P, GELU_Q))
    w = 1 / q
    r = p * w
    y = fma(m, r, m * (fma(-r, q, p) * w)) * F32(DOWN)
    return np.where(x < 0, y, sign(x - y, x))


# --- Logarithms ----------------------------------------------------------------------------------

LOG = numbers(
    "0x1.555558p-2 -0x1.ffff26p-3 0x1.9996dep-3 -0x1.5594a6p-3 0x1.2503c6p-3 -0x1.f408p-4"
    " 0x1.b73b1ap-4 -0x1.05f958p-3 0x1.f0b668p-4"
)
LOG2 = numbers(
    "0x1.ec709ep-2 -0x1.7153d2p-2 0x1.2775f2p-2 -0x1.ecceb4p-3 0x1.a67f08p-3 -0x1.688c3cp-3"
    " 0x1.3f6bb4p-3 -0x1.7a9392p-3 0x1.5c340ep-3"
)


def exponent(x: Array) -> tuple[Array, Array]:
    """Bits of an exponent, e, and the rest, f: `x = 2^(e / 2^23) · (1 + f)`."""
    e = (word(x) - U32(0x3F2AAAAB)) & U32(0xFF800000)
    return e.view(I32), number(word(x) - e) - 1


def reduced(x: Array) -> tuple[Array, Array]:
    """k and f: `x = 2^k · (1 + f)`."""
    tiny = x < F32(2.0**-126)
    e, f = exponent(np.where(tiny, x * F32(2.0**23), x))
    return fma(e.astype(F32), 2.0**-23, np.where(tiny, F32(-23), F32(0))), f


def first_terms(f: Array) -> tuple[Array, Array]:
    """`f − f²/2`."""
    half = F32(-0.5) * f
    s = fma(f, half, f)
    return s, fma(f, half, f - s)


def natural(k: Array, f: Array, s: Array, s_low: Array) -> Array:
    """`k ln 2 + ln(1 + f)`."""
    high, low = numbers("0x1.62e4p-1 0x1.7f7d1cp-20")
    y = fma(k, high, s)
    rest = fma(k, low, s - fma(k, -high, y)) + s_low
    return y + fma(f * f, f * horner(f, LOG), rest)


def with_poles(y: Array, x: Array, pole: float) -> Array:
    """−∞ at the pole, NaN below, ∞ at ∞."""
    above = np.where(x < F32(np.inf), y, x)
    return np.where(x > pole, above, np.where(x == pole, F32(-np.inf), F32(np.nan)))


def log(x: Array) -> Array:
    """`ln x`."""
    k, f = reduced(x)
    return with_poles(natural(k, f, *first_terms(f)), x, 0)


def log2(x: Array) -> Array:
    """The logarithm to base 2."""
    k, f = reduced(x)
    s, s_low = first_terms(f)
    u, u_low = product(s, LOG2E)
    u_low = fma(s_low, LOG2E, fma(s, float.fromhex("0x1.4ae0cp-26"), u_low))
    y = k + u
    rest = (u - (y - k)) + u_low
    return with_poles(y + fma(f * f, f * horner(f, LOG2), rest), x, 0)


def log1p(x: Array) -> Array:
    """`ln(1 + x)`."""
    v = 1 + x
    lost = np.where(x > 1, 1 - (v - x), x - (v - 1))
    e, m = exponent(v)
    c = lost * number(U32(0x3F800000) - np.minimum(e, 100 << 23).view(U32))
    f = m + c
    f_low = (m - f) + c
    s, s_low = first_terms(f)
    s_low = fma(f_low, fma(-f, 1 - f, 1), s_low)
    y = natural(e.astype(F32) * F32(2.0**-23), f, s, s_low)
    return with_poles(np.where(x == 0, x, y), x, -1)


# --- Roots ---------------------------------------------------------------------------------------

HALF_UNIT = 1 << 28  # of the last bit of float32 among the bits of float64


def rsqrt(x: Array) -> Array:
    """`1 / √x`, rounded once: of float64, which fractions decide where it is near a tie."""
    wide = np.atleast_1d(1 / np.sqrt(x.astype(np.float64)))
    bits = wide.view(np.int64)
    for place in np.flatnonzero(np.abs((bits & HALF_UNIT * 2 - 1) - HALF_UNIT) < 4):
        tie = np.int64(bits[place] & -2 * HALF_UNIT | HALF_UNIT).view(np.float64)
        above = Fraction(float(tie)) ** 2 * Fraction(float(x.flat[place])) < 1
        wide[place] = np.nextafter(tie, np.inf if above else 0)
    return wide.astype(F32).reshape(x.shape)


def rsqrt_div(x: Array) -> Array:
    """`1 / √x`, rounded twice."""
    return 1 / np.sqrt(x)


# --- Sine and cosine -----------------------------------------------------------------------------

SIN = numbers("-0x1.555556p-3 0x1.11114ap-7 -0x1.a02976p-13 0x1.6faf38p-19")
COS = numbers("0x1.555532p-5 -0x1.6c000ap-10 0x1.97061ep-16")


def sine(r: Array, low: Array, quadrant: Array) -> Array:
    """The sine of `quadrant · π/2 + r + low`."""
    z, half = r * r, F32(-0.5) * r
    w, w_low = pair(r, half, 1)
    s = r + fma(r, z * horner(z, SIN), low * w)
    c = w + fma(z * z, horner(z, COS), fma(-r, low, w_low))
    y = np.where(quadrant & U32(1), c, s)
    return np.where(quadrant & U32(2), -y, y)


def angle(x: Array) -> tuple[Array, Array, Array]:
    """r, its low part, and the quadrant."""
    inverse, high, middle, low = numbers(
        "0x1.45f306p-1 -0x1.921fb6p0 0x1.777a5cp-25 0x1.ee59dap-50"
    )
    t = fma(x, inverse, ROUND)
    n = whole(t, 0)[0]
    a = fma(n, high, x)
    b, b_low = product(n, middle)
    r = a + b
    return r, fma(n, low, ((a - r) + b) + b_low), word(t)


def sin(x: Array) -> Array:
    """`sin x`."""
    y = np.where(np.abs(x) < F32(2.0**-12), x, sine(*angle(x)))
    return np.where(np.abs(x) <= F32(2.0**22), y, F32(np.nan))


def cos(x: Array) -> Array:
    """`cos x`."""
    r, low, quadrant = angle(x)
    return np.where(np.abs(x) <= F32(2.0**22), sine(r, low, quadrant + U32(1)), F32(np.nan))


def turned(quarters: int, phase: Array) -> Array:
    """The sine of `phase · 2^−32` turns and of some quarters more."""
    unit, unit_low = numbers("0x1.921fb6p-30 -0x1.777a5cp-55")
    quadrant = (phase + U32(1 << 29)) >> U32(30)
    inside = (phase - (quadrant << U32(30))).view(I32)
    high = inside.astype(F32)
    rest = (inside - high.astype(I32)).astype(F32)
    r, low = product(high, unit)
    low = fma(rest, unit, fma(high, unit_low, low))
    return sine(r, low, quadrant + U32(quarters))


# --- All of them ---------------------------------------------------------------------------------


def finished(function: Function) -> Function:
    """With canonical NaNs, and without warnings of infinities."""

    def value(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return canonical(function(x), "float32")

    return value


# By the names of docs/numerics/functions.md.
FUNCTIONS: dict[str, Function] = {
    each.__name__: finished(each)
    for each in (
        *(exp2, exp, exp_nonpositive, sigmoid, silu, gelu_tanh, tanh, erf, gelu_erf),
        *(log, log2, log1p, rsqrt, rsqrt_div, sin, cos),
    )
}
FUNCTIONS |= {f"exp2_fast{degree}": finished(partial(exp2_fast, degree)) for degree in EXP2_FAST}
FUNCTIONS |= {
    f"{name}_turn": finished(partial(turned, quarters))
    for quarters, name in enumerate(("sin", "cos"))
}
