"""Sums of floating products: what the scalar functions and every instruction set give.

A program reads products and writes the sums of each way to compute them. They are compared with a
reference in NumPy, which is compared with fractions, and with what an H200 gave.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pytest

from planq.audit.ops.linear import float_sums
from planq.audit.reference.formats import FLOATS, Array, bits, canonical, narrowed, pack_nibbles

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/tensor_cores_h200.npz"
DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
PAIRS = (*((x, x) for x in DTYPES[:2]), *product(DTYPES[2:], repeat=2))
TENSOR_SM90, LANES, CHAIN, GROUPS = range(4)
KINDS = ("int8", "int4", "uint4", "codebook")


@dataclass(frozen=True)
class Sums:
    """A product, and what is asked for; accumulators are those of a chain."""

    a: Array
    w: Array
    asked: int
    c: Array | None = None

    def encoded(self) -> bytes:
        """As the program reads it."""
        dtypes = [DTYPES.index(side.dtype.name) for side in (self.a, self.w)]
        head = np.array([len(self.a), len(self.w), self.a.shape[1], *dtypes, self.asked], np.int32)
        return b"".join(x.tobytes() for x in (head, self.a, self.w, self.c) if x is not None)

    def expected(self) -> Array:
        """The reference's."""
        if self.asked == LANES:
            return float_sums.lanes(self.a, self.w)
        if self.c is None:
            return float_sums.tensor_sm90(self.a, self.w)
        return float_sums.chain(self.c, self.a, self.w)


@dataclass(frozen=True)
class Runs:
    """A product with codes, as (n, k), that stand for the values `v` of T under scales."""

    a: Array
    kind: str
    codes: Array
    v: Array
    scale: Array
    size: int
    zero_point: Array | None = None
    codebook: Array | None = None

    @property
    def w(self) -> Array:
        """What is multiplied."""
        return self.v

    def encoded(self) -> bytes:
        """As the program reads it."""
        dtype = DTYPES.index(self.a.dtype.name)
        (m, k), n = self.a.shape, len(self.codes)
        head = [m, n, k, dtype, dtype, GROUPS]
        head += [KINDS.index(self.kind), self.size, self.zero_point is not None]
        stored = self.codes.astype(np.int8)
        if self.kind != "int8":
            flat = stored.reshape(1, -1) if self.kind == "codebook" else stored
            stored = pack_nibbles(flat, "low_first")
        first = np.array(head, np.int32)
        operands = (first[:6], self.a, first[6:], stored, self.scale)
        operands += tuple(x for x in (self.zero_point, self.codebook) if x is not None)
        return b"".join(x.tobytes() for x in operands)

    def expected(self) -> Array:
        """The reference's."""
        return float_sums.groups_sm90(self.a, self.v, self.scale, self.size)


Product = Sums | Runs


@pytest.fixture(scope="module")
def ways(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Sequence[Product]], list[list[Array]]]:
    """Of each product, its sums by every way. No way reads beside the factors."""
    program = tmp_path_factory.mktemp("levels") / "float_levels"
    flags = ["-std=c++20", "-Og", "-ffp-contract=off", "-fsanitize=address,undefined"]
    flags += ["-fno-sanitize-recover=all", f"-I{ROOT / 'src'}", f"-I{Path(__file__).parent}"]
    source = Path(__file__).with_name("float_levels.cpp")
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)

    def run(products: Sequence[Product]) -> list[list[Array]]:
        given = b"".join(each.encoded() for each in products)
        done = subprocess.run([str(program)], input=given, check=True, capture_output=True)
        words, at, made = np.frombuffer(done.stdout, np.uint32), 0, []
        for each in products:
            shape = int(words[at]), len(each.a), len(each.w)
            size = int(np.prod(shape))
            made.append(list(words[at + 1 : at + 1 + size].view(np.float32).reshape(shape)))
            at += 1 + size
        assert at == len(words)
        return made

    return run


# --- Factors and accumulators --------------------------------------------------------------------


def numbers(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], low: int, high: int
) -> Array:
    """Any significands and signs, with exponents of a range; what is too large is the largest."""
    fmt = FLOATS[dtype]
    significand = rng.integers(2 ** (fmt.precision - 1), 2**fmt.precision, shape)
    exponent = rng.integers(low, high + 1, shape) - fmt.precision + 1
    values = np.ldexp(significand.astype(np.float64), exponent) * rng.choice([-1.0, 1.0], shape)
    return np.clip(values, -fmt.largest, fmt.largest).astype(fmt.dtype)


def patterns(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Any bits at all."""
    wide = FLOATS[dtype].dtype
    return rng.integers(0, 2 ** (8 * wide.itemsize), shape).astype(f"u{wide.itemsize}").view(wide)


Shapes = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
Made = tuple[Array, Array, Array]


def normal(rng: np.random.Generator, dtypes: tuple[str, str], shapes: Shapes) -> Made:
    """Of a bell, with accumulators of the size of sums."""
    a, w = (
        np.clip(rng.standard_normal(shape), -400, 400).astype(FLOATS[dtype].dtype)
        for dtype, shape in zip(dtypes, shapes, strict=False)
    )
    return a, w, (4 * rng.standard_normal(shapes[2])).astype(np.float32)


def ranges(low: int, high: int, c_low: int, c_high: int) -> Callable[..., Made]:
    """Exponents of factors and of accumulators, each from a range."""

    def make(rng: np.random.Generator, dtypes: tuple[str, str], shapes: Shapes) -> Made:
        a, w = (numbers(rng, dtypes[i], shapes[i], low, high) for i in range(2))
        return a, w, numbers(rng, "float32", shapes[2], c_low, c_high)

    return make


def any_bits(rng: np.random.Generator, dtypes: tuple[str, str], shapes: Shapes) -> Made:
    """Numbers of all sizes, infinities and NaNs."""
    a, w = (patterns(rng, dtypes[i], shapes[i]) for i in range(2))
    return a, w, patterns(rng, "float32", shapes[2])


def cancelling(rng: np.random.Generator, dtypes: tuple[str, str], shapes: Shapes) -> Made:
    """Neighbours that nearly annul each other, and accumulators that nearly annul the sum."""
    a, w, _ = normal(rng, dtypes, shapes)
    for side in (a, w):
        side[:, 1::2] = side[:, : side.shape[1] // 2 * 2 : 2]
    a[:, 1::2] = (-a[:, 1::2].astype(np.float32) * rng.choice([1, 1, 1.125])).astype(a.dtype)
    total = a.astype(np.float64) @ w.astype(np.float64).T
    return a, w, (-total * (1 + rng.integers(-2, 3, total.shape) * 2.0**-24)).astype(np.float32)


def sparse(make: Callable[..., Made]) -> Callable[..., Made]:
    """Mostly zeros of both signs."""

    def made(rng: np.random.Generator, dtypes: tuple[str, str], shapes: Shapes) -> Made:
        sides = make(rng, dtypes, shapes)
        for side in sides:
            hit = rng.random(side.shape) < rng.choice([0.4, 0.7, 0.97])
            side[hit] = rng.choice([-0.0, 0.0], int(hit.sum())).astype(side.dtype)
        return sides

    return made


def odd(rng: np.random.Generator, dtypes: tuple[str, str], shapes: Shapes) -> Made:
    """A few infinities and NaNs, and zeros for the infinities to meet."""
    sides = sparse(normal)(rng, dtypes, shapes)
    for side in sides:
        hit = rng.random(side.shape) < 0.02
        side[hit] = rng.choice([np.inf, -np.inf, np.nan], int(hit.sum())).astype(side.dtype)
    return sides


def one_far(rng: np.random.Generator, dtypes: tuple[str, str], shapes: Shapes) -> Made:
    """Far below 1, and one pair of a group with a very large factor."""
    sides = ranges(-62, -56, -149, -110)(rng, dtypes, shapes)
    large = (numbers(rng, dtypes[i], (shapes[i][0],), 66, 80) for i in range(2))
    small = (numbers(rng, dtypes[i], (shapes[i][0],), -126, -110) for i in range(2))
    first = rng.integers(2)
    for i, (one, other) in enumerate(zip(large, small, strict=True)):
        sides[i][:, 0] = one if i == first else other
    sides[1 - first][1:, 0] = 0
    return sides


def largest(rng: np.random.Generator, dtypes: tuple[str, str], shapes: Shapes) -> Made:
    """Significands of ones alone and of one sign, whose sums need all bits there are."""
    a, w = (
        np.full(shapes[i], (2 - 2.0 ** (1 - FLOATS[dtypes[i]].precision))).astype(dtypes[i])
        for i in range(2)
    )
    rows = rng.choice([-1, 1], (shapes[0][0], 1))
    c = np.full(shapes[2], np.float32(4 - 2.0**-22)) * np.float32(2.0) ** rng.integers(-3, 2)
    return (a * rows).astype(a.dtype), w, (c * rows).astype(np.float32)


CLASSES: dict[str, Callable[..., Made]] = {
    "normal": normal,
    "wide": ranges(-20, 20, -44, 44),
    "patterns": any_bits,
    "cancelling": cancelling,
    "subnormal": ranges(-160, -120, -149, -120),
    "subnormal_of_eight_bits": ranges(-18, -4, -40, 0),
    "below_the_floor": sparse(ranges(-78, -54, -149, -103)),
    "tiny": sparse(ranges(-87, -61, -149, -127)),
    "fast_and_slow": ranges(-56, -46, -110, -90),
    "small": sparse(ranges(-75, 3, -149, 2)),
    "far_apart": sparse(ranges(-126, 90, -149, 10)),
    "one_far": one_far,
    "top": ranges(60, 63, 120, 126),
    "huge": ranges(35, 70, 100, 127),
    "sparse": sparse(normal),
    "odd": odd,
    "largest": largest,
}
# m, n, k: whole panels and slices, and what is left of them.
EXTENTS = ((4, 32, 128), (5, 33, 16), (3, 17, 300), (9, 7, 31), (1, 40, 129), (2, 3, 1), (7, 1, 65))


def products(dtypes: tuple[str, str], make: Callable[..., Made]) -> Iterator[Sums]:
    """Of every size, with and without accumulators."""
    rng = np.random.default_rng(len(make.__name__) * 97 + PAIRS.index(dtypes))
    for m, n, k in EXTENTS:
        a, w, c = make(rng, dtypes, ((m, k), (n, k), (m, n)))
        yield Sums(a, w, TENSOR_SM90)
        yield Sums(a, w, CHAIN, c)
        yield Sums(a, w, LANES)


# m, n, k: rows of more than a block, and spans of one slice and of more.
EXTENTS_OF_RUNS = ((4, 32, 128), (65, 3, 48), (3, 17, 300), (9, 33, 31), (2, 5, 1100), (1, 40, 129))
ZERO_POINTS = (0, 1, 7, -8, 120, 121, 127, -120, -121, 128, 129, -128, -129, 255, 256, 100000)
ZERO_POINTS += (2**31 - 1, -(2**31))
BOUNDS = {"int8": (-128, 255)}
SCALES = (1.0, 0.0, -0.0, -1.5, np.inf, np.nan, 2.0**-149, 2.0**127, 3e-39, 1e30, -1e-30)


def runs(dtype: str, make: Callable[..., Made]) -> Iterator[Runs]:
    """Of every kind of codes and of every size of run, with scales of all sizes."""
    rng = np.random.default_rng(len(make.__name__) * 89 + DTYPES.index(dtype))
    sizes = cycle((16, 32, 64, 128, 256, 384))
    for kind, (m, n, k) in product(KINDS, EXTENTS_OF_RUNS):
        a = make(rng, (dtype, dtype), ((m, k), (n, k), (m, n)))[0]
        size = next(sizes)
        if kind == "codebook":
            fitting = [each for each in (128, 64, 32) if k % each == 0]
            k, size = (k, fitting[0]) if fitting else (64, 64)
            a = np.resize(a, (m, k))
        groups = -(-k // size)
        ordinary = np.exp2(rng.uniform(-12, 4, (n, groups)))
        special = rng.choice(SCALES, (n, groups))
        scale = np.where(rng.random((n, groups)) < 0.9, ordinary, special).astype(np.float32)
        low, high = {"int8": (-128, 128), "int4": (-8, 8)}.get(kind, (0, 16))
        codes = rng.integers(low, high, (n, k))
        if kind == "codebook":
            table = make(rng, (dtype, dtype), ((1, 16), (16, 16), (1, 16)))[2][0]
            yield Runs(a, kind, codes, narrowed(table, dtype)[codes], scale, size, None, table)
            continue
        zero = rng.choice(ZERO_POINTS, (n, groups)).astype(np.int32)
        counted = np.repeat(zero.clip(*BOUNDS.get(kind, (-120, 120))), size, axis=1)
        for shift, zero_point in ((0, None), (counted[:, :k], zero)):
            v = narrowed((codes - shift).astype(np.float32), dtype)
            yield Runs(a, kind, codes, v, scale, size, zero_point)


def equal(got: Array, want: Array) -> bool:
    """Bits, NaNs apart."""
    one, other = (bits(canonical(x, "float32")) for x in (got, want))
    return bool((one == other).all())


# --- Tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtypes", PAIRS, ids="*".join)
def test_every_way_gives_the_sums_of_the_reference(
    dtypes: tuple[str, str], name: str, ways: Callable[[Sequence[Product]], list[list[Array]]]
) -> None:
    """The scalar functions and each level of the processor."""
    given = list(products(dtypes, CLASSES[name]))
    for sums, results in zip(given, ways(given), strict=True):
        want = sums.expected()
        for got in results:
            assert equal(got, want), (name, sums.asked, sums.a.shape, sums.w.shape)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_every_way_gives_the_sums_of_runs(
    dtype: str, name: str, ways: Callable[[Sequence[Product]], list[list[Array]]]
) -> None:
    """Codes whose sums meet their scales, with zero points and scales of any size."""
    given = list(runs(dtype, CLASSES[name]))
    for sums, results in zip(given, ways(given), strict=True):
        want = sums.expected()
        for got in results:
            assert equal(got, want), (name, sums.kind, sums.size, sums.a.shape, sums.v.shape)


@pytest.mark.parametrize("name", CLASSES)
def test_the_reference_is_what_fractions_give(name: str) -> None:
    """One step of a few rows, computed without a float."""
    for dtypes in PAIRS:
        core = float_sums.tensor_core(dtypes[0])
        rng = np.random.default_rng(PAIRS.index(dtypes))
        a, w, c = CLASSES[name](rng, dtypes, ((3, core.group), (4, core.group), (3, 4)))
        got = float_sums.chain(c, a, w)
        lowest = FLOATS[dtypes[0]].lowest, FLOATS[dtypes[1]].lowest
        with np.errstate(invalid="ignore"):
            a, w = a.astype(np.float32), w.astype(np.float32)
        want = np.array(
            [
                [
                    float_sums.exact_step(core, float(own), row.tolist(), column.tolist(), lowest)
                    for own, column in zip(of_row, w, strict=True)
                ]
                for of_row, row in zip(c, a, strict=True)
            ],
            np.float64,
        )
        assert equal(got, want.astype(np.float32)), dtypes


# --- What a GPU gave -----------------------------------------------------------------------------

# Chains of wgmma on an H200 (driver 580.159.04), recorded on 2026-11-23: of each pair of types,
# class of numbers and count of steps, two products of 8 rows and 8 columns, of which the second has
# k terms and zeros behind them. mma.sync gave the same for the types of 16 bits.
NAMES = {"f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def recorded() -> Iterator[tuple[Sums, Array]]:
    """Products with their accumulators, and the sums."""
    with np.load(GOLDEN) as file:
        data = dict(file)
    for key in sorted({name.rpartition(".")[0] for name in data}):
        a, w, c, d, k = (data[f"{key}.{letter}"] for letter in "abcdk")
        dtypes = [FLOATS[NAMES[name]].dtype for name in key.split(".")[0].split("_")]
        for i, terms in enumerate(k):
            sides = a[i, :, :terms], w[i, :, :terms]
            stored = [
                np.ascontiguousarray(x).view(dtype) for x, dtype in zip(sides, dtypes, strict=True)
            ]
            yield Sums(*stored, CHAIN, c[i].view(np.float32)), d[i]


def test_every_way_gives_what_a_gpu_gave(
    ways: Callable[[Sequence[Product]], list[list[Array]]],
) -> None:
    """To the last bit, that of a NaN included."""
    products, wanted = zip(*recorded(), strict=True)
    assert sum(want.size for want in wanted) > 20_000
    for sums, results, want in zip(products, ways(list(products)), wanted, strict=True):
        for got in (sums.expected(), *results):
            assert (bits(got) == want).all()
