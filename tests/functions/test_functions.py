"""Elementary functions of the host: every instruction set against NumPy, and errors in ulp.

These are samples. `make exhaustive` takes all inputs, and tests/gpu/test_functions.py a GPU's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from planq.audit.every_input import EVERY, RECORDED, STEP, Words, digest, parts
from planq.audit.reference import functions as reference
from planq.audit.reference.formats import Array
from support.functions import ROOT, HostLoops

PAGE = ROOT / "docs/numerics/functions.md"
NAMES = sorted(RECORDED)
TURNS = ("sin_turn", "cos_turn")
BLOCK = 1 << 14  # inputs that NumPy has in a cache

Float64 = npt.NDArray[np.float64]

# Where sequences change their ways, magnitudes at the ends of float32, and the input whose
# 1 / sqrt(x) is the nearest to a tie.
TURNING_POINTS = (
    *(0.0, 2.0**-149, 2.0**-126, 2.0**-64, 2.0**-24, 2.0**-12, 0.5, 0.9, 1.0, 2.0, 4.0, 10.0),
    *(11.0, 14.5, 20.0, 88.72284, 87.33655, 89.0, 103.97208, 104.0, 110.0, 126.0, 127.0, 128.0),
    *(149.0, 150.0, 151.0, 4096.0, 2.0**20, 2.0**22, 2.0**23, 2.0**126, 2.0**127),
    *(float.fromhex("0x1.743196p+1"), float.fromhex("0x1.fffffep+127"), math.pi / 2, math.e),
)
NANS = (0x7FC00000, 0x7FFFFFFF, 0x7F800001, 0xFFC00000, 0xFF800001, 0xFFFFFFFF)


def special_inputs() -> Words:
    """Turning points of both signs with their neighbours, infinities and NaNs."""
    points = np.array(TURNING_POINTS, np.float32).view(np.uint32).astype(np.int64)
    near = (points[:, None] + np.arange(-2, 3)).ravel()
    near = near[(near >= 0) & (near <= 0x7F800000)]
    quadrants = (np.arange(8)[:, None] * 2**29 + np.arange(-3, 4)).ravel() % 2**32
    return np.concatenate((near, near + 2**31, NANS, quadrants)).astype(np.uint32)


SAMPLED = -(-EVERY // STEP)
INPUTS: Words = np.concatenate((next(parts(STEP, EVERY)), special_inputs()))


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> HostLoops:
    """Compiled once."""
    return HostLoops(tmp_path_factory.mktemp("functions"))


def by_reference(name: str, words: Words) -> Words:
    """Bits of what NumPy gives."""
    function = reference.FUNCTIONS[name]
    results = np.empty_like(words)
    for first in range(0, len(words), BLOCK):
        part = words[first : first + BLOCK]
        given = part if name in TURNS else part.view(np.float32)
        results[first : first + BLOCK] = function(given).view(np.uint32)
    return results


@pytest.mark.parametrize("name", NAMES)
def test_every_level_gives_the_bits_of_the_reference(name: str, loops: HostLoops) -> None:
    """The canonical NaN included, at every length that leaves a vector unfilled."""
    want = by_reference(name, INPUTS)
    sampled = digest(lambda _: want[:SAMPLED].copy(), STEP, SAMPLED)
    assert sampled == RECORDED[name]["sampled"]
    for level in (*loops.levels, "chosen"):
        got = loops.apply(level, name, INPUTS)
        wrong = np.flatnonzero(got != want)
        assert wrong.size == 0, (level, [f"{INPUTS[i]:08x}" for i in wrong[:5]])
        for count in range(67):
            assert (
                loops.apply(level, name, INPUTS[-count - 1 : -1]) == want[-count - 1 : -1]
            ).all()


# --- Errors --------------------------------------------------------------------------------------


def elementwise(function: Callable[[float], float]) -> Callable[[Float64], Float64]:
    """Of a function of Python's."""
    return lambda x: np.fromiter(map(function, x.tolist()), np.float64, x.size)


def gelu_tanh(x: Float64) -> Float64:
    """As its formula has it."""
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def of_turns(quarters: int) -> Callable[[Float64], Float64]:
    """The sine of a phase and of quarters of a turn; what is left of the phase is exact."""

    def sine(phase: Float64) -> Float64:
        quadrant = np.rint(phase / 2**30)
        angle = (phase - quadrant * 2**30) * (2 * math.pi / 2**32)
        place = (quadrant + quarters) % 4
        value = np.where(place % 2 == 0, np.sin(angle), np.cos(angle))
        return np.where(place < 2, value, -value)

    return sine


EXACT: dict[str, Callable[[Float64], Float64]] = {
    **dict.fromkeys(("exp2", "exp2_fast5", "exp2_fast4", "exp2_fast3"), np.exp2),
    **dict.fromkeys(("exp", "exp_nonpositive"), np.exp),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": gelu_tanh,
    "tanh": np.tanh,
    "erf": elementwise(math.erf),
    "gelu_erf": lambda x: 0.5 * x * elementwise(math.erfc)(-x * math.sqrt(0.5)),
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    **dict.fromkeys(("rsqrt", "rsqrt_div"), lambda x: 1 / np.sqrt(x)),
    "sin": np.sin,
    "cos": np.cos,
    "sin_turn": of_turns(0),
    "cos_turn": of_turns(1),
}
# Where each is meant to be used, if not for all finite numbers; open at 0 and -1.
DOMAINS = {
    **dict.fromkeys(("exp2_fast5", "exp2_fast4", "exp2_fast3"), (-126.0, 0.0)),
    "exp_nonpositive": (-math.inf, 0.0),
    **dict.fromkeys(("log", "log2", "rsqrt", "rsqrt_div"), (2.0**-149, math.inf)),
    "log1p": (-1 + 2.0**-24, math.inf),
    **dict.fromkeys(("sin", "cos"), (-(2.0**22), 2.0**22)),
}


def arguments(name: str) -> tuple[Words, Float64]:
    """The inputs of a function's domain, and the numbers that they are."""
    if name in TURNS:
        return INPUTS, INPUTS.astype(np.float64)
    x = INPUTS.view(np.float32)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        low, high = DOMAINS.get(name, (-math.inf, math.inf))
        words = INPUTS[np.isfinite(x) & (x >= low) & (x <= high)]
    return words, words.view(np.float32).astype(np.float64)


def errors(got: Array, exact: Float64) -> Float64:
    """In ulp of the exact results. Beyond the finite numbers infinity is right."""
    unit = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 24, -149))
    beyond = np.abs(exact) >= 2.0**128 - 2.0**103
    assert np.isinf(got[beyond]).all()
    return np.where(beyond, 0, np.abs(np.where(beyond, 0, got) - exact) / unit)


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_within_their_bounds(name: str, loops: HostLoops) -> None:
    """Those of samples; the bounds are the largest errors of all inputs, to four digits."""
    words, x = arguments(name)
    with np.errstate(over="ignore", under="ignore"):
        exact = EXACT[name](x)
    got = loops.apply("chosen", name, words).view(np.float32).astype(np.float64)
    found = errors(got, exact)
    subnormal = (np.abs(exact) < 2.0**-126) & (found > 0)
    bounds = RECORDED[name]
    assert 0.4 < found[~subnormal].max() < bounds["max_ulp"] + 1e-4
    assert found[subnormal].max(initial=0) < bounds.get("max_ulp_subnormal", 0.5) + 1e-3


# --- Values that the page promises ---------------------------------------------------------------

INF, NAN = math.inf, math.nan
PROMISED = {
    "exp2": (
        (INF, INF),
        (-INF, 0.0),
        (128, INF),
        (-150, 0.0),
        (-149, 2.0**-149),
        (10, 1024.0),
        (-0.0, 1.0),
    ),
    "exp": ((INF, INF), (-INF, 0.0), (89, INF), (-104, 0.0), (0.0, 1.0), (-0.0, 1.0)),
    "exp_nonpositive": ((-INF, 0.0), (0.0, 1.0), (-0.0, 1.0)),
    **dict.fromkeys(
        ("exp2_fast5", "exp2_fast4", "exp2_fast3"),
        ((-INF, 0.0), (-127, 0.0), (-126, 2.0**-126), (-7, 2.0**-7), (0.0, 1.0), (-0.0, 1.0)),
    ),
    "sigmoid": ((INF, 1.0), (-INF, 0.0), (0.0, 0.5)),
    "silu": ((INF, INF), (-INF, -0.0), (0.0, 0.0), (-0.0, -0.0)),
    "gelu_tanh": ((INF, INF), (-INF, -0.0), (0.0, 0.0), (-0.0, -0.0)),
    "gelu_erf": ((INF, INF), (-INF, -0.0), (0.0, 0.0), (-0.0, -0.0)),
    "tanh": ((INF, 1.0), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0)),
    "erf": ((INF, 1.0), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0)),
    "log": ((INF, INF), (0.0, -INF), (-0.0, -INF), (-1, NAN), (-INF, NAN), (1, 0.0)),
    "log2": (
        (INF, INF),
        (0.0, -INF),
        (-0.0, -INF),
        (-1, NAN),
        (-INF, NAN),
        (1, 0.0),
        (2.0**-149, -149.0),
    ),
    "log1p": ((INF, INF), (0.0, 0.0), (-0.0, -0.0), (-1, -INF), (-2, NAN), (-INF, NAN)),
    "rsqrt": ((INF, 0.0), (0.0, INF), (-0.0, -INF), (-1, NAN), (-INF, NAN), (4, 0.5)),
    "rsqrt_div": ((INF, 0.0), (0.0, INF), (-0.0, -INF), (-1, NAN), (-INF, NAN), (4, 0.5)),
    "sin": ((INF, NAN), (-INF, NAN), (2.0**22 + 1, NAN), (0.0, 0.0), (-0.0, -0.0)),
    "cos": ((INF, NAN), (-INF, NAN), (2.0**22 + 1, NAN), (0.0, 1.0), (-0.0, 1.0)),
}


@pytest.mark.parametrize("name", PROMISED)
def test_limits_zeros_and_nans(name: str, loops: HostLoops) -> None:
    """To the bit. A NaN stays one, but for exp2_fast, which has +0 for it."""
    pairs = [(math.nan, 0.0 if "fast" in name else math.nan)]
    pairs += PROMISED[name]
    given, want = (np.array(side, np.float32).view(np.uint32) for side in zip(*pairs, strict=True))
    assert [f"{x:08x}" for x in loops.apply("chosen", name, given)] == [f"{x:08x}" for x in want]


def test_quarters_of_a_turn_are_exact(loops: HostLoops) -> None:
    """0, 1, 0, -1."""
    quarters = np.arange(4, dtype=np.uint32) << np.uint32(30)
    for name, want in (("sin_turn", [0, 1, 0, -1]), ("cos_turn", [1, 0, -1, 0])):
        assert loops.apply("chosen", name, quarters).view(np.float32).tolist() == want


def test_powers_of_two_are_exact(loops: HostLoops) -> None:
    """Of integers, and back."""
    for name, least in (("exp2", -149), *((f"exp2_fast{degree}", -126) for degree in (3, 4, 5))):
        whole = np.arange(least, 128 if name == "exp2" else 1)
        powers = np.ldexp(np.float32(1), whole).astype(np.float32)
        words = whole.astype(np.float32).view(np.uint32)
        assert (loops.apply("chosen", name, words).view(np.float32) == powers).all()
        back = loops.apply("chosen", "log2", powers.view(np.uint32)).view(np.float32)
        assert (back == whole).all()


def test_exp_nonpositive_is_exp(loops: HostLoops) -> None:
    """Bit for bit where x <= 0."""
    words = arguments("exp_nonpositive")[0]
    results = [loops.apply("chosen", name, words) for name in ("exp", "exp_nonpositive")]
    assert words.size > 500_000
    assert (results[0] == results[1]).all()


RISING = ("exp2", "exp", "exp_nonpositive", "tanh", "log", "log2", "log1p")
FALLING = ("rsqrt", "rsqrt_div")


@pytest.mark.parametrize("name", RISING + FALLING)
def test_neighbours_never_step_back(name: str, loops: HostLoops) -> None:
    """In runs of neighbours, from many places; negative inputs descend."""
    low, high = DOMAINS.get(name, (-math.inf, math.inf))
    starts = np.random.default_rng(3).integers(0x2A000000, 0x43000000, 300)
    runs = (starts[:, None] + np.arange(2000)).astype(np.uint32)
    for sign, side in ((0, max(high, 0)), (1 << 31, min(low, 0))):
        if side == 0:
            continue
        words = runs | np.uint32(sign)
        words = words[(words.view(np.float32) >= low).all(axis=1)]
        results = loops.apply("chosen", name, words.ravel()).view(np.float32).reshape(words.shape)
        steps = np.diff(results.astype(np.float64), axis=1)
        assert steps.any()
        assert (steps * (-1 if (sign != 0) != (name in FALLING) else 1) >= 0).all()


def test_sines_of_smaller_angles_have_smaller_errors(loops: HostLoops) -> None:
    """Up to 2^20."""
    words, x = arguments("sin")
    inner = np.abs(x) <= 2.0**20
    for name in ("sin", "cos"):
        got = loops.apply("chosen", name, words[inner]).view(np.float32).astype(np.float64)
        exact = EXACT[name](x[inner])
        assert errors(got, exact)[np.abs(exact) >= 2.0**-126].max() < 0.726


# --- What the others are compared with -----------------------------------------------------------


def rounded(value: Fraction) -> float:
    """To float32, by integers, for magnitudes below the largest."""
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - 23, -149)
    return math.copysign(float(round(size / unit) * unit), value)


def test_the_reference_fuses_as_fractions_do() -> None:
    """Cancellation, subnormals, and sums that float64 alone would round twice."""
    rng = np.random.default_rng(5)

    def drawn(low: int, high: int) -> Array:
        significand = rng.integers(2**23, 2**24, 3000) * rng.choice([-1.0, 1.0], 3000)
        return np.ldexp(significand, rng.integers(low, high, 3000) - 23).astype(np.float32)

    a, b = drawn(-60, 60), drawn(-60, 60)
    wide = a.astype(np.float64) * b
    # A product that is half a unit of its addend but for 2^-70.
    below = np.full(3000, 1 + 2.0**-23), np.full(3000, 2.0**-24 * (1 - 2.0**-23))
    twice = (*(side.astype(np.float32) for side in below), drawn(0, 1))
    with np.errstate(under="ignore"):
        cases = [
            (a, b, drawn(-60, 60)),
            (a, b, (-wide).astype(np.float32)),
            (a, b, np.clip(wide * 2.0 ** rng.integers(-60, 60, 3000), -1e38, 1e38)),
            (drawn(-80, -60), drawn(-80, -60), drawn(-149, -120)),
            twice,
        ]
    for x, y, z in cases:
        z = z.astype(np.float32)
        exact = [
            Fraction(p) * Fraction(q) + Fraction(r)
            for p, q, r in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
        ]
        assert reference.fma(x, y, z).tolist() == [rounded(each) for each in exact]
    x, y, z = (side.astype(np.float64) for side in twice)
    assert ((x * y + z).astype(np.float32) != reference.fma(*twice)).any()


def test_all_lists_of_functions_are_the_same(loops: HostLoops) -> None:
    """The library's, the reference's, the digests' and the page's, with bounds and digests."""
    assert set(loops.functions) == set(reference.FUNCTIONS) == set(RECORDED) == set(EXACT)
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip(" `") for cell in line.split("|")]
        if len(cells) > 4 and cells[1] in RECORDED:
            rows[cells[1]] = {"max_ulp": float(cells[2]), "sha256": cells[4]}
            if cells[3]:
                rows[cells[1]]["max_ulp_subnormal"] = float(cells[3])
    digests = {name: dict(facts) for name, facts in RECORDED.items()}
    for facts in digests.values():
        del facts["sampled"]
    assert rows == digests
