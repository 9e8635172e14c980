"""`blockwise_dequantize` on the host: every code of every table, nested statistics, peers.

bitsandbytes' CPU backend gives the same elements where rows are whole blocks; its FP4 has no -0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.memory import Host
from planq.audit.ops.codebook import inputs as codebook_inputs
from planq.audit.ops.codebook.blockwise_dequantize.adapter import TESTS
from planq.audit.ops.codebook.blockwise_dequantize.reference import BlockwiseDequantizeProblem
from planq.audit.ops.codebook.blockwise_quantize.adapter import TESTS as QUANTIZE
from planq.audit.ops.codebook.blockwise_quantize.reference import BlockwiseQuantizeProblem
from planq.audit.ops.codebook.cases import BOOKS, PARAMETERS
from planq.audit.ops.codebook.reference import table
from planq.audit.reference import inputs
from planq.audit.reference.formats import (
    CANONICAL_NAN,
    INPUT_DTYPES,
    STORAGE,
    Array,
    bits,
    narrowed,
)
from planq.audit.runner import Bench
from support.bitsandbytes_host import bnb
from support.tables import share
from support.tensors import as_torch, from_torch

F32 = np.float32
INF, NAN = float("inf"), float("nan")
Problem = BlockwiseDequantizeProblem


def nf4(shape: tuple[int, ...], block_size: int, dtype: str = "float32", **fields: Any) -> Problem:
    """NF4 codes."""
    return Problem(
        shape=shape,
        input_dtype="uint4",
        output_dtype=dtype,
        codebook="nf4",
        block_size=block_size,
        **fields,
    )


def nonzero(words: Array) -> list[int]:
    """Where words are not zero, of which most pieces have none."""
    piece = 1 << 20
    found = [
        first + np.flatnonzero(words[first : first + piece])
        for first in range(0, words.size, piece)
        if words[first : first + piece].any()
    ]
    return [int(index) for indices in found for index in indices]


@pytest.mark.parametrize(("codes", "book"), BOOKS)
@pytest.mark.parametrize("dtype", INPUT_DTYPES)
def test_the_whole_table(dtype: str, codes: str, book: str) -> None:
    """Every nesting x block size x type of absmax x order; operands take turns.

    Of these a type of output has a third.
    """
    choices = share(
        INPUT_DTYPES.index(dtype),
        (None, 1, 5, 300),
        (1, 3, 8, 41, 64, 1000),
        (None, "float32", *(("float64",) if dtype == "float64" else ())),
        ("high_first", "low_first"),
        (None, 2, 11),
    )
    for seed, (nested, size, absmax_dtype, order, entries) in enumerate(choices):
        problem = Problem(
            shape=(3, 4, 41),
            input_dtype=codes,
            output_dtype=dtype,
            codebook=book,
            entries=entries if book == "given" else None,
            block_size=size,
            absmax_dtype=absmax_dtype,
            nested_block_size=nested,
            nibble_order=order,
        )
        parameters = PARAMETERS[seed % len(PARAMETERS)]
        TESTS.check(problem, **codebook_inputs.make(problem, "normal", parameters, seed))


@st.composite
def problems(draw: Any) -> Problem:
    """Any shape with any block size."""
    codes, book = draw(st.sampled_from(BOOKS))
    return Problem(
        shape=tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))),
        input_dtype=codes,
        output_dtype=draw(st.sampled_from(INPUT_DTYPES)),
        codebook=book,
        block_size=draw(st.integers(1, 200) | st.just(2**62)),
        nested_block_size=draw(st.none() | st.integers(1, 50)),
        nibble_order=draw(st.sampled_from(("high_first", "low_first"))),
    )


@settings(deadline=None, max_examples=200)
@given(problem=problems(), seed=st.integers(0, 10**6), turn=st.integers(0, 2))
def test_any_problem(problem: Problem, seed: int, turn: int) -> None:
    """Small tensors of any rank, empty ones among them."""
    TESTS.check(problem, **codebook_inputs.make(problem, "normal", PARAMETERS[turn], seed))


class TestValues:
    """What codes stand for."""

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    @pytest.mark.parametrize("book", ["dynamic", "nf4", "fp4", "int4", "af4"])
    def test_every_code_of_every_table(self, book: str, dtype: str) -> None:
        """One product and one rounding, over several absmax; the sign of zero is kept."""
        values = table(book)
        absmax = np.array([1, 3, 0.1, 1e-42, 3e38, 0, NAN, INF], F32)
        if book == "dynamic":
            codes = np.tile(np.arange(256, dtype=np.uint8), len(absmax))
        else:
            codes = np.tile((np.arange(0, 16, 2) << 4 | np.arange(1, 16, 2)), len(absmax))
        problem = Problem(
            shape=(len(values) * len(absmax),),
            input_dtype="uint8" if book == "dynamic" else "uint4",
            output_dtype=dtype,
            codebook=book,
            block_size=len(values),
            absmax_dtype="float32",
        )
        found = TESTS.run(problem, input=codes.astype(np.uint8), absmax=absmax)["output"]
        C = np.float64 if dtype == "float64" else F32
        with np.errstate(all="ignore"):
            wanted = narrowed((absmax[:, None].astype(C) * values.astype(C)).ravel(), dtype)
        assert np.array_equal(bits(found), bits(wanted))
        lost = np.isnan(found.astype(np.float64))
        assert lost.any()
        assert (bits(found)[lost] == CANONICAL_NAN[dtype]).all()

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    @pytest.mark.parametrize("entries", [2, 7, 16, 100, 255])
    def test_a_code_beyond_the_entries_is_nan(self, entries: int, dtype: str) -> None:
        """Whatever lies in memory behind the codebook."""
        codes = np.arange(256, dtype=np.uint8)
        problem = Problem(
            shape=(256,), input_dtype="uint8", output_dtype=dtype, entries=entries, block_size=64
        )
        values = np.linspace(-1, 1, entries).astype(F32)
        given = {"input": codes, "absmax": np.ones(4, problem.compute), "codebook": values}
        TESTS.check(problem, **given)
        found = TESTS.run(problem, **given)["output"]
        assert np.isnan(found.astype(F32)).tolist() == [False] * entries + [True] * (256 - entries)

    def test_a_spare_nibble_is_not_looked_at(self) -> None:
        """Behind an odd count of codes."""
        for spare in (0, 7, 15):
            packed = np.array([0xF0, 0x30 | spare], np.uint8)
            found = TESTS.run(nf4((3,), 64), input=packed, absmax=np.ones(1, F32))["output"]
            assert found.tolist() == table("nf4")[[15, 0, 3]].tolist()

    def test_nested_statistics_are_two_roundings(self) -> None:
        """A product and a sum, in C, from any codebook of 256 values."""
        codebook = inputs.make("normal", (256,), "float32", 3)
        codes = np.arange(256, dtype=np.uint8)
        absmax, offset = np.array([0.3, 7.1], F32), np.array([0.123], F32)
        packed = np.full(128, 0xFF, np.uint8)
        problem = nf4((256,), 1, nested_block_size=128)
        found = TESTS.run(
            problem,
            input=packed,
            absmax=codes,
            nested_absmax=absmax,
            nested_offset=offset,
            nested_codebook=codebook,
        )["output"]
        assert np.array_equal(found, codebook * np.repeat(absmax, 128) + offset)

    def test_one_row_is_not_a_column(self) -> None:
        """The shape says where elements are, never in which order."""
        packed = inputs.hashed(1, 480).astype(np.uint8)
        absmax = np.arange(1, 16, dtype=F32)
        flat = TESTS.run(nf4((960,), 64), input=packed, absmax=absmax)["output"]
        for shape in ((1, 960), (960, 1), (1, 1, 960), (30, 32), (1, 2)):
            count = int(np.prod(shape))
            given = {"input": packed[: count // 2], "absmax": absmax[: -(-count // 64)]}
            found = TESTS.run(nf4(shape, 64), **given)["output"]
            assert found.shape == shape
            assert np.array_equal(found.ravel(), flat[:count])


class TestTensors:
    """Sizes, strides, threads."""

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    def test_results_that_fit_no_cache(self, dtype: str) -> None:
        """Written past it: the same bits, and none beside them."""
        count = 2**25 // STORAGE[dtype].itemsize + 77
        problem = nf4((count,), 100, dtype)
        packed = np.resize(inputs.hashed(2, 9973).astype(np.uint8), -(-count // 2))
        absmax = np.resize(inputs.make("normal", (997,), "float32"), problem.blocks)
        given = {"input": packed, "absmax": absmax.astype(problem.compute)}
        wanted = problem.expected(given)
        for threads in (1, 2, 5):
            bench = Bench(Host(threads), TESTS.descriptor(problem))
            bench.load(given)
            bench.run()
            bench.check(given, wanted, f"{problem.id} in {threads} threads")

    @pytest.mark.parametrize("rows", [slice(None, None, -1), slice(None, None, 3)])
    @pytest.mark.parametrize("columns", [33, 60_001])
    def test_strides_do_not_matter(self, columns: int, rows: slice) -> None:
        """Rows backwards and with others in between, in both operands."""
        codes = inputs.hashed(4, 300 * columns).astype(np.uint8).reshape(300, columns)[rows]
        wide = np.full((300, columns + 7), 77, F32)
        output = wide[rows][:, :columns]
        problem = Problem(
            shape=codes.shape,
            input_dtype="uint8",
            output_dtype="float32",
            codebook="dynamic",
            block_size=50,
        )
        absmax = np.resize(np.arange(1, 8, dtype=F32), problem.blocks)
        wanted = problem.expected({"input": codes, "absmax": absmax})["output"]
        args = planq.BlockwiseDequantizeArgs(input=codes, output=output, absmax=absmax)
        planq.Plan.select(planq.HOST, TESTS.descriptor(problem)).run(planq.HOST, None, args)
        assert np.array_equal(output, wanted)
        output[...] = 77
        assert (wide == 77).all()

    def test_more_than_two_to_the_thirty_one_elements(self) -> None:
        """Zeros with codes planted before, at and after 2^31.

        FP4's zero is code 0: the system need not give pages of zeros memory.
        """
        count = 2**31 + 2**20 + 23
        packed = np.zeros(-(-count // 2), np.uint8)
        where = np.array([0, 2**31 - 1, 2**31, 2**31 + 1, count - 1])
        for index in where:
            packed[index // 2] |= 0x30 if index % 2 == 0 else 0x03
        absmax = (np.arange(-(-count // 4096)) % 1000 + 1).astype(F32)
        output = np.empty(count, np.float16)
        problem = Problem(
            shape=(count,),
            input_dtype="uint4",
            output_dtype="float16",
            codebook="fp4",
            block_size=4096,
        )
        args = planq.BlockwiseDequantizeArgs(input=packed, output=output, absmax=absmax)
        planq.Plan.select(planq.HOST, TESTS.descriptor(problem)).run(planq.HOST, None, args)
        assert nonzero(output.view(np.uint16)) == where.tolist()
        assert output[where].tolist() == absmax[where // 4096].tolist()


class TestRoundTrips:
    """There and back."""

    @pytest.mark.parametrize(("codes", "book"), BOOKS[1:2] + BOOKS[3:])
    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    def test_codes_come_back(self, dtype: str, codes: str, book: str) -> None:
        """Decoded codes have themselves as codes, where each block has a code of 1."""
        fields: dict[str, Any] = {"shape": (40, 130), "codebook": book, "block_size": 64}
        there = BlockwiseQuantizeProblem(input_dtype=dtype, output_dtype=codes, **fields)
        back = Problem(input_dtype=codes, output_dtype="float64", absmax_dtype="float32", **fields)
        x = np.abs(inputs.make("normal", (40, 130), dtype))
        if dtype == "float64":
            back = Problem(input_dtype=codes, output_dtype="float64", **fields)
        first = QUANTIZE.run(there, input=x)
        values = TESTS.run(back, input=first["output"], absmax=first["absmax"])["output"]
        again = BlockwiseQuantizeProblem(
            input_dtype="float64", output_dtype=codes, quotient="divide", **fields
        )
        second = QUANTIZE.run(again, input=values)
        assert np.array_equal(second["output"], first["output"])
        assert np.array_equal(second["absmax"], first["absmax"].astype(np.float64))

    def test_acceptance_of_bitsandbytes(self) -> None:
        """The errors that its own tests allow for, on a normal distribution."""
        x = np.random.default_rng(0).standard_normal((1024, 1024), dtype=F32)
        allowed = [("uint8", "dynamic", size, 0.011, 0.018) for size in (64, 256, 1024, 4096)]
        for codes, book, size, error, relative in [*allowed, ("uint4", "fp4", 64, 0.1, 0.28)]:
            for nested in (None, 256):
                fields: dict[str, Any] = {
                    "shape": x.shape,
                    "codebook": book,
                    "block_size": size,
                    "nested_block_size": nested,
                }
                there = BlockwiseQuantizeProblem(
                    input_dtype="float32", output_dtype=codes, **fields
                )
                made = QUANTIZE.run(there, input=x)
                made["input"] = made.pop("output")
                if nested:
                    made["nested_codebook"] = table("dynamic")
                back = Problem(input_dtype=codes, output_dtype="float32", **fields)
                lost = np.abs(TESTS.run(back, **made)["output"] - x)
                slack = 1.1 if nested and codes == "uint4" else 1
                assert lost.mean() < error * slack
                assert (lost / (np.abs(x) + 1e-8)).mean() < relative * slack


class TestBitsandbytes:
    """Against its CPU backend."""

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
    @pytest.mark.parametrize("size", [64, 256, 4096])
    def test_8_bits(self, size: int, dtype: str) -> None:
        """The same elements, of any codes and absmax."""
        codes = inputs.hashed(5, 2**18).astype(np.uint8)
        absmax = np.abs(inputs.make("normal", (2**18 // size,), "float32")) + F32(1e-3)
        problem = Problem(
            shape=(2**18,),
            input_dtype="uint8",
            output_dtype=dtype,
            codebook="dynamic",
            block_size=size,
        )
        state = bnb.QuantState(
            absmax=torch.from_numpy(absmax),
            code=torch.from_numpy(table("dynamic")),
            blocksize=size,
            dtype=getattr(torch, dtype),
        )
        theirs = from_torch(bnb.dequantize_blockwise(torch.from_numpy(codes), state))
        ours = TESTS.run(problem, input=codes, absmax=absmax)["output"]
        assert np.array_equal(bits(ours), bits(theirs))

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
    @pytest.mark.parametrize("nested", [False, True])
    @pytest.mark.parametrize("book", ["nf4", "fp4"])
    def test_4_bits(self, book: str, nested: bool, dtype: str) -> None:
        """What it quantized, nested statistics too, in the type that it keeps."""
        x = inputs.make("normal", (256, 1024), dtype, 6)
        packed, state = bnb.quantize_4bit(
            as_torch(x), blocksize=64, quant_type=book, compress_statistics=nested
        )
        theirs = from_torch(bnb.dequantize_4bit(packed, state)).astype(F32)
        problem = Problem(
            shape=x.shape,
            input_dtype="uint4",
            output_dtype=dtype,
            codebook=book,
            block_size=64,
            nested_block_size=256 if nested else None,
        )
        given: dict[str, Array] = {
            "input": packed.numpy().ravel(),
            "absmax": state.absmax.numpy(),
        }
        if nested:
            given["nested_absmax"] = state.state2.absmax.numpy()
            given["nested_offset"] = state.offset.numpy().reshape(1)
            given["nested_codebook"] = state.state2.code.numpy()
        ours = TESTS.run(problem, **given)["output"].astype(F32)
        assert np.allclose(ours, theirs, rtol=0 if dtype == "float32" else 2.0**-7, atol=0)
        if dtype == "float32":
            assert np.array_equal(ours, theirs)
