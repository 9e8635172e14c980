"""The tables of `planq.codebooks` against bitsandbytes' own, and against exact arithmetic.

==========================  ====================================================================
peer                        what is left of a difference
==========================  ====================================================================
create_dynamic_map          none; its padding with zeros is left out
create_linear_map           its middle is a rounding residue; maps below 8 bits that do not ascend
create_normal_map           none; padding likewise
create_fp8_map              the sign of its second zero; padding likewise
get_4bit_type               the sign of fp4's second zero; int4 raises there
==========================  ====================================================================
"""

from __future__ import annotations

import itertools
import logging
import sys
import types
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import planq
from planq import codebooks
from planq.audit.memory import Host
from planq.audit.ops.codebook import reference
from planq.audit.ops.statistics.estimate_quantiles.adapter import TESTS as QUANTILES
from planq.audit.ops.statistics.estimate_quantiles.reference import Problem
from planq.audit.reference.formats import Array, bits, unpack_nibbles
from planq.audit.runner import Bench

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from bitsandbytes import functional as bnb

    logging.disable(logging.NOTSET)

F32 = np.float32
BITS = range(2, 9)
# Where torch's linspace does not fuse, its own values are beside the rounded ones.
FUSES = torch.equal(
    torch.linspace(0.1, 1, 65), torch.from_numpy(codebooks._steps(0.1, 1, 65))
) and torch.equal(torch.linspace(-1, 1, 255), torch.from_numpy(codebooks._steps(-1, 1, 255)))


def same(ours: Array, theirs: Array) -> bool:
    """The same bits, or nearly where torch's own are not rounded once."""
    assert ours.dtype == theirs.dtype == F32
    if FUSES:
        return np.array_equal(bits(ours), bits(theirs))
    return ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=2.0**-21, atol=1e-7)


def without_padding(padded: torch.Tensor, entries: int) -> Array:
    """bitsandbytes' map without the zeros that fill it up to 256."""
    values = np.sort(padded.numpy())
    surplus = len(values) - entries
    first = int(np.flatnonzero(values == 0)[0]) if surplus else 0
    return np.delete(values, np.s_[first : first + surplus])


@pytest.mark.parametrize(
    ("total_bits", "exponents"), [(t, e) for t in BITS for e in range(1, t)], ids=str
)
def test_dynamic_is_bitsandbytes_without_padding(total_bits: int, exponents: int) -> None:
    ours = codebooks.dynamic(True, exponents, total_bits)
    theirs = bnb.create_dynamic_map(True, exponents, total_bits)
    assert len(ours) == 2**total_bits
    assert same(ours, without_padding(theirs, 2**total_bits))


@pytest.mark.parametrize("total_bits", BITS)
def test_unsigned_dynamic_is_bitsandbytes_without_padding(total_bits: int) -> None:
    ours = codebooks.dynamic(False, total_bits - 1, total_bits)
    theirs = bnb.create_dynamic_map(False, total_bits - 1, total_bits)
    assert same(ours, without_padding(theirs, 2**total_bits))


def test_the_facts_of_the_default_dynamic_map() -> None:
    """As the specification lists them."""
    signed, unsigned = codebooks.dynamic(), codebooks.dynamic(signed=False)
    assert signed[127] == 0
    assert signed[255] == 1
    assert signed[0] == F32(-0.99296875) == -signed[254]
    assert np.array_equal(signed[:127], -signed[254:127:-1])
    steps = [-2.125e-5, -7.75e-6, -3.25e-6, -5.5e-7, 0, 5.5e-7, 3.25e-6, 7.75e-6, 2.125e-5]
    assert np.allclose(signed[123:132], steps, rtol=1e-6, atol=0)
    assert np.allclose(unsigned[[0, 1, 254, 255]], [0, 3.25e-7, 0.9964844, 1], rtol=1e-6)


def test_the_reference_has_the_same_tables() -> None:
    """Both are written down from the specification, apart from each other."""
    made = {"dynamic": codebooks.dynamic(), "nf4": codebooks.nf4(), "fp4": codebooks.fp4()}
    made |= {"int4": codebooks.int4(), "af4": codebooks.af4()}
    for name, values in made.items():
        assert values.dtype == F32
        assert np.array_equal(bits(values), bits(reference.table(name))), name


@pytest.mark.parametrize("add_zero", [True, False])
@pytest.mark.parametrize("signed", [True, False])
def test_linear_of_8_bits_is_bitsandbytes(signed: bool, add_zero: bool) -> None:
    """But for the middle, where its rounding leaves something beside the zero."""
    ours = codebooks.linear(signed, 8, add_zero)
    theirs = bnb.create_linear_map(signed, 8, add_zero).numpy()
    if signed and add_zero:
        assert ours[127] == ours[128] == theirs[127] == 0
        assert abs(theirs[128]) < 1e-7
        theirs[128] = 0
    assert same(ours, theirs)


@pytest.mark.parametrize("total_bits", BITS)
def test_linear_below_8_bits_ascends(total_bits: int) -> None:
    """bitsandbytes' unsigned maps rise, fall to the padding's zeros and rise again."""
    count = 2**total_bits
    unsigned = codebooks.linear(False, total_bits)
    theirs = bnb.create_linear_map(False, total_bits).numpy()
    assert len(unsigned) == count
    assert np.allclose(unsigned, np.linspace(0, 1, count), atol=1e-7)
    assert np.all(np.diff(unsigned) > 0)
    assert np.any(np.diff(theirs) < 0) == (total_bits < 8)
    assert same(unsigned, np.sort(without_padding(torch.from_numpy(theirs), count)))
    signed = codebooks.linear(True, total_bits)
    assert len(signed) == count
    assert np.array_equal(signed, -signed[::-1])
    assert np.count_nonzero(signed == 0) == 2
    plain = codebooks.linear(True, total_bits, add_zero=False)
    assert len(plain) == count
    assert np.all(np.diff(plain) > 0)
    assert np.all(plain != 0)


def test_normal_is_nf4() -> None:
    """To the bit: the published table was made so."""
    values = codebooks.normal()
    assert np.array_equal(bits(values), bits(bnb.get_4bit_type("nf4", device="cpu").numpy()))
    both = codebooks.normal(use_extra_value=False)
    assert np.array_equal(both, np.concatenate([values[:8], -values[6::-1]]))


@pytest.mark.parametrize("use_extra_value", [True, False])
@pytest.mark.parametrize("offset", [0.9677083, 0.6, 0.75, 0.9, 0.99, 0.9999])
def test_normal_is_bitsandbytes_without_padding(
    monkeypatch: pytest.MonkeyPatch, offset: float, use_extra_value: bool
) -> None:
    """With torch's inverse of the distribution in the place of SciPy's: both are Cephes'."""
    norm = types.SimpleNamespace(ppf=lambda p: torch.special.ndtri(p.double()))
    stats: Any = types.ModuleType("scipy.stats")
    stats.norm = norm
    monkeypatch.setitem(sys.modules, "scipy", types.ModuleType("scipy"))
    monkeypatch.setitem(sys.modules, "scipy.stats", stats)
    ours = codebooks.normal(offset, use_extra_value)
    theirs = bnb.create_normal_map(offset, use_extra_value)
    assert same(ours, without_padding(theirs, 16 if use_extra_value else 15))


FIELDS = [
    (signed, exponents, total - exponents - signed, total)
    for total in BITS
    for signed in (True, False)
    for exponents in range(1, 8)
    if total - exponents - signed >= 0
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_fp8_is_bitsandbytes_without_padding(fields: tuple[bool, int, int, int]) -> None:
    """Equal as numbers: zeros are +0 here."""
    ours = codebooks.fp8(*fields)
    assert np.array_equal(ours, without_padding(bnb.create_fp8_map(*fields), 2 ** fields[-1]))
    assert not np.signbit(ours[ours == 0]).any()


def test_fp8_of_4_bits_is_not_fp4() -> None:
    """The docstring of bitsandbytes says so; their smallest magnitudes differ by 4."""
    ours = codebooks.fp8(True, 2, 1, 4)
    assert ours[9] == 4 * codebooks.fp4()[1]
    assert np.array_equal(ours[10:], np.sort(codebooks.fp4()[2:8]))


def test_4_bit_tables_are_bitsandbytes() -> None:
    nf4, fp4, af4 = (
        bnb.get_4bit_type(name, device="cpu").numpy() for name in ("nf4", "fp4", "af4")
    )
    assert np.array_equal(bits(codebooks.nf4()), bits(nf4))
    assert np.array_equal(bits(codebooks.af4()), bits(af4))
    differs = np.flatnonzero(bits(codebooks.fp4()) != bits(fp4))
    assert differs.tolist() == [8]
    assert codebooks.fp4()[8] == fp4[8] == 0


def test_int4_raises_in_bitsandbytes() -> None:
    """It divides integers in place; the table is the one that it means."""
    with pytest.raises(RuntimeError, match="can't be cast"):
        bnb.get_4bit_type("int4", device="cpu")
    sevenths = np.array([7, 6, 5, 4, 3, 2, 1, 0, 0, -1, -2, -3, -4, -5, -6, -7], F32) / F32(7)
    assert np.array_equal(codebooks.int4(), sevenths)


@pytest.mark.parametrize("total_bits", BITS)
@pytest.mark.parametrize("count", [1, 2, 255, 4095, 4097, 8191, 100_003])
def test_quantiles_are_order_statistics(total_bits: int, count: int) -> None:
    """All elements count, also those behind the last whole chunk of 4096."""
    values = np.random.default_rng(count).standard_normal(count).astype(F32)
    k = 2**total_bits - 1
    tail = Fraction(1, 2 * k)
    step = (1 - 2 * tail) / (k - 1)
    places = [int((tail + j * step) * (count - 1) + Fraction(1, 2)) for j in range(k)]
    found = np.sort(values)[places]
    expected = np.sort(np.append(found / np.abs(found).max(), F32(0)))
    ours = codebooks.quantile(values.reshape(1, -1), total_bits)
    assert ours.dtype == F32
    assert len(ours) == 2**total_bits
    ties = sum(((tail + j * step) * (count - 1)).limit_denominator(2) % 1 == Fraction(1, 2)
               for j in range(k))  # fmt: skip
    assert np.count_nonzero(ours != expected) <= ties


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 254, 5000, 8191])
def test_quantiles_are_those_of_the_operator(count: int, dtype: str) -> None:
    """The same positions, to the last rounding."""
    problem = Problem(shape=(count,), input_dtype=dtype, quantiles=255)
    values = np.random.default_rng(count).standard_normal(count).astype(dtype)
    bench = Bench(Host(), QUANTILES.descriptor(problem))
    bench.load({"input": values})
    bench.run()
    found = bench.outputs()["output"]
    expected = np.sort(np.append(found / np.abs(found).max(), 0)).astype(F32)
    assert np.array_equal(codebooks.quantile(values), expected)


def test_quantiles_lie_near_those_of_torch() -> None:
    """bitsandbytes' own acceptance for its estimate: 0.05."""
    values = torch.randn(65536, generator=torch.Generator().manual_seed(0))
    k, ours = 255, codebooks.quantile(values)
    shares = torch.linspace(1 / (2 * k), 1 - 1 / (2 * k), k)
    theirs = torch.quantile(values, shares).numpy()
    theirs = np.sort(np.append(theirs / np.abs(theirs).max(), 0))
    assert np.abs(ours - theirs).max() <= 0.05


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16", "int8"])
def test_quantiles_of_every_type(dtype: str) -> None:
    values = np.arange(-100, 101).astype(getattr(ml_dtypes, dtype, dtype))
    ours = codebooks.quantile(values, 4)
    assert np.array_equal(ours, codebooks.quantile(values.astype(F32), 4))
    assert ours[0] == -1
    assert ours[-1] == 1


def test_quantiles_of_zeros_are_zeros() -> None:
    ours = codebooks.quantile(np.full(9, -0.0))
    assert not ours.any()
    assert not np.signbit(ours).any()


MAPS = {
    "dynamic": codebooks.dynamic(),
    "dynamic unsigned": codebooks.dynamic(signed=False),
    "dynamic 4 bits": codebooks.dynamic(True, 3, 4),
    "linear": codebooks.linear(),
    "linear unsigned": codebooks.linear(signed=False),
    "linear 5 bits": codebooks.linear(False, 5),
    "normal": codebooks.normal(),
    "fp8": codebooks.fp8(),
    "fp8 e4m3": codebooks.fp8(True, 4, 3, 8),
    "quantile": codebooks.quantile(np.random.default_rng(0).standard_normal(5000)),
    "fp4 sorted": np.sort(codebooks.fp4()),
    "int4 sorted": np.sort(codebooks.int4()),
    "af4 sorted": np.sort(codebooks.af4()),
}
over_maps = pytest.mark.parametrize("values", MAPS.values(), ids=MAPS.keys())


@over_maps
def test_every_map_is_a_codebook(values: Array) -> None:
    """Ascending, finite, and the largest magnitude is 1."""
    assert np.array_equal(bits(codebooks.validate(values)), bits(values))
    assert np.abs(values).max() == 1


@over_maps
@pytest.mark.parametrize("ties", ["even", "down"])
def test_thresholds_lie_at_the_exact_middles(values: Array, ties: str) -> None:
    """The floats beside each rounded middle take the value that is nearer by exact arithmetic."""
    book = reference.Codebook(values, "given", ties)
    for i, (low, high) in enumerate(itertools.pairwise(values)):
        if low == high:
            continue
        rounded = F32((low + high) / F32(2))
        exact = (Fraction(float(low)) + Fraction(float(high))) / 2
        for y in (np.nextafter(rounded, F32(-2)), np.nextafter(rounded, F32(2))):
            wanted = high if Fraction(float(y)) > exact else low
            assert values[book.nearest(y[None])[0]] == wanted
        upper = ties == "even" and i % 2 == 1
        assert values[book.nearest(rounded[None])[0]] == (high if upper else low)


NF4_DECIMALS = [decimal for row in reference.NF4_MIDDLES for decimal in row]


def test_four_thresholds_of_nf4_are_not_the_rounded_sums() -> None:
    """The decimals lie at middles of floats but for what their digits leave out."""
    sums = reference.thresholds_of(codebooks.nf4(), "down")
    assert np.flatnonzero(sums != reference.NF4_THRESHOLDS).tolist() == [0, 8, 12, 14]
    assert np.abs(bits(sums).astype(int) - bits(reference.NF4_THRESHOLDS).astype(int)).max() == 1
    by_way_of_float64 = np.array([float(decimal) for decimal in NF4_DECIMALS], F32)
    assert np.array_equal(by_way_of_float64, sums)


def test_the_thresholds_of_nf4_are_in_the_library_of_bitsandbytes() -> None:
    """Its CUDA kernels compare with these floats; the neighbours are in none of them."""
    folder = Path(bnb.__file__).parent
    stored = (folder / "libbitsandbytes_cuda128.so").read_bytes()
    for decimal, threshold in zip(NF4_DECIMALS, reference.NF4_THRESHOLDS, strict=True):
        assert stored.count(threshold.tobytes()) > 100
        other = F32(float(decimal))
        assert other == threshold or other.tobytes() not in stored


def nf4_by_tree(y: Array, decimals: list[str]) -> Array:
    """bitsandbytes' decision tree: `x > t` is right, and compilers round its literals once."""
    if not decimals:
        return np.zeros(y.shape, int)
    middle = len(decimals) // 2
    left, right = (nf4_by_tree(y, half) for half in (decimals[:middle], decimals[middle + 1 :]))
    return np.where(y > reference.rounded_once(decimals[middle]), middle + 1 + right, left)


@pytest.mark.parametrize("size", [None, 1024])
def test_nf4_is_the_decision_tree_of_bitsandbytes(size: int | None) -> None:
    """2001 floats around each threshold, and a million between -1 and 1: as they are, in blocks."""
    around = bits(reference.NF4_THRESHOLDS)[:, None] + np.arange(-1000, 1001, dtype=np.int32)
    even = np.linspace(-1, 1, 2**20 - around.size, dtype=F32)
    y = np.concatenate([around.astype(np.uint32).view(F32).ravel(), even])
    fields: dict[str, Any] = {"shape": y.shape, "output_dtype": "uint4", "codebook": "nf4"}
    if size is None:
        desc = planq.CodebookQuantizeDescriptor(input_dtype="float32", normalized=True, **fields)
    else:
        y.reshape(-1, size)[:, 0] = 1
        desc = planq.BlockwiseQuantizeDescriptor(input_dtype="float32", block_size=size, **fields)
    bench = Bench(Host(), desc)
    bench.load({"input": y})
    bench.run()
    found = unpack_nibbles(bench.outputs()["output"], y.size, "high_first")
    assert np.array_equal(found, nf4_by_tree(y, NF4_DECIMALS))


GOLDEN = {
    "nf4": ([2, -2, 0.159161, 0, -0.568883, 0.88142, 0.32186, 0], [15, 0, 8, 7, 4, 12, 9, 7]),
    "fp4": ([2, -2, 0.010417, 0, -0.5, 1, 0.333333, -0.010417], [3, 11, 1, 0, 15, 5, 6, 9]),
    "dynamic": (
        [2, -1.985937, 0.101562, 0, -0.495312, 1.001562, 0.298438, -0.010438],
        [255, 0, 173, 127, 53, 219, 194, 104],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vectors(name: str) -> None:
    """Codes and what they decode to, computed apart from planq from the published formulas."""
    x = np.array([2, -2, 0.1, 0, -0.5, 1, 0.3, -0.01], F32)
    decoded, codes = GOLDEN[name]
    table = getattr(codebooks, name)()
    assert np.allclose(table[codes] * F32(2), decoded, rtol=0, atol=1e-6)
    nearest = np.abs(table[None, :].astype(float) - x[:, None].astype(float) / 2).argmin(axis=1)
    assert np.array_equal(table[nearest], table[codes])


ORDER = "sort them, or validate with decode_only=True what only dequantizes"
REFUSED: list[tuple[Any, str]] = [
    (5.0, "one axis, got shape ()"),
    ([[0, 1]], "one axis, got shape (1, 2)"),
    ([1], "2 to 256 values, got 1"),
    ([], "2 to 256 values, got 0"),
    (range(257), "2 to 256 values, got 257"),
    ([0, np.nan, 1], "finite numbers, got nan at index 1"),
    ([0, 1, np.inf], "finite numbers, got inf at index 2"),
    ([0, 1e39], "finite numbers, got inf at index 1"),
    ([0, 0.5, 0.25], f"values in ascending order, got 0.25 after 0.5 at index 2; {ORDER}"),
    (codebooks.fp4(), "values in ascending order, got 0.3333333432674408 after 1.0 at index 4; "
     "to quantize, name this one: planq.Codebook.FP4; "
     "to dequantize alone, validate it with decode_only=True"),
    (["0", "1"], "an array of numbers on the host, got list of objects"),
    ([False, True], "an array of numbers on the host, got list of objects"),
    (np.array([0, 1j]), "an array of numbers on the host, got ndarray of complex128"),
    ([[0], [0, 1]], "an array of numbers on the host, got list of objects"),
    (torch.zeros(2, device="meta"), "an array of numbers on the host, got Tensor of torch.float32"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_validate_says_what_is_wrong(values: Any, message: str) -> None:
    with pytest.raises(planq.ArgumentError) as caught:
        codebooks.validate(values)
    assert str(caught.value) == f"codebook: expected {message}"
    assert caught.value.operand == "codebook"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8"])
def test_validate_takes_every_number(dtype: str) -> None:
    values = np.array([-1, 0, 0, 1]).astype(getattr(ml_dtypes, dtype, dtype))
    found = codebooks.validate(values)
    assert found.dtype == F32
    assert found.tolist() == [-1, 0, 0, 1]
    assert not np.shares_memory(found, values)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2))
def test_validate_takes_whatever_ascends(values: list[float]) -> None:
    """Sorted numbers are a codebook, up to 256 of them."""
    table = np.sort(np.array(values, F32))[:256]
    assert np.array_equal(codebooks.validate(table.tolist()), table)


@pytest.mark.parametrize("name", ["nf4", "fp4", "int4", "af4"])
def test_validate_takes_planqs_tables_for_decoding(name: str) -> None:
    """In the order of their codes, which a GIVEN codebook then decodes to the same bits."""
    table = codebooks.validate(getattr(codebooks, name)(), decode_only=True)
    assert np.array_equal(bits(table), bits(getattr(codebooks, name)()))
    desc = planq.CodebookDequantizeDescriptor(
        shape=(16,), input_dtype="uint8", output_dtype="float32", entries=16, normalized=True
    )
    codes, decoded = np.arange(16, dtype=np.uint8), np.empty(16, F32)
    args = planq.CodebookDequantizeArgs(input=codes, output=decoded, codebook=table)
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    assert np.array_equal(bits(decoded), bits(table))


@pytest.mark.parametrize("name", ["fp4", "int4", "af4"])
def test_validate_says_how_to_quantize_to_planqs_tables(name: str) -> None:
    """By name: as a GIVEN codebook, in the order of its codes, each would get wrong codes."""
    table = getattr(codebooks, name)()
    for values in (table, table + F32(0)):  # bitsandbytes has +0 where these have -0
        with pytest.raises(planq.ArgumentError, match="values in ascending order") as caught:
            codebooks.validate(values)
        named = f"to quantize, name this one: planq.Codebook.{name.upper()}; "
        assert str(caught.value).endswith(
            f"{named}to dequantize alone, validate it with decode_only=True"
        )


@pytest.mark.parametrize("name", ["fp4", "int4", "af4"])
def test_planqs_tables_quantize_by_name_alone(name: str) -> None:
    """What validate refuses: a search of values that do not ascend finds wrong codes."""
    codes = []
    for fields in ({"codebook": name}, {"entries": 16}):
        desc = planq.CodebookQuantizeDescriptor(
            shape=(64,), input_dtype="float32", output_dtype="uint4", normalized=True, **fields
        )
        plan = planq.Plan.select(planq.HOST, desc)
        made = plan.empty_outputs(np)
        table = {"codebook": getattr(codebooks, name)()} if "entries" in fields else {}
        x = np.linspace(-1, 1, 64, dtype=F32)
        plan.run(planq.HOST, None, planq.CodebookQuantizeArgs(input=x, **made, **table))
        codes.append(made["output"])
    assert (codes[0] != codes[1]).any()


@pytest.mark.parametrize("values", [[0, np.nan], [[1, 0]], [1], range(257, 0, -1)])
def test_only_the_order_is_free_for_decoding(values: Any) -> None:
    with pytest.raises(planq.ArgumentError, match=r"^codebook: expected "):
        codebooks.validate(values, decode_only=True)


WRONG: list[tuple[Any, str]] = [
    (lambda: codebooks.dynamic(total_bits=9), "total_bits: expected 2 to 8, got 9"),
    (lambda: codebooks.dynamic(total_bits=4), "max_exponent_bits: expected 1 to 3, got 7"),
    (lambda: codebooks.dynamic(False, 5), "max_exponent_bits: expected 7, got 5"),
    (lambda: codebooks.linear(total_bits=1), "total_bits: expected 2 to 8, got 1"),
    (lambda: codebooks.normal(0.5), "offset: expected a float32 above 0.5 and below 1, got 0.5"),
    (lambda: codebooks.normal(1), "offset: expected a float32 above 0.5 and below 1, got 1"),
    (lambda: codebooks.fp8(exponent_bits=8), "exponent_bits: expected 1 to 7, got 8"),
    (lambda: codebooks.fp8(True, 4, 2), "total_bits: expected the sum of 4 exponent, 2 precision "
     "and 1 sign bits, got 8"),
    (lambda: codebooks.quantile([]), "values: expected at least one number, got none"),
    (lambda: codebooks.quantile([[0, -np.inf]]), "values: expected finite numbers, got -inf at "
     "index 1"),
    (lambda: codebooks.quantile([1], 0), "total_bits: expected 2 to 8, got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[m for _, m in WRONG])
def test_what_has_no_meaning_is_refused(call: Any, message: str) -> None:
    with pytest.raises(planq.ArgumentError) as caught:
        call()
    assert str(caught.value) == message


def test_the_module_comes_with_its_first_use() -> None:
    """`import planq` imports no NumPy; everything public is documented."""
    assert planq.codebooks is codebooks
    assert "codebooks" in planq.__all__
    for name in codebooks.__all__:
        assert getattr(codebooks, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'codebook_s'"):
        _ = planq.codebook_s
