"""`codebook_quantize` on the host: every code of every table, its edges, and draws."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from ops.codebook.codebook_quantize.any_tables import check_any_tables
from planq.audit.memory import Host
from planq.audit.ops.codebook import inputs as codebook_inputs
from planq.audit.ops.codebook.cases import BOOKS, DATA, PARAMETERS
from planq.audit.ops.codebook.codebook_quantize.adapter import TESTS
from planq.audit.ops.codebook.codebook_quantize.reference import CodebookQuantizeProblem
from planq.audit.ops.codebook.reference import table
from planq.audit.reference import inputs
from planq.audit.reference.formats import INPUT_DTYPES, STORAGE, Array, bits, unpack_nibbles
from planq.audit.runner import Bench

F32, F64 = np.float32, np.float64
INF, NAN = float("inf"), float("nan")
TABLES = ("dynamic", "nf4", "fp4", "int4", "af4")
# Codebooks of a caller's own: 256 steps, 3 values, equal neighbours and runs of zeros, wide gaps.
GIVEN: dict[str, Array] = {
    "steps": np.linspace(-1, 1, 256).astype(F32),
    "unsigned": np.linspace(0, 1, 256).astype(F32),
    "three": np.array([-1, 0.25, 1], F32),
    "padded": np.sort(np.append(table("nf4"), np.zeros(240, F32))),
    "decades": np.sort(np.outer([-1, 1], 10.0 ** np.linspace(-37, 37, 128)).ravel()).astype(F32),
    "subnormal": (np.arange(-64, 64) * 2.0**-149).astype(F32),
    "zeros": np.array([-1, -0.5, 0.0, -0.0, 0.0, -0.0, 0.25, 1], F32),
}
GIVEN_NIBBLES: dict[str, Array] = {
    "steps of 4 bits": np.linspace(-1, 1, 16).astype(F32),
    "two": np.array([-0.5, 0.5], F32),
    "equal": np.array([-1, -1, 0, 0, 0, 0.5, 0.5, 1], F32),
    "zeros of 4 bits": np.array([-1, 0.0, -0.0, 1], F32),
}
EVERY = (*TABLES, *GIVEN, *GIVEN_NIBBLES)


def values_of(name: str) -> Array:
    """The values of a codebook by index."""
    return table(name) if name in TABLES else {**GIVEN, **GIVEN_NIBBLES}[name]


def problem_of(name: str, shape: tuple[int, ...], dtype: str, **fields: Any) -> Any:
    """A problem without an absmax, unless the fields say so."""
    values = values_of(name)
    eight = name == "dynamic" or name in GIVEN
    return CodebookQuantizeProblem(
        shape=shape,
        input_dtype=dtype,
        output_dtype="uint8" if eight else "uint4",
        codebook=name if name in TABLES else "given",
        entries=None if name in TABLES else len(values),
        **{"normalized": True, **fields},
    )


def codes_of(name: str, x: Array, **fields: Any) -> Array:
    """The codes of elements, one each; checked against the reference on the way."""
    problem = problem_of(name, x.shape, x.dtype.name, **fields)
    given = {"input": x, **({} if name in TABLES else {"codebook": values_of(name)})}
    TESTS.check(problem, **given)
    stored = TESTS.run(problem, **given)["output"]
    return stored if problem.code_dtype == "uint8" else unpack_nibbles(stored, x.size, "high_first")


def thresholds(name: str) -> Array:
    """Where codes change, in float32."""
    problem = problem_of(name, (1,), "float32")
    limits = problem.searched({"codebook": values_of(name)}).thresholds
    return np.concatenate([-limits[::-1], limits]) if name == "fp4" else limits


def check_nearest(name: str, y: Array, codes: Array) -> None:
    """No value is nearer than the code's own, but for the rounding of the middle between two.

    Distances are float64: exact where they are close.
    """
    values, wide = values_of(name).astype(F64), y.astype(F64)
    assert codes.max() < len(values)
    found = np.abs(wide - values[codes])
    ascending = np.unique(values)
    right = np.clip(np.searchsorted(ascending, wide), 1, len(ascending) - 1)
    best = np.minimum(np.abs(wide - ascending[right - 1]), np.abs(wide - ascending[right]))
    # A threshold is half an ulp of float32 from the middle, one more where a tie goes up; the
    # decimals of fp4 are further.
    slack = np.spacing(np.abs(y).astype(F32)).astype(F64) * (32 if name == "fp4" else 3)
    assert (found <= best + slack).all()
    assert (found == best).mean() > 0.4 or name in ("subnormal", "decades")


class TestEveryCode:
    """Every table against brute force."""

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    @pytest.mark.parametrize("name", EVERY)
    def test_every_value_of_sixteen_bits(self, name: str, dtype: str) -> None:
        """All 65,536 patterns: nearest; NaN as 0, infinities at the ends."""
        x = np.arange(2**16, dtype=np.uint16).view(STORAGE[dtype])
        with np.errstate(invalid="ignore"):
            wide = x.astype(F32)
        codes = codes_of(name, x)
        finite = np.isfinite(wide)
        check_nearest(name, wide[finite], codes[finite])
        zero = codes_of(name, np.zeros(1, F32))[0]
        assert (codes[np.isnan(wide)] == zero).all()
        values = values_of(name)
        assert (values[codes[wide == INF]] == values.max()).all()
        assert (values[codes[wide == -INF]] == values.min()).all()
        reached = set(np.unique(codes).tolist())
        unused = {"int4": {8}}.get(name, set())
        if not name.startswith(("padded", "equal", "decades", "subnormal", "zeros")):
            assert set(range(len(values))) - unused == reached

    @pytest.mark.parametrize("name", EVERY)
    def test_around_every_threshold_in_float32(self, name: str) -> None:
        """100 floats on each side of each, and the next code begins exactly there."""
        limits = thresholds(name)
        steps = np.arange(-100, 101, dtype=np.int64)
        keys = bits(limits).astype(np.int64)
        around = np.where(limits < 0, 2**31 - keys, keys)[:, None] + steps
        raw = np.where(around < 0, -around | 2**31, around).astype(np.uint32)
        y = raw.view(F32).ravel()
        y = y[np.isfinite(y)]
        check_nearest(name, y, codes_of(name, y))

    @pytest.mark.parametrize("name", EVERY)
    def test_around_every_threshold_in_float64(self, name: str) -> None:
        """Between the float32 on either side of a threshold, where a rounded quotient would lie."""
        limits = np.append(thresholds(name), F32(0))
        beside = [np.nextafter(limits, F32(sign)) for sign in (-INF, INF)]
        parts = [limits.astype(F64), *(side.astype(F64) for side in beside)]
        for side in beside:
            parts += [(limits.astype(F64) + side) / 2, np.nextafter(limits.astype(F64), side)]
        parts += [np.array([5e-324, -5e-324, 1e-300, -1e-300, 1e300, -1e300, -0.0])]
        codes_of(name, np.concatenate(parts))

    @pytest.mark.parametrize("name", EVERY)
    def test_a_sweep_of_a_million(self, name: str) -> None:
        """Even steps over the unit interval and every exponent."""
        words = inputs.hashed(3, 2**20)
        for kind in ("patterns", "normal"):
            y = inputs.KINDS[kind](words, inputs.FLOATS["float32"])
            check_nearest(name, y, codes_of(name, y))

    @pytest.mark.parametrize("name", EVERY)
    def test_every_value_is_its_own_code(self, name: str) -> None:
        """Values of a codebook come back to themselves."""
        values = values_of(name)
        assert (values[codes_of(name, values)] == values).all()


class TestRules:
    """Ties, zeros and signs, by hand."""

    def test_ties_of_eight_bits_go_to_the_even_code(self) -> None:
        """As on bitsandbytes' GPUs."""
        y = np.array([0.5, 1.5, 2.5, -0.5], F32)
        values = np.arange(-2, 5, dtype=F32)
        problem = CodebookQuantizeProblem(
            shape=(4,), input_dtype="float32", entries=7, normalized=True
        )
        found = TESTS.run(problem, input=y, codebook=values)["output"]
        assert found.tolist() == [2, 4, 4, 2]

    def test_ties_of_four_bits_go_down(self) -> None:
        """Strictly above a threshold is the next code."""
        y = np.array([0.5, 1.5, 2.5, -0.5], F32)
        values = np.arange(-2, 5, dtype=F32)
        problem = CodebookQuantizeProblem(
            shape=(4,), input_dtype="float32", output_dtype="uint4", entries=7, normalized=True
        )
        found = TESTS.run(problem, input=y, codebook=values)["output"]
        assert found.tolist() == [0x23, 0x41]

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    def test_fp4_keeps_the_sign_of_what_becomes_zero(self, dtype: str) -> None:
        """Code 8 is -0; -0 itself has code 0."""
        x = np.array([-0.0, 0.0, -1e-4, 1e-4, -0.0026, 0.0026]).astype(STORAGE[dtype])
        assert codes_of("fp4", x).tolist() == [0, 0, 8, 0, 8, 0]

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    def test_int4_has_one_zero(self, dtype: str) -> None:
        """Code 7, from both sides; nothing has code 8."""
        x = np.array([-0.0, 0.0, -0.07, 0.07, -0.08, 0.08]).astype(STORAGE[dtype])
        assert codes_of("int4", x).tolist() == [7, 7, 7, 7, 9, 6]

    def test_golden_vectors(self) -> None:
        """Computed apart from planq, from the published formulas."""
        x = np.array([2, -2, 0.1, 0, -0.5, 1, 0.3, -0.01], F32)
        wanted = {
            "nf4": [0xF0, 0x87, 0x4C, 0x97],
            "fp4": [0x3B, 0x10, 0xF5, 0x69],
            "dynamic": [255, 0, 173, 127, 53, 219, 194, 104],
        }
        for name, codes in wanted.items():
            made = TESTS.run(problem_of(name, x.shape, "float32", normalized=False), input=x)
            assert made["output"].tolist() == codes
            assert made["absmax"].tolist() == [2]

    @pytest.mark.parametrize("name", ["subnormal", "dynamic", "nf4"])
    def test_a_caller_that_flushes_subnormals(self, name: str) -> None:
        """Thresholds, quotients and absmax are what they are elsewhere."""
        x = inputs.make("subnormal", (5000,), "float32", 3)
        given = {"input": x, **({} if name in TABLES else {"codebook": values_of(name)})}
        problem = problem_of(name, x.shape, "float32", normalized=name == "subnormal")
        wanted = problem.expected(given)
        bench = Bench(Host(1), TESTS.descriptor(problem))
        bench.load(given)
        assert torch.set_flush_denormal(True)
        try:
            bench.run()
        finally:
            torch.set_flush_denormal(False)
        bench.check(given, wanted, name)

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    @pytest.mark.parametrize("codes", ["uint8", "uint4"])
    def test_a_codebook_with_both_zeros(self, codes: str, dtype: str) -> None:
        """-0 ranks before +0, wherever they lie: the first one below 0 and at 0, the last above."""
        values = np.array([-1, 0.0, -0.0, 0.0, -0.0, 1], F32)
        x = np.array([-0.6, -0.4, -0.0, 0.0, 0.4, 0.6]).astype(STORAGE[dtype])
        problem = CodebookQuantizeProblem(
            shape=(6,), input_dtype=dtype, output_dtype=codes, entries=6, normalized=True
        )
        stored = TESTS.run(problem, input=x, codebook=values)["output"]
        found = stored if codes == "uint8" else unpack_nibbles(stored, 6, "high_first")
        assert found.tolist() == [0, 2, 2, 2, 3, 5]

    @pytest.mark.parametrize("entries", [2, 3, 100, 255, 256])
    def test_a_codebook_without_order_stays_inside(self, entries: int) -> None:
        """Its codes mean nothing, but none is beyond its entries, on any path of the search."""
        noise = inputs.make("patterns", (entries,), "float32", entries)
        for values in (noise, np.full(entries, NAN, F32), -np.sort(noise)):
            for count in (100, 10000):
                x = inputs.make("mixed", (count,), "float32", 4)
                problem = CodebookQuantizeProblem(
                    shape=(count,), input_dtype="float32", entries=entries, normalized=True
                )
                found = TESTS.run(problem, input=x, codebook=values)["output"]
                assert found.max() < entries


@pytest.mark.parametrize(("codes", "book"), BOOKS)
@pytest.mark.parametrize("dtype", INPUT_DTYPES)
def test_the_whole_table(dtype: str, codes: str, book: str) -> None:
    """Every absmax x quotient x NonFinite x rounding x order; operands take turns."""
    choices = itertools.product(
        ("measured", "given", "none"),
        ("reciprocal", "divide"),
        ("propagate", "saturate"),
        ("nearest_even", "stochastic"),
        ("high_first", "low_first"),
        (None, 2),
    )
    for seed, (absmax, quotient, nonfinite, rounding, order, entries) in enumerate(choices):
        problem = CodebookQuantizeProblem(
            shape=(5, 41),
            input_dtype=dtype,
            output_dtype=codes,
            codebook=book,
            entries=entries if book == "given" else None,
            absmax_given=absmax == "given",
            normalized=absmax == "none",
            quotient=quotient,
            nonfinite=nonfinite,
            rounding=rounding,
            nibble_order=order,
        )
        data, parameters = DATA[seed % len(DATA)], PARAMETERS[seed // 5 % len(PARAMETERS)]
        TESTS.check(problem, **codebook_inputs.make(problem, data, parameters, seed))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("codes", ["uint8", "uint4"])
def test_any_table_of_a_caller(codes: str, dtype: str) -> None:
    """On, beside and between its thresholds and values; by few elements, by many and by draws."""
    check_any_tables(Host(), codes, dtype)


class TestTensors:
    """One absmax for all."""

    @pytest.mark.parametrize("threads", [1, 2, 5])
    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    def test_a_large_tensor_is_shared_by_threads(self, dtype: str, threads: int) -> None:
        """Its absmax is that of all pieces, wherever it lies."""
        for count, where in ((300_001, 299_999), (2**19, 70_000)):
            x = inputs.make("normal", (count,), dtype, 5)
            x[where] = -1000
            problem = problem_of("nf4", x.shape, dtype, normalized=False)
            TESTS.check(problem, Host(threads), input=x)

    @pytest.mark.parametrize("value", [NAN, -NAN, INF, -INF])
    def test_one_bad_element_of_a_large_tensor(self, value: float) -> None:
        """PROPAGATE gives the tensor up; SATURATE leaves the element out."""
        x = inputs.make("normal", (300_001,), "float32", 6)
        x[200_000] = value
        for nonfinite in ("propagate", "saturate"):
            fields = {"normalized": False, "nonfinite": nonfinite}
            problem = problem_of("dynamic", x.shape, "float32", **fields)
            TESTS.check(problem, Host(2), input=x)
            absmax = TESTS.run(problem, input=x)["absmax"]
            assert bits(absmax)[0] == 0x7FC00000 if nonfinite == "propagate" else absmax[0] < 1000

    def test_saturated_infinities_take_the_ends(self) -> None:
        """And NaN the zero, under SATURATE."""
        x = np.array([INF, -INF, NAN, 1, -1, 0.5], F32)
        made = TESTS.run(
            problem_of("nf4", x.shape, "float32", normalized=False, nonfinite="saturate"), input=x
        )
        assert made["absmax"].tolist() == [1]
        assert made["output"].tolist() == [0xF0, 0x7F, 0x0C]

    def test_nothing_but_infinities(self) -> None:
        """SATURATE has nothing to measure: a tensor of zeros."""
        x = np.array([INF, -INF, NAN], F32)
        made = TESTS.run(
            problem_of("nf4", x.shape, "float32", normalized=False, nonfinite="saturate"), input=x
        )
        assert made["absmax"].tolist() == [0]
        assert made["output"].tolist() == [0x77, 0x70]


class TestDraws:
    """STOCHASTIC: neighbours, odds and independence of the way that is gone."""

    COUNT = 2**16

    def drawn(self, name: str, y: float, dtype: str = "float32", seed: int = 11) -> Array:
        """The codes of many equal elements."""
        x = np.full(self.COUNT, y, STORAGE[dtype])
        problem = problem_of(name, x.shape, dtype, rounding="stochastic")
        given = {} if name in TABLES else {"codebook": values_of(name)}
        made = TESTS.run(problem, input=x, seed=np.int64(seed), offset=np.int64(0), **given)
        stored = made["output"]
        if problem.code_dtype == "uint8":
            return stored
        return unpack_nibbles(stored, x.size, "high_first")

    @pytest.mark.parametrize("name", ["dynamic", "nf4", "fp4", "int4", "af4", "steps", "three"])
    def test_the_mean_of_the_values_is_the_element(self, name: str) -> None:
        """Within five standard deviations; no value but the two beside it is taken."""
        values = values_of(name).astype(F64)
        ascending = np.unique(values)
        for y in (0.3, -0.3, 0.004, -0.004, 0.77, -0.061):
            at = float(F32(y))
            found = values[self.drawn(name, at)]
            upper = np.searchsorted(ascending, at, side="right")
            low, high = ascending[upper - 1], ascending[upper]
            assert set(np.unique(found)) <= {low, high}
            spread = np.sqrt((at - low) * (high - at) / self.COUNT)
            assert abs(found.mean() - at) < 5 * spread

    @pytest.mark.parametrize("name", ["dynamic", "nf4", "fp4", "af4", "steps", "three"])
    def test_values_and_what_lies_beyond_them_are_not_drawn(self, name: str) -> None:
        """They have one code each."""
        values = values_of(name)
        for y in (float(values[1]), float(values.max()), float(values.min()), 3.0, -3.0, INF, -INF):
            found = values[self.drawn(name, y)]
            assert (found == np.clip(F32(y), values.min(), values.max())).all()

    def test_int4_draws_one_of_its_zeros(self) -> None:
        """Code 8 is never taken."""
        assert set(np.unique(self.drawn("int4", -0.05))) == {7, 9}
        assert set(np.unique(self.drawn("int4", 0.05))) == {6, 7}

    def test_a_part_draws_what_it_draws_in_the_whole(self) -> None:
        """Four elements share a counter, so a part begins at a multiple of four."""
        x = inputs.make("normal", (4096,), "float32", 7) / F32(8)
        whole = problem_of("dynamic", (4096,), "float32", rounding="stochastic")
        part = problem_of("dynamic", (1096,), "float32", rounding="stochastic")
        seed = np.int64(5)
        among = TESTS.run(whole, input=x, seed=seed, offset=np.int64(9))["output"]
        alone = TESTS.run(part, input=x[3000:], seed=seed, offset=np.int64(9 + 750))["output"]
        assert np.array_equal(among[3000:], alone)
